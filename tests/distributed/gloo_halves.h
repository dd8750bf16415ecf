// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Real gloo backends as halves of a group, with ranks as threads over a HashStore or as processes over a FileStore.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>
#include <vector>

#include "base/formatted.h"
#include "distributed/group_half.h"
#include "support/rank_processes.h"
#include "support/rank_threads.h"
#include "support/sanitizers.h"
#include "support/temp_folder.h"

namespace dbg::test {

struct HalfSettings {
  std::chrono::milliseconds timeout{std::chrono::seconds(30)};
  bool has_notes = true;  ///< whether members can leave each other notes in the store
};

/// Global ranks differ from ranks in the group, so that mixing them up is seen.
inline std::vector<int> global_ranks_of(int size) {
  std::vector<int> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.push_back(10 + 3 * rank);
  return ranks;
}

inline std::unique_ptr<distributed::GroupHalf> make_gloo_half(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                                              int size, const HalfSettings& settings = {}) {
  auto half = std::make_unique<distributed::GroupHalf>();
  half->name = "tp@test.g0";
  half->label = "tp:cpu";
  half->ranks = global_ranks_of(size);
  half->rank_in_group = rank;
  half->timeout = settings.timeout;
  if (settings.has_notes) half->store = c10::make_intrusive<c10d::PrefixStore>("notes", store);
  // Long: making it must not fail on a busy machine, and each operation brings its own.
  const auto options = c10d::ProcessGroupGloo::Options::create(std::chrono::seconds(30));
  options->devices = {c10d::ProcessGroupGloo::createDeviceForInterface("lo")};
  const auto keys = c10::make_intrusive<c10d::PrefixStore>("gloo", store);
  half->backend = c10::make_intrusive<c10d::ProcessGroupGloo>(keys, rank, size, options);
  return half;
}

using HalfBody = std::function<void(distributed::GroupHalf&)>;

/// Runs `body` on `size` threads, each with a half of its own. The halves go when all are done.
inline void run_halves_as_threads(int size, const HalfBody& body, const HalfSettings& settings = {}) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::unique_ptr<distributed::GroupHalf>> halves(static_cast<std::size_t>(size));
  run_ranks_as_threads(size, [&](int rank) {
    auto& half = halves[static_cast<std::size_t>(rank)];
    half = make_gloo_half(store, rank, size, settings);
    body(*half);
  });
}

/// Runs `body` in a rank process, over the FileStore at `path`.
inline void run_half_in_process(const RankContext& context, const std::string& path, const HalfBody& body,
                                const HalfSettings& settings = {}) {
  const auto store = c10::make_intrusive<c10d::FileStore>(path, context.world_size);
  const auto half = make_gloo_half(store, context.rank, context.world_size, settings);
  body(*half);
  // Whoever goes closes its connections: not before all are done.
  store->add("done", 1);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (store->add("done", 0) < context.world_size && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

/// What each member of a group does, by name, for tests that run it with ranks as threads and as processes.
struct HalfCaseBody {
  void (*run)(distributed::GroupHalf&);
  std::string file;
};

inline std::map<std::string, HalfCaseBody>& half_case_bodies() {
  static std::map<std::string, HalfCaseBody> bodies;
  return bodies;
}

/// Defines one: `DBG_HALF_CASE(Broadcast) { broadcast(half, ...); }`.
#define DBG_HALF_CASE(name)                                                                              \
  static void name(::dbg::distributed::GroupHalf& half);                                                 \
  [[maybe_unused]] static const bool name##_is_added =                                                   \
      ::dbg::test::half_case_bodies().emplace(#name, ::dbg::test::HalfCaseBody{&name, __FILE__}).second; \
  static void name([[maybe_unused]] ::dbg::distributed::GroupHalf& half)

/// Runs the case in a rank process; the argument is `<case>|<path of the store>`.
inline void run_case_in_process(const RankContext& context) {
  const std::size_t bar = context.argument.find('|');
  run_half_in_process(context, context.argument.substr(bar + 1),
                      half_case_bodies().at(context.argument.substr(0, bar)).run);
}

struct HalfCase {
  std::string name;
  int size = 1;
  bool as_processes = false;
};

inline void PrintTo(const HalfCase& value, std::ostream* out) {
  *out << value.name << " with " << value.size << (value.as_processes ? " processes" : " threads");
}

/// All cases of one source with groups of 1, 2 and 4, as threads and (from 2 on) as processes. Evaluated when the tests
/// are made, when all cases are known. Under TSan as threads only: it sees no more of ranks in processes of their own,
/// and such a process takes seconds to start under it.
inline std::vector<HalfCase> all_half_cases(const std::string& file) {
  std::vector<HalfCase> cases;
  for (const auto& [name, body] : half_case_bodies()) {
    if (body.file != file) continue;
    for (const int size : {1, 2, 4}) cases.push_back({name, size, false});
    for (const int size : kUnderThreadSanitizer ? std::vector<int>() : std::vector<int>{2, 4}) {
      cases.push_back({name, size, true});
    }
  }
  return cases;
}

inline std::string name_of_half_case(const testing::TestParamInfo<HalfCase>& info) {
  return formatted("{}_{}_{}", info.param.name, info.param.size, info.param.as_processes ? "processes" : "threads");
}

/// `rank_body` is the DBG_RANK_BODY that calls run_case_in_process.
inline void run_half_case(const HalfCase& param, const std::string& rank_body) {
  if (!param.as_processes) {
    run_halves_as_threads(param.size, half_case_bodies().at(param.name).run);
    return;
  }
  const TempFolder folder;
  expect_all_passed(spawn_ranks(
      {.body = rank_body, .world_size = param.size, .argument = param.name + "|" + (folder / "store").string()}));
}

}  // namespace dbg::test
