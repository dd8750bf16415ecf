// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The dims language and the putting together of shards, against SGLang's own functions.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/formatted.h"
#include "dbg/dims.h"
#include "dbg/error.h"
#include "support/temp_folder.h"

namespace dbg {
namespace {

using json = nlohmann::json;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

struct Case {
  std::string dims;
  at::Tensor full;
  std::vector<Shard> shards;
  ShardOptions options;
  bool has_odd_replica = false;
};

// Cases within what the twin can do: zigzag only by the first axis of a dimension, no axis of size 1.
std::vector<Case> make_cases() {
  std::mt19937 random(5);
  const auto pick = [&random](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  std::vector<Case> cases;
  while (cases.size() < 300) {
    std::vector<std::string> axes = {"ep", "sp", "etp", "moe_ep", "attn_tp", "tp"};
    std::shuffle(axes.begin(), axes.end(), random);
    std::vector<std::pair<std::string, int>> sizes;
    int ranks = 1;
    Case made;
    std::vector<std::int64_t> shape;
    const auto add_axis = [&](const std::string& axis) {
      sizes.emplace_back(axis, pick(2, 3));
      ranks *= sizes.back().second;
      return sizes.back().second;
    };
    std::vector<std::string> names = {"s", "t", "b", "(x*y)", "1", "h"};
    std::shuffle(names.begin(), names.end(), random);
    names.resize(static_cast<std::size_t>(pick(1, 4)));
    for (const std::string& name : names) {
      std::string brackets;
      std::int64_t size = name == "1" ? 1 : pick(1, 3);
      if (name == "s" || name == "t") {
        const bool is_new = std::none_of(sizes.begin(), sizes.end(), [](const auto& one) { return one.first == "cp"; });
        if (is_new && ranks < 12 && pick(0, 2) > 0) {
          const bool is_zigzag = name == "t" || pick(0, 1) == 0;
          const int axis_size = add_axis("cp");
          size *= axis_size * (is_zigzag ? 2 : 1);
          brackets = is_zigzag ? "cp:zigzag" : pick(0, 1) == 0 ? "cp:natural" : "cp";
          if (name == "t") {
            made.options.sequence_lengths.assign(static_cast<std::size_t>(pick(1, 3)), size);
            size *= static_cast<std::int64_t>(made.options.sequence_lengths.size());
            size += pick(0, 1) * axis_size;  // padding
          }
        }
      }
      if (name != "1" && name != "t" && ranks < 8 && pick(0, 1) == 0) {
        const std::string axis = axes.back();
        axes.pop_back();
        const int axis_size = add_axis(axis);
        const bool is_partial = pick(0, 4) == 0;
        if (!is_partial) size *= axis_size;
        brackets += (brackets.empty() ? "" : ",") + axis +
                    (is_partial        ? ":partial"
                     : pick(0, 3) == 0 ? ":sharded"
                                       : "");
      }
      made.dims += (made.dims.empty() ? "" : " ") + name + (brackets.empty() ? "" : "[" + brackets + "]");
      shape.push_back(size);
    }
    if (ranks < 12 && pick(0, 2) == 0) {
      const std::string axis = axes.back();
      add_axis(axis);
      made.dims += " # " + axis + ":replicated";
      made.has_odd_replica = pick(0, 3) == 0;
    }
    if (sizes.empty()) continue;
    made.full = at::randint(-9, 10, shape, at::kFloat);
    std::vector<ParallelState> places = {ParallelState()};
    for (const auto& [axis, size] : sizes) {
      std::vector<ParallelState> next;
      for (const ParallelState& place : places) {
        for (int rank = 0; rank < size; ++rank) next.push_back(ParallelState(place).set(axis, rank, size));
      }
      places = std::move(next);
    }
    const Dims dims = Dims::parse(made.dims);
    for (const ParallelState& place : places) {
      made.shards.push_back(
          {shard_of(dims, made.full, place, made.options), place, static_cast<int>(made.shards.size())});
    }
    // The last one is of the last rank of the last axis, so never the one that is picked of two or three.
    if (made.has_odd_replica) made.shards.back().tensor = made.shards.back().tensor + 1;
    std::shuffle(made.shards.begin(), made.shards.end(), random);
    cases.push_back(std::move(made));
  }
  return cases;
}

json as_json(const Case& one) {
  json shards = json::array();
  for (const Shard& shard : one.shards) {
    json place = json::array();
    for (const ParallelAxis& axis : shard.place.axes()) place.push_back({axis.name, axis.rank, axis.size});
    const at::Tensor dense = shard.tensor.contiguous();
    const float* values = dense.const_data_ptr<float>();
    shards.push_back({{"place", place},
                      {"shape", dense.sizes().vec()},
                      {"values", std::vector<float>(values, values + dense.numel())}});
  }
  return {{"dims", one.dims}, {"shards", shards}, {"sequence_lengths", one.options.sequence_lengths}};
}

class DimsInteropTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder = new test::TempFolder;
    cases = new std::vector<Case>(make_cases());
    json all = json::array();
    for (const Case& one : *cases) all.push_back(as_json(one));
    std::ofstream(*folder / "shards.json") << all;
    const std::string command =
        formatted("'{}' '{}/tests/interop/dims_twin.py' '{}' '{}'", variable("DBG_TEST_PYTHON"),
                  variable("DBG_TEST_SOURCE_DIR"), folder->path().string(), variable("DBG_TEST_SGLANG_DIR"));
    if (std::system(command.c_str()) != 0) throw std::runtime_error("failed: " + command);
  }
  static void TearDownTestSuite() {
    delete cases;
    delete folder;
  }

