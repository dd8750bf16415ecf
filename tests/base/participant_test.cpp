// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Which rank a thread is: by scope, by the process's default, by the environment.
#include "dbg/participant.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "dbg/error.h"
#include "support/out_of_memory.h"
#include "support/rank_processes.h"
#include "support/rank_threads.h"

namespace dbg {
namespace {

using testing::HasSubstr;

std::shared_ptr<const Participant> make(int rank, int world_size) {
  return std::make_shared<const Participant>(rank, world_size);
}

TEST(ParticipantTest, KeepsWhatItWasGiven) {
  const Participant participant(3, 8, 1);
  EXPECT_EQ(participant.rank(), 3);
  EXPECT_EQ(participant.world_size(), 8);
  EXPECT_EQ(participant.local_rank(), 1);
}

TEST(ParticipantTest, NoTwoShareAnId) {
  std::set<std::uint64_t> ids;
  for (int i = 0; i < 10; ++i) ids.insert(Participant(0, 1).id());
  EXPECT_EQ(ids.size(), 10U);
}

TEST(ParticipantTest, RefusesWhatMakesNoSenseAndSaysTheValues) {
  EXPECT_THROW(Participant(-1, 2), ConfigError);
  EXPECT_THROW(Participant(2, 2), ConfigError);
  EXPECT_THROW(Participant(0, 0), ConfigError);
  EXPECT_THROW(Participant(0, 1, -1), ConfigError);
  try {
    Participant(5, 4, 2);
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank=5, world_size=4, local_rank=2"));
  }
}

TEST(ParticipantScopeTest, BindsTheThreadAndRestoresTheOuterBinding) {
  const auto before = current_participant();
  const auto outer = make(1, 3);
  const auto inner = make(2, 3);
  {
    const ParticipantScope outer_scope(outer);
    EXPECT_EQ(current_participant(), outer);
    {
      const ParticipantScope inner_scope(inner);
      EXPECT_EQ(current_participant(), inner);
    }
    EXPECT_EQ(current_participant(), outer);
  }
  EXPECT_EQ(current_participant(), before);
}

TEST(ParticipantScopeTest, RestoresWhenAnExceptionPasses) {
  const auto before = current_participant();
  try {
    const ParticipantScope scope(make(1, 2));
    throw 1;
  } catch (int) {
  }
  EXPECT_EQ(current_participant(), before);
}

TEST(ParticipantScopeTest, ANewThreadIsNotBound) {
  const auto unbound = current_participant();
  const ParticipantScope scope(make(1, 2));
  std::shared_ptr<const Participant> seen;
  std::thread([&seen] { seen = current_participant(); }).join();
  EXPECT_EQ(seen, unbound);
}

TEST(ParticipantScopeTest, SeveralThreadsMayShareOne) {
  const auto shared = make(1, 2);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&shared] {
      const ParticipantScope scope(shared);
      EXPECT_EQ(current_participant()->id(), shared->id());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ParticipantScopeTest, RanksAsThreadsSeeThemselves) {
  test::run_ranks_as_threads(4, [](int rank) {
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(current_participant()->rank(), rank);
  });
}

TEST(ParticipantScopeTest, KeepsTheObjectAlive) {
  std::weak_ptr<const Participant> watched;
  {
    auto participant = make(0, 1);
    watched = participant;
    const ParticipantScope scope(std::move(participant));
    EXPECT_FALSE(watched.expired());
  }
  EXPECT_TRUE(watched.expired());
}

TEST(ParticipantScopeTest, NullIsRefused) {
  EXPECT_THROW(const ParticipantScope scope(nullptr), ConfigError);
  EXPECT_THROW(set_default_participant(nullptr), ConfigError);
}

// A program that ends inside a scope: exit handlers and static destructors run after the thread's own variables went.
DBG_RANK_BODY(exits_inside_a_scope) {
  auto participant = make(5, 6);
  static const auto* watched = new std::weak_ptr<const Participant>(participant);
  const ParticipantScope scope(std::move(participant));
  std::atexit([] { base::log(LogLevel::info, "exit", "participant is {}", watched->expired() ? "gone" : "there"); });
  std::exit(0);
}

TEST(ParticipantScopeTest, HoldsForWhatRunsWhileTheProcessExits) {
  const auto results = test::spawn_ranks({.body = "exits_inside_a_scope"});
  test::expect_all_passed(results);
  EXPECT_THAT(results[0].output, HasSubstr("[exit, rank=5, "));
  EXPECT_THAT(results[0].output, HasSubstr("participant is there"));
}

// The default is read once a process, so each case is a process.
DBG_RANK_BODY(says_its_default_participant) {
  std::vector<std::thread> threads;
  std::set<std::shared_ptr<const Participant>> seen;
  std::mutex mutex;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const auto mine = current_participant();
      const std::lock_guard lock(mutex);
      seen.insert(mine);
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(seen.size(), 1U) << "threads differ in their default";
  const auto participant = current_participant();
  ASSERT_EQ(*seen.begin(), participant);
  fmt::print(stderr, "default: {} of {}, local {}\n", participant->rank(), participant->world_size(),
             participant->local_rank());
}

using Environment = std::map<std::string, std::optional<std::string>>;

std::string default_for(const std::optional<std::string>& rank, const std::optional<std::string>& world_size,
                        const std::optional<std::string>& local_rank) {
  const auto results = test::spawn_ranks(
      {.body = "says_its_default_participant",
       .environment = Environment{{"RANK", rank}, {"WORLD_SIZE", world_size}, {"LOCAL_RANK", local_rank}}});
  test::expect_all_passed(results);
  return results[0].output;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(DefaultParticipantTest, ComesFromTheEnvironment) {
  EXPECT_EQ(default_for("3", "4", "1"), "default: 3 of 4, local 1\n");
  EXPECT_EQ(default_for(" 3 ", "4\n", std::nullopt), "default: 3 of 4, local 0\n");
}

TEST(DefaultParticipantTest, WithoutOrWithBlankVariablesIsRankZeroOfOne) {
  EXPECT_EQ(default_for(std::nullopt, std::nullopt, std::nullopt), "default: 0 of 1, local 0\n");
  EXPECT_EQ(default_for("", "  ", "\t"), "default: 0 of 1, local 0\n");
}

class BadEnvironmentTest : public testing::TestWithParam<std::array<const char*, 4>> {};

TEST_P(BadEnvironmentTest, IsReportedOnceAndIgnoredTogether) {
  const auto& [rank, world_size, local_rank, words] = GetParam();
  const std::string output = default_for(rank, world_size, local_rank);
  EXPECT_THAT(output, HasSubstr("default: 0 of 1, local 0\n"));
  EXPECT_THAT(output, HasSubstr(words));
  EXPECT_EQ(count(output, "going on as rank 0 of 1"), 1U) << output;
}

INSTANTIATE_TEST_SUITE_P(All, BadEnvironmentTest,
                         testing::Values(std::array{"x", "4", "1", "RANK='x' is not a number"},
                                         std::array{"1", "4 ranks", "0", "WORLD_SIZE='4 ranks' is not a number"},
                                         std::array{"1", "4", "0x1", "LOCAL_RANK='0x1' is not a number"},
                                         std::array{"99999999999", "4", "0", "RANK='99999999999' is not a number"},
                                         std::array{"4", "4", "0", "rank=4, world_size=4"},
                                         std::array{"-1", "4", "0", "rank=-1, world_size=4"},
                                         std::array{"1", "", "0", "rank=1, world_size=1"},
                                         std::array{"a", "b", "c",
                                                    "RANK='a' is not a number; WORLD_SIZE='b' is not a number"}));

DBG_RANK_BODY(asks_for_its_default_participant_without_memory) {
  std::shared_ptr<const Participant> participant;
  {
    const test::OutOfMemory from_here;
    participant = current_participant();
  }
  ASSERT_NE(participant, nullptr);
  ASSERT_EQ(participant->rank(), 0);
  ASSERT_EQ(participant->world_size(), 1);
  ASSERT_EQ(current_participant()->rank(), 3) << "with memory again it is the right one";
  ASSERT_EQ(current_participant()->world_size(), 4);
}

TEST(DefaultParticipantTest, WithoutMemoryIsRankZeroOfOneUntilThereIsSome) {
  if (!test::kOutOfMemoryWorks) GTEST_SKIP() << "this sanitizer allocates by itself";
  const Environment environment{{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "0"}};
  test::expect_all_passed(
      test::spawn_ranks({.body = "asks_for_its_default_participant_without_memory", .environment = environment}));
}

DBG_RANK_BODY(replaces_its_default_participant) {
  const auto first = current_participant();
  set_default_participant(make(5, 6));
  ASSERT_EQ(current_participant()->rank(), 5);
  std::thread([] { EXPECT_EQ(current_participant()->rank(), 5); }).join();
  ASSERT_EQ(first->rank(), 0) << "who holds the old one keeps it";
  const ParticipantScope scope(make(1, 2));
  set_default_participant(make(3, 4));
  EXPECT_EQ(current_participant()->rank(), 1) << "a bound thread stays bound";
}

TEST(DefaultParticipantTest, CanBeReplaced) {
  test::expect_all_passed(test::spawn_ranks({.body = "replaces_its_default_participant"}));
}

}  // namespace
}  // namespace dbg
