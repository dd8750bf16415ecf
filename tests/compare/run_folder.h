// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A folder of records as a run of one rank or several would leave it, made record by record.
#pragma once

#include <ATen/ATen.h>

#include <filesystem>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "dbg/compare.h"
#include "dbg/dump_record.h"
#include "dbg/tags.h"
#include "dump/record_name.h"
#include "support/temp_folder.h"

namespace dbg::test {

/// How a record is written beyond its name and value.
struct RecordOf {
  int rank = 0;
  std::int64_t step = 0;
  std::vector<std::pair<std::string, std::int64_t>> tags = {};
  std::string dims = {};
  /// Axis, rank, size.
  std::vector<std::tuple<std::string, int, int>> place = {};
};

/// Records of one run.
class RunFolder {
 public:
  std::string path() const { return folder_.path().string(); }

  /// Writes a record and returns its path.
  std::string add(const std::string& name, const c10::IValue& value, const RecordOf& how = {}) {
    std::vector<RecordNamePair> pairs = {
        {"step", how.step}, {"rank", how.rank}, {"dump_index", ++dump_index_}, {"name", name}};
    for (const auto& [key, tag] : how.tags) pairs.emplace_back(key, tag);
    c10::impl::GenericDict meta(c10::StringType::get(), c10::AnyType::get());
    meta.insert("name", name);
    meta.insert("step", how.step);
    meta.insert("rank", static_cast<std::int64_t>(how.rank));
    if (!how.dims.empty()) meta.insert("dims", how.dims);
    if (!how.place.empty()) {
      c10::impl::GenericDict info(c10::StringType::get(), c10::AnyType::get());
      for (const auto& [axis, rank, size] : how.place) {
        info.insert(axis + "_rank", static_cast<std::int64_t>(rank));
        info.insert(axis + "_size", static_cast<std::int64_t>(size));
      }
      meta.insert("sglang_parallel_info", c10::IValue(std::move(info)));
    }
    const std::string file = path() + "/" + format_record_name(pairs);
    write_record(file, {value, c10::IValue(std::move(meta))});
    return file;
  }

 private:
  TempFolder folder_;
  std::int64_t dump_index_ = 0;
};

/// Compares two runs; `change` sets options.
template <class Change>
CompareReport compare_runs(const RunFolder& baseline, const RunFolder& target, const Change& change) {
  CompareOptions options;
  options.baseline = baseline.path();
  options.target = target.path();
  options.threads = 2;
  change(options);
  return compare_folders(options);
}

inline CompareReport compare_runs(const RunFolder& baseline, const RunFolder& target) {
  return compare_runs(baseline, target, [](CompareOptions&) {});
}

}  // namespace dbg::test
