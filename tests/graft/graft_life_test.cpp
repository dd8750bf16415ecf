// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A Grafter beside the run that it hangs on: its threads and participants, foreign code that throws or waits, strict
// mode, the log, closing, meeting twice. On both wires.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <latch>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "dbg/error.h"
#include "dbg/group_coordinator.h"
#include "dbg/log.h"
#include "dbg/world.h"
#include "graft/filled.h"
#include "graft/hello.h"
#include "graft/sides.h"
#include "support/log_capture.h"

namespace dbg {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using test::filled;
using test::run_sides;
using test::ScopedTransform;
using test::SideRank;
using testing::HasSubstr;

class GraftLifeTest : public test::BothWiresTest {};

INSTANTIATE_TEST_SUITE_P(Wires, GraftLifeTest, testing::Bool(),
                         [](const auto& wire) { return wire.param ? "Python" : "Framed"; });

TEST_P(GraftLifeTest, APluginThatThrowsUnderStrictDoesSoAfterThisRanksPart) {
  GraftConfig strict = config(1, 1);
  strict.strict = true;
  run_sides(strict, [](SideRank& side) {
    const at::Tensor tensor = filled(side.is_baseline ? 1 : -1);
    const Tags tags{{"name", "x"}};
    const c10::IValue value(tensor);
    Interception interception{tags, value, nullptr, 0};
    interception.parallel_state = []() -> ParallelState { throw std::runtime_error("no such axis"); };
    EXPECT_THROW(side.grafter.intercept(interception), Error);
    EXPECT_TRUE(at::equal(tensor, filled(1)));
    const at::Tensor next = filled(side.is_baseline ? 2 : -1);
    side.dumper.dump("x", next);
    EXPECT_TRUE(at::equal(next, filled(2)));
  });
  EXPECT_EQ(log_.count("this rank's place is not known: no such axis"), 2u);
}

// The transform is foreign code: others of its participant's threads may graft meanwhile, and it may wait for them.
TEST_P(GraftLifeTest, ATransformMayWaitForAnotherThreadThatGrafts) {
  std::function<void()> graft_another;
  const ScopedTransform waiting("waiting", [&](const GraftInput& input) {
    if (input.tags.find("outer") != nullptr) {
      const auto self = current_participant();
      auto other = std::async(std::launch::async, [&] {
        const ParticipantScope bound(self);
        graft_another();
      });
      if (other.wait_for(std::chrono::seconds(20)) != std::future_status::ready) throw std::runtime_error("waits");
    }
    return input.received.front();
  });
  run_sides(config(1, 1, "waiting"), [&](SideRank& side) {
    const auto graft = [&side](double value, const Tags& tags) {
      const at::Tensor tensor = filled(side.is_baseline ? value : -1);
      const c10::IValue dumped(tensor);
      side.grafter.intercept({tags, dumped, nullptr, 0});
      EXPECT_TRUE(at::equal(tensor, filled(value))) << tensor;
    };
    if (!side.is_baseline) graft_another = [&] { graft(2, Tags{{"name", "x_inner"}}); };
    graft(1, Tags{{"name", "x"}, {"outer", true}});
    if (side.is_baseline) graft(2, Tags{{"name", "x_inner"}});
    EXPECT_EQ(side.counters().off, 0u);
  });
}

TEST_P(GraftLifeTest, ATransformMayCloseItsGrafter) {
  Grafter* target = nullptr;
  const ScopedTransform closing("closing", [&](const GraftInput& input) {
    const auto began = std::chrono::steady_clock::now();
    target->close();
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(4));
    return input.received.front();
  });
  run_sides(config(1, 1, "closing"), [&](SideRank& side) {
    if (!side.is_baseline) target = &side.grafter;
    const at::Tensor tensor = filled(side.is_baseline ? 1 : -1);
    side.dumper.dump("x", tensor);
    EXPECT_TRUE(at::equal(tensor, filled(1)));
    if (!side.is_baseline) {
      EXPECT_EQ(side.grafter.state().phase, GraftPhase::off);
    }
  });
}

