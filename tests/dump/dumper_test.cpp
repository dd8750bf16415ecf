// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
#include "dbg/dumper.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

namespace dbg {
namespace {

DumperConfig config_in(const std::string& dir) {
  DumperConfig config;
  config.enable = true;
  config.dir = dir;
  config.exp_name = "e";
  return config;
}

TEST(DumperTest, WritesOneRecordACall) {
  const std::string dir = testing::TempDir() + "dumper_test_" + std::to_string(::getpid());
  Dumper dumper(config_in(dir));
  const at::Tensor x = at::arange(6).view({2, 3});
  dumper.dump("x", x, {{"layer_id", 3}, {"phase", "prefill"}});
  dumper.step();
  dumper.dump("y", [&] { return x * 2; });
  dumper.dump("z", 3.5);
  dumper.dump_dict("d", std::map<std::string, at::Tensor>{{"a", x}});
  const auto records = list_records(dir + "/e");
  ASSERT_EQ(records.size(), 4u);
  EXPECT_EQ(
      records[0],
      dir + "/e/step=0___rank=0___dump_index=1___name=x___recompute_status=disabled___layer_id=3___phase=prefill.pt");
  EXPECT_EQ(dumper.state().counters.written, 4u);
  EXPECT_EQ(dumper.state().counters.failed, 0u);
  if (std::getenv("KEEP") == nullptr) std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace dbg
