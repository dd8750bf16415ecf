// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What the protocol does when the sides are not where they should be: skipped calls, other steps, absent and unlike
// peers, hostile payloads, closing; and the log of a whole graft.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <future>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

#include "base/formatted.h"
#include "dbg/group_coordinator.h"
#include "dbg/world.h"
#include "distributed/group_half.h"
#include "graft/filled.h"
#include "graft/graft_facts.h"
#include "graft/sides.h"
#include "support/log_capture.h"

namespace dbg {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using test::filled;
using test::graft_config;
using test::run_sides;
using test::SideRank;
using testing::ElementsAre;
using testing::HasSubstr;

class GraftProtocolTest : public testing::Test {
 protected:
  /// Both sides do the fact of that name.
  static void run(const char* name) {
    run_sides(test::config_of(test::graft_fact(name), false), test::graft_fact(name).body);
  }

  test::LogCapture log_;
};

TEST_F(GraftProtocolTest, Fact12ASkippedCallIsNoticedNamedAndMadeGoodByTheNextStep) {
  run("skipped_call");
  EXPECT_GE(log_.count("graft ranks 0, 1 at 'xb' b2t of step 0; graft rank 2 at 'xc' b2t of step 0"), 3u);
  EXPECT_GE(log_.count("waiting for the ranks of an earlier step"), 1u);
}

TEST_F(GraftProtocolTest, Fact12ACallLeftOutAtTheEndOfAStepIsMadeGoodAtOnce) {
  run("skipped_last_call");
}

TEST_F(GraftProtocolTest, Fact12EqualNamesAreToldApartByTheirTags) {
  run("told_apart_by_tags");
  EXPECT_GE(log_.count("graft rank 0 at 'x' layer_id=2 (number 3 of that name) b2t of step 0; graft rank 1 at 'x' "
                       "layer_id=3 (number 3 of that name) b2t of step 0"),
            2u);
}

TEST_F(GraftProtocolTest, ATensorOfMoreDimensionsThanAHeaderHoldsIsNotSent) {
  run_sides(graft_config(1, 1), [](SideRank& side) {
    for (const std::size_t dims : {std::size_t{65}, std::size_t{200}}) {
      const at::Tensor tensor = at::full({1}, side.is_baseline ? 1.0 : 2.0);
      side.dumper.dump("x", side.is_baseline ? tensor.view(std::vector<std::int64_t>(dims, 1)) : tensor);
      if (!side.is_baseline) {
        EXPECT_EQ(tensor.item<double>(), 2.0);
      }
      EXPECT_EQ(side.grafter.state().phase, GraftPhase::grafting);
    }
    EXPECT_EQ(side.counters().empty, 2u);
    const at::Tensor next = filled(side.is_baseline ? 3 : -1);
    side.dumper.dump("x", next);
    EXPECT_TRUE(at::equal(next, filled(3)));
  });
  EXPECT_GE(log_.count("it has 65 dimensions, of at most 64"), 1u);
}

TEST_F(GraftProtocolTest, Fact12EqualNamesAreToldApartByTheirNumber) {
  run("told_apart_by_number");
}

// The side whose filters both match takes no part; the other is told when the calls no longer agree.
TEST_F(GraftProtocolTest, Fact8BothFiltersMatchingOnOneSideAloneIsNoticed) {
  run_sides(
      graft_config(1, 1),
      [](SideRank& side) {
        const at::Tensor both = filled(side.is_baseline ? 1 : -1);
        side.dumper.dump("x_both", both);
        side.dumper.dump("x", filled(2));
        side.dumper.step();
        const at::Tensor next = filled(side.is_baseline ? 3 : -1);
        side.dumper.dump("x", next);
        EXPECT_TRUE(at::equal(next, filled(3)));
        EXPECT_TRUE(at::equal(both, filled(side.is_baseline ? 1 : -1)));
        EXPECT_EQ(side.counters().ambiguous, side.is_baseline ? 1u : 0u);
        EXPECT_GE(side.counters().out_of_step, 1u);
      },
      [](GraftConfig& config) {
        if (config.role == GraftRole::baseline) config.t2b_filter = "name == 'x_both'";
      });
  EXPECT_GE(log_.count("graft rank 0 at 'x' b2t of step 0; graft rank 1 at 'x_both' b2t of step 0"), 1u);
}

std::vector<std::string> without_prefix(const std::vector<test::LogCapture::Line>& lines) {
  std::vector<std::string> texts;
  for (const auto& line : lines) {
    if (line.text.find("[Grafter,") == std::string::npos) continue;
    texts.push_back(line.text.substr(line.text.find("] ") + 2));
  }
  return texts;
}

TEST_F(GraftProtocolTest, Fact18TheLogOfAGraft) {
  GraftConfig config = graft_config(1, 1);
  run_sides(config, [](SideRank& side) {
    const at::Tensor tensor = side.is_baseline ? at::tensor({1.0f, 2.0f}) : at::tensor({1.0f, 4.0f});
    c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
    dict.insert("scale", 0.5);
    const c10::IValue extras(dict);
    DumpOptions options;
    options.grafter_extras = &extras;
    side.dumper.dump("x", tensor, {{"layer_id", 3}}, options);
  });
  std::vector<std::string> sent;
  std::vector<std::string> received;
  for (const std::string& text : without_prefix(log_.lines())) {
    if (text.starts_with("send ")) sent.push_back(text);
    if (text.starts_with("recv ")) received.push_back(text);
  }
  EXPECT_THAT(sent, ElementsAre("send role=baseline dir=b2t tags={name=x, recompute_status=disabled, layer_id=3} "
                                "extras={'scale': 0.5} tensor={float32[2] cpu min=1 max=2 mean=1.5 abs_max=2 nan=0 "
                                "inf=0 zero=0 [1, 2]}"));
  EXPECT_THAT(received,
              ElementsAre("recv role=target dir=b2t tags={name=x, recompute_status=disabled, layer_id=3} n_senders=1 "
                          "sender_extras=[{'scale': 0.5}] before={float32[2] cpu min=1 max=4 mean=2.5 abs_max=4 nan=0 "
                          "inf=0 zero=0 [1, 4]} to_override={float32[2] cpu min=1 max=2 mean=1.5 abs_max=2 nan=0 "
                          "inf=0 zero=0 [1, 2]} difference={rel_diff=0.181818 max_abs=2 mean_abs=1}"));
  EXPECT_EQ(log_.count("met all 2 ranks as graft rank 1; the wire is dbg's own"), 1u);
}

// A participant alone, and what became of its dump.
GraftState state_after_waiting_alone(GraftConfig config, GraftRole role) {
  config.role = role;
  Grafter grafter(config);
  const ParticipantScope bound(std::make_shared<const Participant>(0, 1));
  const Tags tags{{"name", "x"}};
  const at::Tensor tensor = filled(1);
  const c10::IValue value(tensor);
  const auto began = steady_clock::now();
  grafter.intercept({tags, value, nullptr, 0});
  EXPECT_LT(steady_clock::now() - began, config.timeout + milliseconds(1500));
  EXPECT_TRUE(at::equal(tensor, filled(1)));
  const auto again = steady_clock::now();
  grafter.intercept({tags, value, nullptr, 0});
  EXPECT_LT(steady_clock::now() - again, config.timeout / 2) << "waited again";
  return grafter.state();
}

TEST_F(GraftProtocolTest, APeerThatNeverComesTurnsGraftingOffWithinTheTimeout) {
  for (const GraftRole role : {GraftRole::baseline, GraftRole::target}) {
    GraftConfig config = graft_config(1, 1);
    config.timeout = milliseconds(1200);
    const GraftState state = state_after_waiting_alone(config, role);
    EXPECT_EQ(state.phase, GraftPhase::off);
    EXPECT_EQ(state.counters.off, 2u);
    EXPECT_FALSE(state.cause.empty());
  }
  EXPECT_EQ(log_.count("GRAFTING IS OFF for the rest of this run"), 2u);
}

// A Python peer as baseline, which serves the store. Its first rank leaves NCCL's key at the first collective.
TEST_F(GraftProtocolTest, Fact21ABaselineThatUsesNcclIsNamedAtOnce) {
  GraftConfig config = graft_config(1, 1);
  config.timeout = milliseconds(2500);
  std::promise<void> is_over;
  std::thread peer([&, over = is_over.get_future()] {
    const TcpStoreAddress address{config.master_address, static_cast<std::uint16_t>(config.master_port), true};
    const World world = World::over_tcp(address, 0, 2, {milliseconds(2000)});
    world.store()->set("graft/graft//cuda//0", std::vector<std::uint8_t>{1});
    over.wait();
  });
  const GraftState state = state_after_waiting_alone(config, GraftRole::target);
  is_over.set_value();
  peer.join();
  EXPECT_THAT(state.cause, HasSubstr("the peer uses nccl: set DUMPER_GRAFTER_BACKEND=gloo there"));
  // Once, and while there is still time to do something about it.
  EXPECT_EQ(log_.count("the peer uses nccl, and this side gloo"), 1u);
}

// As target it only joins, and then waits for a key that this side never leaves: nothing in the store tells it from
// one that has not come.
TEST_F(GraftProtocolTest, Fact21ATargetThatUsesNcclIsNamedAsALikelyCause) {
  GraftConfig config = graft_config(1, 1);
  config.timeout = milliseconds(1500);
  std::promise<void> is_over;
  std::thread peer([&, over = is_over.get_future()] {
    const TcpStoreAddress address{config.master_address, static_cast<std::uint16_t>(config.master_port), false};
    const World world = World::over_tcp(address, 1, 2, {milliseconds(20000)});
    over.wait();
  });
  const GraftState state = state_after_waiting_alone(config, GraftRole::baseline);
  is_over.set_value();
  peer.join();
  EXPECT_THAT(state.cause, HasSubstr("See whether target rank 0 runs and comes to a dump that matches. If it does, and "
                                     "is Python, it uses another backend or group name: set "
                                     "DUMPER_GRAFTER_BACKEND=gloo there (the twin's default is nccl), and "
                                     "DUMPER_GRAFTER_GROUP_NAME=graft"));
}

TEST_F(GraftProtocolTest, SidesThatWereToldDifferentSizesSaySo) {
  const GraftConfig common = graft_config(1, 1);
  GraftConfig wrong = common;
  wrong.baseline_world_size = 1;
  run_sides(
      common,
      [](SideRank& side) {
        const at::Tensor tensor = filled(side.is_baseline ? 1 : 2);
        if (side.is_baseline) {
          const ParticipantScope bound(std::make_shared<const Participant>(0, 1));
          side.dumper.dump("x", tensor);
        } else {
          const ParticipantScope bound(std::make_shared<const Participant>(0, 2));
          side.dumper.dump("x", tensor);
        }
        EXPECT_EQ(side.grafter.state().phase, GraftPhase::waiting);  // of the outer participant
      },
      [](GraftConfig& config) {
        config.timeout = milliseconds(2000);
        if (config.role == GraftRole::target) config.target_world_size = 2;
      });
  EXPECT_GE(log_.count("GRAFTING IS OFF"), 2u);
  EXPECT_GE(log_.count("set the same grafter_baseline_world_size and grafter_target_world_size on both sides"), 1u);
}

// A peer on the raw wire of the twin, as target, that announces and sends what it is told.
void run_raw_sender(const GraftConfig& config, const std::function<void(c10d::Backend&)>& body) {
  const World world = World::over_tcp({config.master_address, static_cast<std::uint16_t>(config.master_port), false}, 1,
                                      2, {milliseconds(20000)});
  GroupOptions options;
  options.group_name = "raw";
  options.timeout = milliseconds(20000);
  const auto group = GroupCoordinator::join_python(world, {PythonGroup::Kind::custom, config.group_name, {}}, options);
  body(*distributed::cpu_half_of(*group).backend);
}

// Returns what both ranks gave.
std::vector<at::Tensor> raw_gather(c10d::Backend& backend, const at::Tensor& own, std::int64_t longest) {
  std::vector<at::Tensor> input{own};
  std::vector<std::vector<at::Tensor>> output{
      {at::empty({longest}, own.options()), at::empty({longest}, own.options())}};
  backend.allgather(output, input)->wait();
  return output.front();
}

// What the other rank gives, as the twin's receiver gathers it.
std::string raw_receive(c10d::Backend& backend) {
  const std::string none("\x80\x04N.", 4);
  const auto size = raw_gather(backend, at::full({1}, 4, at::kLong), 1).front().item<std::int64_t>();
  const std::int64_t longest = std::max<std::int64_t>(size, 4);
  const at::Tensor own = at::zeros({longest}, at::kByte);
  std::memcpy(own.mutable_data_ptr(), none.data(), none.size());
  const at::Tensor got = raw_gather(backend, own, longest).front();
  return std::string(static_cast<const char*>(got.const_data_ptr()), static_cast<std::size_t>(size));
}

// Sends `payload` as the twin would. The receiver's own payload is None, 4 bytes.
void raw_send(c10d::Backend& backend, const std::string& payload) {
  const auto size = static_cast<std::int64_t>(payload.size());
  raw_gather(backend, at::full({1}, size, at::kLong), 1);
  const std::int64_t longest = std::max<std::int64_t>(size, 4);
  const at::Tensor bytes = at::zeros({longest}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), payload.data(), payload.size());
  raw_gather(backend, bytes, longest);
}

