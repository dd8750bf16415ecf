// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The options that NCCL would get: all that can be seen of them without a GPU.
#include "distributed/nccl_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "dbg/error.h"

namespace dbg::distributed {
namespace {

BackendRequest request_for(const std::string& name) {
  BackendRequest request;
  request.group_name = name + ":device@0_1.g0";
  request.group_desc = name + ":device";
  request.global_ranks = {0, 1};
  request.timeout = std::chrono::milliseconds(1234);
  return request;
}

// Not every torch and every NCCL has these fields.
template <class Options>
void expect_described(const Options& options, const std::string& label) {
  if constexpr (requires { options.group_desc; }) {
    EXPECT_EQ(options.group_desc, label);
  }
}
template <class Config>
const char* pointer_of_name(const Config& config) {
  if constexpr (requires { config.commName; }) return config.commName;
  return nullptr;
}

TEST(NcclOptionsTest, CarryTheLabelInEachField) {
  const auto options = make_nccl_options(request_for("tp"), true);
  EXPECT_EQ(options->group_name, "tp:device@0_1.g0");
  EXPECT_EQ(options->global_ranks_in_group, (std::vector<std::uint64_t>{0, 1}));
  EXPECT_EQ(options->timeout, std::chrono::milliseconds(1234));
  expect_described(*options, "tp:device");
  if (!nccl_names_communicators()) GTEST_SKIP() << "this NCCL has no names of communicators";
  EXPECT_EQ(communicator_name_of(*options), "tp:device");
  // NCCL keeps the pointer: neither the request nor the options may own what is there.
  EXPECT_EQ(pointer_of_name(options->config), interned_text("tp:device"));
}

TEST(NcclOptionsTest, CarryNoneWithLabelsOff) {
  const auto options = make_nccl_options(request_for("tp"), false);
  EXPECT_EQ(options->group_name, "");
  EXPECT_EQ(communicator_name_of(*options), "");
}

TEST(NcclOptionsTest, TheNameOutlivesTheOptions) {
  const char* name = interned_text("tp:device");
  EXPECT_EQ(name, interned_text(std::string("tp:") + "device"));
  EXPECT_STREQ(name, "tp:device");
}

TEST(NcclOptionsTest, TheCallersOptionsAreKeptAndNotChanged) {
  BackendRequest request = request_for("tp");
  const auto given = c10d::ProcessGroupNCCL::Options::create(true);
  request.options = given;
  const auto options = make_nccl_options(request, true);
  EXPECT_TRUE(options->is_high_priority_stream);
  EXPECT_EQ(options->group_name, "tp:device@0_1.g0");
  EXPECT_EQ(given->group_name, "");
}

TEST(NcclOptionsTest, OptionsOfAnotherBackendAreRefused) {
  BackendRequest request = request_for("tp");
  request.options = c10d::ProcessGroupGloo::Options::create();
  EXPECT_THROW(make_nccl_options(request, true), ConfigError);
}

}  // namespace
}  // namespace dbg::distributed
