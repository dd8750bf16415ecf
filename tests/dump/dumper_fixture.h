// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What the Dumper's tests share: a folder, a configuration that writes into it, and a look at what came of it.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "codec/archive_reader.h"
#include "dbg/dumper.h"
#include "dbg/participant.h"
#include "dump/record_name.h"
#include "support/log_capture.h"
#include "support/temp_folder.h"

namespace dbg::test {

/// The value under `key` in a record's meta. Throws: std::out_of_range when there is none.
inline c10::IValue meta_of(const DumpRecord& record, const std::string& key) {
  const auto meta = record.meta.toGenericDict();
  const auto found = meta.find(key);
  if (found == meta.end()) throw std::out_of_range("no '" + key + "' in the meta");
  return found->value();
}

inline bool has_meta(const DumpRecord& record, const std::string& key) {
  return record.meta.toGenericDict().contains(key);
}

/// A record file's content.
inline DumpRecord read_file(const std::string& path) {
  const auto content = codec::read_archive_file(path).toGenericDict();
  return {content.at("value"), content.at("meta")};
}

/// A tag of a record's file name, as text; `<none>` when there is none of that key.
inline std::string tag_text(const Tags& tags, std::string_view key) {
  const TagValue* value = tags.find(key);
  return value != nullptr ? std::string(value->view().text()) : "<none>";
}

inline std::vector<std::string> keys_of(const Tags& tags) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : tags) keys.push_back(key);
  return keys;
}

/// Answers the questions of FrameworkPlugin with what a test puts into it.
struct FakePlugin : FrameworkPlugin {
  std::string name() const override { return plugin_name; }
  std::string parallel_info_name() const override { return meta_name; }
  ParallelState collect_parallel_info() override {
    if (throws) throw std::runtime_error("no groups yet");
    return state;
  }
  std::optional<std::string> transform_model_param_name(const ModelInfo& model, const std::string& given) override {
    if (throws) throw std::runtime_error("no names");
    return rename ? rename(model, given) : std::nullopt;
  }
  std::optional<RecomputeStatus> recompute_status() override {
    if (throws) throw std::runtime_error("no status");
    return recompute;
  }

  std::optional<std::int64_t> layer_id_of(std::string_view) override {
    if (throws) throw std::runtime_error("no layers");
    return layer_id;
  }

  std::string plugin_name = "fake";
  std::string meta_name = "megatron";
  ParallelState state;
  std::optional<RecomputeStatus> recompute;
  std::optional<std::int64_t> layer_id;
  std::function<std::optional<std::string>(const ModelInfo&, const std::string&)> rename;
  bool throws = false;
};

class DumperFixture : public testing::Test {
 protected:
  /// On, quiet, and into this test's folder; then `overrides` as `key=value`.
  DumperConfig config(const std::vector<std::string>& overrides = {}) const {
    DumperConfig result;
    result.enable = true;
    result.dir = folder_.path().string();
    result.exp_name = "exp";
    result.enable_output_console = false;
    return result.with_overrides(overrides);
  }

  /// The paths of all record files, by step, rank and dump index.
  std::vector<std::string> paths() const {
    if (!std::filesystem::exists(folder_ / "exp")) return {};
    return list_records((folder_ / "exp").string());
  }

  std::vector<std::string> file_names() const {
    std::vector<std::string> names;
    for (const std::string& path : paths()) names.push_back(std::filesystem::path(path).filename().string());
    return names;
  }

  /// The pairs of each record's file name, in the order of `paths()`.
  std::vector<Tags> files() const {
    std::vector<Tags> all;
    for (const std::string& name : file_names()) {
      const auto tags = parse_record_name(name);
      if (!tags) throw std::runtime_error("not a record's name: " + name);
      all.push_back(*tags);
    }
    return all;
  }

  /// One tag of each record's file name, in the order of `paths()`.
  std::vector<std::string> file_tags(std::string_view key) const {
    std::vector<std::string> all;
    for (const Tags& tags : files()) all.push_back(tag_text(tags, key));
    return all;
  }

  TempFolder folder_;
  LogCapture log_;
};

}  // namespace dbg::test
