// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Facts about what is kept per participant, and per participant and thread.
#include "dump/participant_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "dbg/dumper.h"
#include "dump/capture_sink.h"

namespace dbg {
namespace {

std::shared_ptr<const Participant> rank_of(int rank) {
  return std::make_shared<const Participant>(rank, 8);
}

TEST(ParticipantStatesTest, OneStateForEachParticipant) {
  ParticipantStates states;
  ParticipantStates others;
  const auto a = rank_of(0);
  const auto b = rank_of(0);  // the same rank, another participant: an engine made anew
  const auto state = states.of(a);
  EXPECT_EQ(states.of(a), state);
  EXPECT_NE(states.of(b), state);
  EXPECT_EQ(states.of(a), state);
  EXPECT_NE(others.of(a), state);
  std::thread([&] { EXPECT_EQ(states.of(a), state); }).join();
}

TEST(ParticipantStatesTest, StateGoesWithItsParticipant) {
  ParticipantStates states;
  auto participant = rank_of(0);
  std::weak_ptr<ParticipantState> state = states.of(participant);
  EXPECT_FALSE(state.expired());
  participant.reset();
  (void)states.of(rank_of(1));
  EXPECT_TRUE(state.expired());
}

TEST(ParticipantStatesTest, StatesKeepNoParticipantAlive) {
  ParticipantStates states;
  const auto participant = rank_of(0);
  (void)states.of(participant);
  EXPECT_EQ(participant.use_count(), 1);
}

TEST(ParticipantStateTest, IndicesAreDistinctOverThreads) {
  ParticipantState state(1, 1);
  std::vector<std::vector<std::int64_t>> taken(4);
  std::vector<std::thread> threads;
  for (auto& mine : taken) {
    threads.emplace_back([&state, &mine] {
      for (int i = 0; i < 1000; ++i) mine.push_back(state.next_dump_index());
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<std::int64_t> all;
  for (const auto& mine : taken) all.insert(mine.begin(), mine.end());
  EXPECT_EQ(all.size(), 4000u);
  EXPECT_EQ(*all.begin(), 1);
  EXPECT_EQ(*all.rbegin(), 4000);
}

TEST(ParticipantStateTest, ContextIsAnImmutableSnapshot) {
  ParticipantState state(2, 1);
  EXPECT_EQ(state.context(), nullptr);
  state.set_context({{"a", 1}});
  const auto before = state.context();
  state.set_context({{"a", 2}, {"b", 3}});
  EXPECT_EQ(*before, Tags({{"a", 1}}));
  EXPECT_EQ(*state.context(), Tags({{"a", 2}, {"b", 3}}));
  state.set_context({{"a", nullptr}, {"b", nullptr}});
  EXPECT_TRUE(state.context() == nullptr || state.context()->empty());
}

TEST(ParticipantStateTest, EmptiedContextOfAWorkerStaysEmpty) {
  ParticipantState state(3, 1);
  state.set_context({{"a", 1}});
  std::thread([&] {
    EXPECT_EQ(*state.context(), Tags({{"a", 1}}));
    state.set_context({{"a", nullptr}});
    EXPECT_TRUE(state.context() == nullptr || state.context()->empty());
    // A thread that serves many Dumpers and participants keeps this one's answer all the same.
    for (std::uint64_t other = 100; other < 300; ++other) ParticipantState(other, 1).set_context({{"b", 1}});
    for (std::uint64_t other = 300; other < 500; ++other) {
      ParticipantState short_lived(other, 1);
      short_lived.set_context({{"b", 1}});
      short_lived.set_context({{"b", nullptr}});
    }
    EXPECT_TRUE(state.context() == nullptr || state.context()->empty());
  }).join();
  EXPECT_EQ(*state.context(), Tags({{"a", 1}}));
}

TEST(ParticipantStateTest, ResetVoidsTheContextOfEveryThread) {
  ParticipantState state(4, 1);
  state.set_context({{"a", 1}});
  (void)state.next_step();
  (void)state.next_dump_index();
  EXPECT_TRUE(state.take_cleanup_turn());
  EXPECT_FALSE(state.take_cleanup_turn());
  std::thread worker([&] {
    state.set_context({{"w", 1}});
    state.reset();
    EXPECT_EQ(state.context(), nullptr);
  });
  worker.join();
  EXPECT_EQ(state.context(), nullptr);
  EXPECT_EQ(state.step(), 0);
  EXPECT_EQ(state.dump_index(), 0);
  EXPECT_TRUE(state.take_cleanup_turn());
  state.set_context({{"b", 2}});
  EXPECT_EQ(*state.context(), Tags({{"b", 2}}));
}

TEST(ParticipantStateTest, InnermostCaptureCounts) {
  ParticipantState state(5, 1);
  EXPECT_EQ(state.capture_sink(), nullptr);
  const auto outer = std::make_shared<CaptureSink>();
  const auto inner = std::make_shared<CaptureSink>();
  state.push_capture(outer);
  state.push_capture(inner);
  EXPECT_EQ(state.capture_sink(), inner);
  state.remove_capture(outer.get());  // ends out of order: a moved scope may
  EXPECT_EQ(state.capture_sink(), inner);
  state.remove_capture(inner.get());
  EXPECT_EQ(state.capture_sink(), nullptr);
  state.remove_capture(inner.get());
}

}  // namespace
}  // namespace dbg