TEST_F(GraftProtocolTest, Fact16AHostilePayloadIsRefusedAndTheRunGoesOn) {
  GraftConfig config = graft_config(1, 1);
  config.role = GraftRole::baseline;
  const std::vector<std::string> payloads = {
      "",
      "garbage",
      std::string("\x80\x04N.", 4),                                             // None from a sender
      std::string("\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x02ls\x85R.", 22),  // os.system
      std::string("\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x02ls\x85RN\x86.", 24),
      std::string("\x80\x04K\x01N\x86.", 7),  // (1, None)
      std::string("\x80\x04(((((((((((((", 15),
  };
  std::thread peer([&] {
    run_raw_sender(config, [&](c10d::Backend& backend) {
      for (const std::string& payload : payloads) raw_send(backend, payload);
    });
  });
  Grafter grafter(config);
  const ParticipantScope bound(std::make_shared<const Participant>(0, 1));
  const Tags tags{{"name", "y"}};
  const at::Tensor tensor = filled(1);
  const c10::IValue value(tensor);
  for (std::size_t i = 0; i < payloads.size(); ++i) grafter.intercept({tags, value, nullptr, 0});
  peer.join();
  EXPECT_TRUE(at::equal(tensor, filled(1)));
  EXPECT_EQ(grafter.state().counters.refused, payloads.size());
  EXPECT_EQ(grafter.state().phase, GraftPhase::grafting);
  EXPECT_GE(log_.count("os.system"), 1u);
}

