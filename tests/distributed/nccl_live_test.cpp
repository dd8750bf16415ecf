// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A live communicator says its name to NCCL's own tools. Needs a GPU: nothing here runs without one.
#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "dbg/group_coordinator.h"
#include "distributed/nccl_options.h"

namespace dbg {
namespace {

const std::filesystem::path& names_file() {
  static const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("dbg_nccl_names." + std::to_string(::getpid()));
  return path;
}

// Before anything has asked NCCL for a communicator: it reads its environment once.
[[maybe_unused]] const bool plugin_is_named = [] {
  const char* carried = std::getenv("DBG_TEST_NCCL_PLUGIN");  // where it is not where it was built
  ::setenv("NCCL_PROFILER_PLUGIN", carried != nullptr ? carried : DBG_TEST_NCCL_PLUGIN, 1);
  ::setenv("DBG_TEST_NCCL_NAMES", names_file().c_str(), 1);
  return true;
}();

class NcclLiveTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!at::hasCUDA()) GTEST_SKIP() << "there is no GPU";
    if (!distributed::nccl_names_communicators()) GTEST_SKIP() << "this NCCL has no names of communicators";
    std::filesystem::remove(names_file());
  }
  void TearDown() override { std::filesystem::remove(names_file()); }

  // Makes a group of this rank alone, has it reduce, and returns what the plugin heard.
  static std::string heard_of(const std::string& name, bool with_labels) {
    GroupOptions options;
    options.group_name = name;
    options.device_backend = "nccl";
    options.timeout = std::chrono::milliseconds(60000);
    options.with_labels = with_labels;
    const auto group = GroupCoordinator::create(World::for_threads(1).front(), {{0}}, options);
    EXPECT_EQ(group->device_backend(), "nccl");
    const at::Tensor sum = at::full({4}, 3.0, at::TensorOptions().device(at::kCUDA));
    group->all_reduce(sum);
    EXPECT_EQ(sum.sum().item<double>(), 12.0);
    std::ifstream file(names_file());
    return {std::istreambuf_iterator<char>(file), {}};
  }
};

TEST_F(NcclLiveTest, TheCommunicatorHasTheLabel) {
  EXPECT_EQ(heard_of("tp", true), "tp:device 0 1\n");
}

TEST_F(NcclLiveTest, WithLabelsOffItHasNone) {
  EXPECT_THAT(heard_of("tp", false),
              testing::AllOf(testing::HasSubstr(" 0 1\n"), testing::Not(testing::HasSubstr("tp:device"))));
}

TEST_F(NcclLiveTest, EachGroupHasItsOwn) {
  heard_of("tp", true);
  EXPECT_EQ(heard_of("pp", true), "tp:device 0 1\npp:device 0 1\n");
}

}  // namespace
}  // namespace dbg
