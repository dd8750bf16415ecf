// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A Dumper's `grafter_*` knobs while it runs: what they make, and what happens when they can't be followed.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "dbg/error.h"
#include "dbg/grafter.h"
#include "dbg/runtime.h"
#include "support/log_capture.h"
#include "support/temp_folder.h"

namespace dbg {
namespace {

at::Tensor filled(double value) {
  return at::full({2, 2}, value, at::kFloat);
}

class GraftByKnobsTest : public testing::Test {
 protected:
  // With one record: `x`, all ones. Role `file` needs no other side.
  GraftByKnobsTest() {
    DumperConfig config;
    config.enable = true;
    config.dir = folder_.path().string();
    config.exp_name = "exp";
    config.enable_output_console = false;
    Dumper dumper(config);
    dumper.dump("x", filled(1));
  }

  DumperConfig quiet(const std::vector<std::string>& overrides = {}) const {
    DumperConfig config;
    config.enable = true;
    config.enable_output_file = false;
    config.enable_output_console = false;
    return config.with_overrides(overrides);
  }

  std::vector<std::string> graft_from(const std::string& folder) const {
    return {"grafter_enable=1", "grafter_role=file", "grafter_folder=" + folder, "grafter_b2t_filter=name == 'x'"};
  }
  std::vector<std::string> graft_from_here() const { return graft_from(folder_.path().string()); }
  std::vector<std::string> graft_from_nowhere() const { return graft_from((folder_ / "nowhere").string()); }

  test::TempFolder folder_;
  test::LogCapture log_;
};

float grafted_into(Dumper& dumper) {
  const at::Tensor tensor = filled(-1);
  dumper.dump("x", tensor);
  return tensor[0][0].item<float>();
}

TEST_F(GraftByKnobsTest, AKnobSwitchesItOnAndOffWhileTheRunGoesOn) {
  Dumper dumper(quiet());
  graft_by_knobs(dumper);
  EXPECT_EQ(grafted_into(dumper), -1);
  EXPECT_EQ(grafter_of(dumper), nullptr);
  dumper.configure(graft_from_here());
  EXPECT_EQ(grafted_into(dumper), 1);
  const auto grafter = grafter_of(dumper);
  ASSERT_NE(grafter, nullptr);
  EXPECT_EQ(grafter->state().counters.grafted, 1u);
  dumper.configure({"enable_grad=1"});  // none of its knobs
  EXPECT_EQ(grafter_of(dumper), grafter);
  dumper.configure({"grafter_transform=cast"});
  EXPECT_NE(grafter_of(dumper), grafter);
  EXPECT_EQ(log_.count("all 1 records"), 1u);  // the old one was closed
  EXPECT_EQ(grafted_into(dumper), 1);
  dumper.configure({"grafter_enable=0"});
  EXPECT_EQ(grafted_into(dumper), -1);
  EXPECT_EQ(grafter_of(dumper), nullptr);
}

TEST_F(GraftByKnobsTest, KnobsThatCantBeFollowedChangeNothing) {
  Dumper dumper(quiet());
  graft_by_knobs(dumper);
  dumper.configure(graft_from_here());
  const auto grafter = grafter_of(dumper);
  const DumperConfig before = dumper.state().config;
  for (const std::string& wrong :
       {"grafter_folder=" + (folder_ / "nowhere").string(), std::string("grafter_transform=select:many"),
        std::string("grafter_transform=selct:0"), std::string("grafter_role=target")}) {
    EXPECT_THROW(dumper.configure({"filter=name == 'y'", wrong}), Error) << wrong;
    EXPECT_EQ(dumper.state().config, before) << wrong;
    EXPECT_EQ(grafter_of(dumper), grafter) << wrong;
  }
  EXPECT_EQ(grafted_into(dumper), 1);
}

TEST_F(GraftByKnobsTest, KnobsThatWereWrongFromTheStartDoNotRefuseOtherChanges) {
  Dumper dumper(quiet(graft_from_nowhere()));
  EXPECT_THROW(graft_by_knobs(dumper), IoError);
  dumper.configure({"enable_grad=1"});
  EXPECT_TRUE(dumper.state().config.enable_grad);
  EXPECT_EQ(log_.count("GRAFTING IS STILL OFF"), 1u);
  EXPECT_EQ(grafted_into(dumper), -1);
  dumper.configure(graft_from_here());
  EXPECT_EQ(grafted_into(dumper), 1);
  EXPECT_THROW(dumper.configure(graft_from_nowhere()), IoError);  // these are new, and the caller's
}

TEST_F(GraftByKnobsTest, AnInterceptorSetByHandStaysUntilAKnobAsksForAnother) {
  Dumper dumper(quiet({"grafter_role=file"}));
  int seen = 0;
  dumper.set_interceptor([&](const Interception&) { ++seen; });
  graft_by_knobs(dumper);
  EXPECT_EQ(grafted_into(dumper), -1);
  EXPECT_EQ(seen, 1);
  dumper.configure({"strict=1", "grafter_timeout=7"});  // none of which asks for a Grafter
  EXPECT_EQ(grafted_into(dumper), -1);
  EXPECT_EQ(seen, 2);
  dumper.configure(graft_from_here());
  EXPECT_EQ(grafted_into(dumper), 1);
  EXPECT_EQ(seen, 2);
}

// Ranks as threads share the Dumper, and each may be the one that switches grafting on.
TEST_F(GraftByKnobsTest, ThreadsThatConfigureTheSameShareOneGrafter) {
  Dumper dumper(quiet());
  graft_by_knobs(dumper);
  std::vector<std::shared_ptr<Grafter>> seen(4);
  std::vector<std::thread> threads;
  for (auto& one : seen) {
    threads.emplace_back([&] {
      dumper.configure(graft_from_here());
      one = grafter_of(dumper);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& one : seen) EXPECT_EQ(one, grafter_of(dumper));
  EXPECT_EQ(log_.count("takes values from the 1 records"), 1u);
}

}  // namespace
}  // namespace dbg