// A length that is refused ends the group, and with it the run of a twin that is inside its gather.
TEST_F(GraftProtocolTest, ASenderAboveItsOwnLimitGivesNothingAndKeepsThePeer) {
  GraftConfig config = graft_config(1, 1);
  config.role = GraftRole::baseline;
  config.max_bytes = 16384;
  std::vector<std::string> got;
  std::thread peer([&] {
    run_raw_sender(config, [&](c10d::Backend& backend) {
      got.push_back(raw_receive(backend));
      got.push_back(raw_receive(backend));
    });
  });
  Grafter grafter(config);
  const ParticipantScope bound(std::make_shared<const Participant>(0, 1));
  const Tags tags{{"name", "x"}};
  for (const std::int64_t size : {std::int64_t{1} << 16, std::int64_t{2}}) {
    const c10::IValue value(at::ones({size}));
    grafter.intercept({tags, value, nullptr, 0});
  }
  peer.join();
  ASSERT_EQ(got.size(), 2u);
  EXPECT_EQ(got[0], std::string("\x80\x04NN\x86.", 6));
  EXPECT_GT(got[1].size(), 6u);
  EXPECT_EQ(grafter.state().phase, GraftPhase::grafting);
  EXPECT_EQ(grafter.state().counters.empty, 1u);
  EXPECT_EQ(grafter.state().counters.sent, 1u);
}