TEST_P(GraftLifeTest, AFaultThatComesBackIsSaidAtALimitedRate) {
  const ScopedTransform faulty("faulty", [](const GraftInput&) -> at::Tensor { throw std::runtime_error("as ever"); });
  run_sides(config(1, 1, "faulty"), [](SideRank& side) {
    for (int i = 0; i < 20; ++i) {
      side.dumper.dump("x", filled(1), {{"layer_id", i}});
      side.dumper.dump("x_other", filled(1));
    }
    EXPECT_EQ(side.is_baseline ? side.counters().sent : side.counters().failed, 40u);
  });
  EXPECT_EQ(log_.count("as ever"), 6u);  // 1, 2, 4, 8, 16, 32
  EXPECT_EQ(log_.count("as ever (32 times by now)"), 1u);
}

TEST_P(GraftLifeTest, WhileOffNobodysPluginsAreAsked) {
  run_sides(config(1, 1), [](SideRank& side) {
    side.dumper.dump("x", filled(1));
    int asked = 0;
    const Tags tags{{"name", "x"}};
    const c10::IValue value(filled(1));
    Interception interception{tags, value, nullptr, 0};
    interception.parallel_state = [&] {
      ++asked;
      return ParallelState();
    };
    const ParticipantScope wrong(std::make_shared<const Participant>(3, 4));  // of a world of another size: off
    side.grafter.intercept(interception);
    const int before = asked;
    side.grafter.intercept(interception);
    EXPECT_EQ(asked, before);
    EXPECT_EQ(side.counters().off, 2u);
  });
}

TEST_P(GraftLifeTest, ParticipantsAreNotKeptAndTheirSuccessorsAreRefusedAtOnce) {
  std::latch first_is_over(2);
  run_sides(config(1, 1), [&](SideRank& side) {
    std::weak_ptr<const Participant> first;
    for (int i = 0; i < 3; ++i) {
      const auto participant = std::make_shared<const Participant>(0, 1);
      if (i == 0) first = participant;
      const ParticipantScope bound(participant);
      const auto began = std::chrono::steady_clock::now();
      const at::Tensor tensor = filled(side.is_baseline ? 1 : -1);
      side.dumper.dump("x", tensor);
      EXPECT_TRUE(at::equal(tensor, filled(side.is_baseline || i == 0 ? 1 : -1)));
      if (i == 0) first_is_over.arrive_and_wait();  // before one of them leaves
      if (i == 0) continue;
      EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
      EXPECT_THAT(side.grafter.state().cause, HasSubstr("another Participant object has grafted as rank 0"));
    }
    EXPECT_TRUE(first.expired());
  });
}

TEST_P(GraftLifeTest, AnExceptionOfTheTwinsKindNeverReachesTheModelUnlessStrict) {
  GraftConfig strict = config(1, 1);
  strict.strict = true;
  run_sides(strict, [](SideRank& side) {
    const at::Tensor wrong = side.is_baseline ? at::ones({3}) : at::zeros({2});
    const Tags tags{{"name", "x"}};
    const c10::IValue value(wrong);
    const Interception interception{tags, value, nullptr, 0};
    if (side.is_baseline) {
      EXPECT_NO_THROW(side.grafter.intercept(interception));
    } else {
      EXPECT_THROW(side.grafter.intercept(interception), Error);
    }
    const at::Tensor right = filled(side.is_baseline ? 4 : -1);
    side.dumper.dump("x", right);
    EXPECT_TRUE(at::equal(right, filled(4)));  // the protocol's step was complete
  });
}

TEST_P(GraftLifeTest, ClosingEndsACallThatWaits) {
  GraftConfig told = config(1, 1);
  run_sides(told, [&](SideRank& side) {
    side.dumper.dump("x", filled(1));
    if (side.is_baseline) {
      const auto began = steady_clock::now();
      std::thread closer([&] { side.grafter.close(); });
      side.dumper.dump("x", filled(1));  // the target never comes
      closer.join();
      EXPECT_LT(steady_clock::now() - began, std::chrono::seconds(10));
    }
  });
}

