// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// NCCL where it can't be had: a clear error, and gloo in its place for `auto`.
#include <ATen/Context.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "dbg/backend_factory.h"
#include "distributed/backends.h"
#include "distributed/groups.h"
#include "distributed/nccl_backend.h"

namespace dbg {
namespace {

TEST(NcclBackendTest, WithoutAGpuIsAConfigError) {
  if (at::hasCUDA()) GTEST_SKIP() << "there is a GPU";
  GroupOptions options = test::gloo_pair("tp");
  for (const std::string name : {"nccl", "nccl2", "nccl-legacy"}) {
    options.device_backend = name;
    EXPECT_THAT(
        test::complaint_of(World::for_threads(1).front(), {{0}}, options),
        testing::MatchesRegex(".*backend " + name + " was asked for.*(no GPU is visible|built without NCCL).*"));
  }
  options.device_backend = "auto";
  EXPECT_EQ(GroupCoordinator::create(World::for_threads(1).front(), {{0}}, options)->device_backend(), "gloo");
}

TEST(NcclBackendTest, SaysWhyThereIsNone) {
  if (at::hasCUDA()) GTEST_SKIP() << "there is a GPU";
  EXPECT_THAT(distributed::why_no_nccl(),
              testing::AnyOf(testing::HasSubstr("no GPU is visible"), testing::HasSubstr("built without NCCL")));
}

TEST(NcclBackendTest, EachNameOfItIsTakenAndNoneIsTheCpuHalfs) {
  for (const std::string name : {"nccl", "nccl2", "nccl-legacy"}) {
    EXPECT_TRUE(distributed::is_nccl(name));
    GroupOptions options = test::gloo_pair("tp");
    options.cpu_backend = name;
    EXPECT_THAT(test::complaint_of(World::for_threads(1).front(), {{0}}, options),
                testing::HasSubstr("nccl can't be the cpu backend"));
    EXPECT_THROW(register_backend(name, [](const BackendRequest&) { return c10::intrusive_ptr<c10d::Backend>(); }),
                 ConfigError);
  }
  EXPECT_FALSE(distributed::is_nccl("gloo"));
}

}  // namespace
}  // namespace dbg