// Each rank holds every payload padded to the longest.
TEST_F(GraftProtocolTest, WhatAllPayloadsTakeTogetherIsBounded) {
  GraftConfig config = graft_config(5, 1);
  config.plain_wire = true;
  config.transform = "select:0";
  config.max_bytes = 30000;
  run_sides(config, [](SideRank& side) {
    const at::Tensor large = at::full({6000}, side.is_baseline ? 1.0f : -1.0f);
    side.dumper.dump("x", large);
    const at::Tensor small = filled(side.is_baseline ? 2 : -1);
    side.dumper.dump("x", small);
    EXPECT_EQ(side.counters().empty, 1u);
    if (!side.is_baseline) {
      EXPECT_EQ(large[0].item<float>(), -1.0f);
      EXPECT_TRUE(at::equal(small, filled(2)));
    }
  });
  EXPECT_GE(log_.count("of at most 20000 (grafter_max_mib)"), 5u);
}

TEST_F(GraftProtocolTest, Fact16ALengthThatIsNotBelievedAllocatesNothingAndTurnsGraftingOff) {
  for (const std::int64_t length : {std::int64_t{1} << 62, std::int64_t{-1}, (std::int64_t{4} << 30) + 1}) {
    GraftConfig config = graft_config(1, 1);
    config.role = GraftRole::baseline;
    std::thread peer([&] {
      run_raw_sender(config, [&](c10d::Backend& backend) { raw_gather(backend, at::full({1}, length, at::kLong), 1); });
    });
    Grafter grafter(config);
    const ParticipantScope bound(std::make_shared<const Participant>(0, 1));
    const Tags tags{{"name", "y"}};
    const at::Tensor tensor = filled(1);
    const c10::IValue value(tensor);
    grafter.intercept({tags, value, nullptr, 0});
    peer.join();
    EXPECT_TRUE(at::equal(tensor, filled(1)));
    const GraftState state = grafter.state();
    EXPECT_EQ(state.phase, GraftPhase::off);
    EXPECT_THAT(state.cause, HasSubstr(formatted("announces an object of {} bytes", length)));
    EXPECT_THAT(state.cause, HasSubstr("raise grafter_max_mib on all ranks"));
  }
}

