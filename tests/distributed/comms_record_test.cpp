// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What a Kineto trace shows of a group: its name and its description. Compiled with NDEBUG, as what it includes wants.
#include "distributed/comms_record.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "distributed/collectives.h"
#include "distributed/gloo_halves.h"
#include "support/temp_folder.h"

namespace dbg::distributed {
namespace {

using nlohmann::json;

// The trace's events called `name` while `body` ran.
template <class Body>
std::vector<json> traced(const std::string& name, Body&& body) {
  namespace profiler = torch::autograd::profiler;
  namespace impl = torch::profiler::impl;
  const impl::ProfilerConfig config(impl::ProfilerState::KINETO);
  const std::set<impl::ActivityType> activities{impl::ActivityType::CPU};
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities);
  body();
  const auto result = profiler::disableProfiler();
  const test::TempFolder folder;
  const std::string path = (folder / "trace.json").string();
  result->save(path);
  std::ifstream file(path);
  const json trace = json::parse(file);
  std::vector<json> events;
  for (const json& event : trace.at("traceEvents")) {
    if (event.value("name", "") == name) events.push_back(event);
  }
  return events;
}

TEST(CommsRecordTest, ATraceShowsNameAndDescription) {
  const auto half = test::make_gloo_half(c10::make_intrusive<c10d::HashStore>(), 0, 1);
  const auto events = traced("record_param_comms", [&] {
    all_reduce(*half, at::ones({256}));
    barrier(*half);
  });
  ASSERT_EQ(events.size(), 2U);
  const json& shown = events[0].at("args");
  EXPECT_EQ(shown.value("Process Group Name", ""), "tp@test.g0") << shown;
  EXPECT_EQ(shown.value("Process Group Description", ""), "tp:cpu") << shown;
  EXPECT_EQ(shown.value("Collective name", ""), "all_reduce") << shown;
  EXPECT_EQ(shown.value("In msg nelems", 0), 256) << shown;
  EXPECT_EQ(shown.value("Group size", 0), 1) << shown;
  EXPECT_EQ(events[1].at("args").value("Collective name", ""), "barrier");
}

TEST(CommsRecordTest, NothingIsMadeWhileNobodyListens) {
  const auto half = test::make_gloo_half(c10::make_intrusive<c10d::HashStore>(), 0, 1);
  EXPECT_TRUE(traced("record_param_comms", [] {}).empty());
  all_reduce(*half, at::ones({256}));
  EXPECT_EQ(half->sequence.load(), 1U);
}

// Negative test of the channel: the backend by itself shows nothing.
TEST(CommsRecordTest, TheBareBackendShowsNothing) {
  const auto half = test::make_gloo_half(c10::make_intrusive<c10d::HashStore>(), 0, 1);
  std::vector<at::Tensor> tensors{at::ones({4})};
  EXPECT_TRUE(traced("record_param_comms", [&] { half->backend->allreduce(tensors)->wait(); }).empty());
}

}  // namespace
}  // namespace dbg::distributed