  static json read(const char* name) { return json::parse(std::ifstream(*folder / name)); }

  static test::TempFolder* folder;
  static std::vector<Case>* cases;
};

test::TempFolder* DimsInteropTest::folder = nullptr;
std::vector<Case>* DimsInteropTest::cases = nullptr;

// In the form of the twin's answer; null when refused.
json parsed(const std::string& text) {
  try {
    const Dims dims = Dims::parse(text);
    json all = json::array();
    for (const Dim& dim : dims.dims()) {
      json shards = json::array();
      for (const DimShard& shard : dim.shards) shards.push_back({shard.axis, shard.is_zigzag, shard.is_partial});
      all.push_back({{"names", dim.names}, {"shards", shards}});
    }
    std::vector<std::string> replicated = dims.replicated_axes();
    std::sort(replicated.begin(), replicated.end());
    return {{"dims", all}, {"replicated", replicated}, {"dp", dims.dp_axis()}};
  } catch (const ConfigError&) {
    return nullptr;
  }
}

TEST_F(DimsInteropTest, TextsMeanWhatTheyMeanToTheTwin) {
  const json answers = read("parsed.json");
  ASSERT_EQ(answers.size(), 10000U);
  int accepted = 0;
  int wrong = 0;
  for (const json& answer : answers) {
    accepted += !answer[1].is_null();
    const json mine = parsed(answer[0]);
    if (mine == answer[1]) continue;
    ADD_FAILURE() << answer[0] << ": " << mine << ", and the twin " << answer[1];
    if (++wrong == 10) break;
  }
  EXPECT_GT(accepted, 2000);
  EXPECT_LT(accepted, 8000);
}

TEST_F(DimsInteropTest, ShardsMakeWhatTheTwinMakesOfThem) {
  const json answers = read("unsharded.json");
  ASSERT_EQ(answers.size(), cases->size());
  int odd_replicas = 0;
  for (std::size_t i = 0; i < cases->size(); ++i) {
    const Case& one = cases->at(i);
    SCOPED_TRACE(formatted("case {}: {}", i, one.dims));
    const Unsharded mine = unshard(Dims::parse(one.dims), one.shards, one.options);
    const auto values = answers[i]["values"].get<std::vector<float>>();
    // The twin keeps dimensions `1`, and so does dbg.
    const at::Tensor of_twin = at::tensor(values).view(answers[i]["shape"].get<std::vector<std::int64_t>>());
    ASSERT_TRUE(at::equal(mine.tensor, of_twin));
    ASSERT_TRUE(at::equal(mine.tensor, one.full));
    ASSERT_EQ(mine.replica_differences.size(), answers[i]["failed_replicas"].get<std::size_t>());
    ASSERT_EQ(mine.replica_differences.size(), one.has_odd_replica ? 1U : 0U);
    odd_replicas += one.has_odd_replica;
  }
  EXPECT_GT(odd_replicas, 5);
}

}  // namespace
}  // namespace dbg