// On Python's wire too: a length that some rank refuses would end the group.
TEST_F(GraftProtocolTest, AValueAboveTheLimitOfOneRankIsSkippedByAll) {
  for (const bool plain : {false, true}) {
    GraftConfig common = graft_config(1, 1);
    common.plain_wire = plain;
    run_sides(
        common,
        [](SideRank& side) {
          const at::Tensor large = side.is_baseline ? at::ones({8192}) : at::zeros({8192});
          side.dumper.dump("x", large);
          if (!side.is_baseline) {
            EXPECT_TRUE(at::equal(large, at::zeros({8192})));
          }
          const at::Tensor small = filled(side.is_baseline ? 1 : -1);
          side.dumper.dump("x", small);
          EXPECT_TRUE(at::equal(small, filled(1)));
          EXPECT_EQ(side.counters().empty + side.counters().refused, 1u);
        },
        [](GraftConfig& config) {
          if (config.role == GraftRole::target) config.max_bytes = 16384;
        });
  }
  EXPECT_GE(log_.count("all ranks take at most 16384"), 1u);
  EXPECT_GE(log_.count("bytes, of at most 16384 (grafter_max_mib)"), 1u);
}

TEST_F(GraftProtocolTest, ADumperThatIsOffOrFiltersTheNameDoesNotGraft) {
  run_sides(graft_config(1, 1), [](SideRank& side) {
    side.dumper.dump("x", filled(1));
    // One configure for both threads of a side would do; here a side is one thread.
    side.dumper.configure({"filter=name == 'other'"});
    const at::Tensor tensor = filled(side.is_baseline ? 1 : -1);
    side.dumper.dump("x", tensor);
    side.dumper.configure({"filter=", "enable=false"});
    side.dumper.dump("x", tensor);
    EXPECT_TRUE(at::equal(tensor, filled(side.is_baseline ? 1 : -1)));
    EXPECT_EQ(side.counters().sent + side.counters().grafted, 1u);
  });
}

}  // namespace
}  // namespace dbg