TEST_P(GraftLifeTest, ClosingEndsACallThatMeets) {
  for (const GraftRole role : {GraftRole::baseline, GraftRole::target}) {
    GraftConfig told = config(1, 1);
    told.role = role;
    told.timeout = std::chrono::seconds(60);
    Grafter grafter(told);
    std::promise<GraftState> is_over;
    auto over = is_over.get_future();
    std::thread dumping([&] {
      const ParticipantScope bound(std::make_shared<const Participant>(0, 1));
      const Tags tags{{"name", "x"}};
      const c10::IValue value(filled(1));
      grafter.intercept({tags, value, nullptr, 0});
      is_over.set_value(grafter.state());
    });
    const std::string joins = std::string("joins: role=") + to_text(role);
    const auto deadline = steady_clock::now() + std::chrono::seconds(20);
    while (log_.count(joins) == 0 && steady_clock::now() < deadline) std::this_thread::yield();
    const auto began = steady_clock::now();
    grafter.close();
    ASSERT_EQ(over.wait_for(std::chrono::seconds(4)), std::future_status::ready) << to_text(role);
    EXPECT_LT(steady_clock::now() - began, std::chrono::seconds(4));
    const GraftState state = over.get();
    EXPECT_EQ(state.phase, GraftPhase::off);
    EXPECT_EQ(state.cause, "it was closed");
    EXPECT_EQ(state.counters.off, 1u);
    dumping.join();
  }
}

// As by a resolver that does not answer.
TEST(GraftMeetingTest, AMeetingThatIsHeldUpHoldsUpNobodyPastTheTimeout) {
  std::promise<void> go_on;
  const std::shared_future<void> may_go_on = go_on.get_future().share();
  set_log_handler([may_go_on](LogLevel, std::string_view line) {
    if (line.find("joins: ") != std::string_view::npos) may_go_on.wait_for(std::chrono::seconds(20));
  });
  GraftConfig told = test::graft_config(1, 1);
  told.role = GraftRole::baseline;
  told.timeout = milliseconds(500);
  Grafter grafter(told);
  const ParticipantScope bound(std::make_shared<const Participant>(0, 1));
  const Tags tags{{"name", "x"}};
  const c10::IValue value(filled(1));
  const auto began = steady_clock::now();
  grafter.intercept({tags, value, nullptr, 0});
  EXPECT_LT(steady_clock::now() - began, std::chrono::seconds(8));
  EXPECT_EQ(grafter.state().phase, GraftPhase::off);
  EXPECT_THAT(grafter.state().cause, HasSubstr("the meeting is not over"));
  go_on.set_value();
  set_log_handler(nullptr);
}

TEST_P(GraftLifeTest, ADumpAfterTheCloseMeetsNobody) {
  GraftConfig told = config(1, 1);
  told.timeout = std::chrono::seconds(60);
  Grafter grafter(told);
  const ValueInterceptor interceptor = grafter.interceptor();
  grafter.close();
  const Tags tags{{"name", "x"}};
  const c10::IValue value(filled(1));
  const auto began = steady_clock::now();
  interceptor({tags, value, nullptr, 0});
  EXPECT_LT(steady_clock::now() - began, std::chrono::seconds(5));
  EXPECT_EQ(grafter.state().cause, "it was closed");
  EXPECT_EQ(log_.count("joins:"), 0u);
}

// What the others look at to know whom they speak with stays, whoever leaves; and who comes again is told.
TEST_P(GraftLifeTest, ASecondMeetingInOneStoreIsRefusedInWords) {
  const GraftConfig told = config(1, 1);
  std::latch has_left(2);
  run_sides(told, [&](SideRank& side) {
    side.dumper.dump("x", filled(1));
    if (!side.is_baseline) side.grafter.close();
    has_left.arrive_and_wait();
    if (side.is_baseline) {
      const World world = World::over_tcp({told.master_address, static_cast<std::uint16_t>(told.master_port), false}, 1,
                                          2, {milliseconds(5000)});
      EXPECT_TRUE(world.store()->check({"dbg_graft/graft/1"}));
      return;
    }
    GraftConfig again = told;
    again.role = GraftRole::target;
    again.timeout = std::chrono::seconds(60);
    Grafter second(again);
    const Tags tags{{"name", "x"}};
    const c10::IValue value(filled(1));
    const auto began = steady_clock::now();
    second.intercept({tags, value, nullptr, 0});
    EXPECT_LT(steady_clock::now() - began, std::chrono::seconds(30));  // torch may wait 5 s for a host's name
    EXPECT_THAT(second.state().cause, HasSubstr("target rank 0 has met at 127.0.0.1:"));
    EXPECT_THAT(second.state().cause, HasSubstr("give both sides another grafter_master_port"));
  });
}

