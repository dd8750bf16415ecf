// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// NCCL where it can't be had: a clear error, and gloo in its place for `auto`.
#include <ATen/Context.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "distributed/groups.h"
#include "distributed/nccl_backend.h"

namespace dbg {
namespace {

TEST(NcclBackendTest, WithoutAGpuIsAConfigError) {
  if (at::hasCUDA()) GTEST_SKIP() << "there is a GPU";
  GroupOptions options = test::gloo_pair("tp");
  options.device_backend = "nccl";
  EXPECT_THAT(test::complaint_of(World::for_threads(1).front(), {{0}}, options),
              testing::MatchesRegex(".*nccl was asked for.*(no GPU is visible|built without NCCL).*"));
  options.device_backend = "auto";
  EXPECT_EQ(GroupCoordinator::create(World::for_threads(1).front(), {{0}}, options)->device_backend(), "gloo");
}

TEST(NcclBackendTest, SaysWhyThereIsNone) {
  if (at::hasCUDA()) GTEST_SKIP() << "there is a GPU";
  EXPECT_THAT(distributed::why_no_nccl(),
              testing::AnyOf(testing::HasSubstr("no GPU is visible"), testing::HasSubstr("built without NCCL")));
}

}  // namespace
}  // namespace dbg