// The baseline by hand, as it serves the store, between the group's making and its look at who is dbg: the others have
// left by then.
TEST_P(GraftLifeTest, WhoLooksLateComesToTheSameWire) {
  const GraftConfig told = config(1, 2);
  const graft::Sides sides{1, 2};
  std::latch has_met(3);
  std::latch has_left(2);
  auto by_hand = std::async(std::launch::async, [&] {
    const World world = World::over_tcp({told.master_address, static_cast<std::uint16_t>(told.master_port), true}, 0, 3,
                                        {milliseconds(20000)});
    const auto hello = graft::hello_store(world.store(), told.group_name);
    graft::say_hello(*hello, told, sides, 0);
    GroupOptions options;
    options.group_name = told.group_name;
    options.timeout = milliseconds(20000);
    const auto group = GroupCoordinator::join_python(world, {PythonGroup::Kind::custom, told.group_name, {}}, options);
    has_met.count_down();
    has_left.wait();
    EXPECT_EQ(graft::read_hellos(*hello, told, sides).are_all_dbg, !GetParam());
  });
  const auto target = [&](int rank) {
    GraftConfig own = told;
    own.role = GraftRole::target;
    const auto grafter = std::make_shared<Grafter>(own);
    const ParticipantScope bound(std::make_shared<const Participant>(rank, 2));
    std::thread dumping([&, self = current_participant()] {
      const ParticipantScope bound_too(self);
      const Tags tags{{"name", "x"}};
      const c10::IValue value(filled(1));
      grafter->intercept({tags, value, nullptr, 0});
    });
    const auto deadline = steady_clock::now() + std::chrono::seconds(20);
    while (grafter->state().peers.empty() && steady_clock::now() < deadline) std::this_thread::yield();
    EXPECT_EQ(grafter->state().peers, GetParam() ? "python" : "dbg");
    has_met.arrive_and_wait();
    grafter->close();
    dumping.join();
    has_left.count_down();
  };
  auto first = std::async(std::launch::async, [&] { target(0); });
  target(1);
  first.get();
  by_hand.get();
}

// Those who wait for their turn behind a call that waits for a silent peer wait no longer than that.
TEST_P(GraftLifeTest, ASilentPeerHoldsUpAllThreadsForOneTimeout) {
  GraftConfig told = config(1, 1);
  told.timeout = milliseconds(1500);
  std::latch is_over(2);
  run_sides(told, [&](SideRank& side) {
    side.dumper.dump("x", filled(1));
    if (!side.is_baseline) {
      // A resolver that does not answer can hold up torch's server for longer than this test's timeout.
      const std::uint64_t unmet = side.counters().off;
      const auto self = current_participant();
      const auto began = steady_clock::now();
      std::vector<std::thread> threads;
      for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&] {
          const ParticipantScope bound(self);
          side.dumper.dump("x", filled(1));
          EXPECT_LT(steady_clock::now() - began, milliseconds(1500 + 1300));
        });
      }
      for (std::thread& thread : threads) thread.join();
      EXPECT_EQ(side.counters().off, unmet + 4u);
    }
    is_over.arrive_and_wait();
  });
}

TEST_P(GraftLifeTest, ThreadsOfOneParticipantTakeTurns) {
  run_sides(config(1, 1), [](SideRank& side) {
    const auto self = current_participant();
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        const ParticipantScope bound(self);
        for (int call = 0; call < 5; ++call) {
          const at::Tensor tensor = filled(side.is_baseline ? 1 : -1);
          side.dumper.dump("x", tensor);
          EXPECT_TRUE(at::equal(tensor, filled(1)));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(side.is_baseline ? side.counters().sent : side.counters().grafted, 20u);
  });
}

}  // namespace
}  // namespace dbg
