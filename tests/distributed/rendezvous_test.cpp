// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The handshake: agreement, and for each way to disagree an error on every member within the timeout and a second.
#include "distributed/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "base/formatted.h"
#include "dbg/error.h"
#include "dbg/world.h"
#include "distributed/handshake_record.h"
#include "support/rank_threads.h"

namespace dbg::distributed {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kTimeout{1500};

HandshakeRequest request_of(const std::string& name, std::vector<int> ranks, int rank,
                            milliseconds timeout = kTimeout) {
  HandshakeRequest request;
  request.name = name;
  request.ranks = std::move(ranks);
  const auto place = std::find(request.ranks.begin(), request.ranks.end(), rank);
  request.rank_in_group = static_cast<int>(place - request.ranks.begin());
  request.timeout = timeout;
  return request;
}

// What each rank's handshake came to.
class Outcomes {
 public:
  // A rank that came after the others had parted waits for them to come again; the first to see knows at once.
  milliseconds soonest() const {
    milliseconds least = kTimeout * 10;
    for (const auto& [rank, failure] : failures) least = std::min(least, failure.elapsed);
    return least;
  }

  void run(int rank, const c10::intrusive_ptr<c10d::Store>& store, const HandshakeRequest& request) {
    const auto began = Clock::now();
    std::string text;
    std::optional<CommFailure> failure;
    std::optional<std::int64_t> generation;
    try {
      generation = shake_hands(store, "dbg", request).generation;
    } catch (const CommError& error) {
      failure = error.failure();
      text = error.what();
    }
    EXPECT_LT(Clock::now() - began, request.timeout + milliseconds(1000)) << "rank " << rank;
    const std::lock_guard lock(mutex_);
    if (failure) {
      failures.emplace(rank, *failure);
      texts[rank] = text;
    } else {
      generations.emplace(rank, *generation);
    }
  }

  std::multimap<int, CommFailure> failures;
  std::map<int, std::string> texts;
  std::map<int, std::int64_t> generations;

 private:
  std::mutex mutex_;
};

TEST(RendezvousTest, MembersAgreeOnAGenerationAndLeaveLittle) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  for (std::int64_t round = 0; round < 3; ++round) {
    Outcomes outcomes;
    std::vector<HandshakeResult> results(3);
    test::run_ranks_as_threads(3, [&](int rank) {
      results[static_cast<std::size_t>(rank)] = shake_hands(store, "dbg", request_of("tp", {0, 1, 2}, rank));
    });
    for (const HandshakeResult& result : results) EXPECT_EQ(result.generation, round);
    for (const HandshakeResult& result : results) EXPECT_TRUE(result.keys->delete_written_keys());
    // The counter of generations.
    EXPECT_EQ(store->getNumKeys(), 1);
  }
}

TEST(RendezvousTest, OtherRanksOfOneNameCountForThemselves) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  Outcomes outcomes;
  test::run_ranks_as_threads(4, [&](int rank) {
    outcomes.run(rank, store, request_of("tp", rank < 2 ? std::vector<int>{0, 1} : std::vector<int>{3, 2}, rank));
  });
  EXPECT_EQ(outcomes.generations, (std::map<int, std::int64_t>{{0, 0}, {1, 0}, {2, 0}, {3, 0}}));
}

// Rank 2 comes to its group while rank 0 is still in the other one.
TEST(RendezvousTest, GroupsOfOneNameMayShareMembers) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto keys = c10::make_intrusive<TrackedStore>(store, "dbg/hs/tp");
  Outcomes outcomes;
  test::run_ranks_as_threads(3, [&](int rank) {
    if (rank == 0) {
      keys->wait({"r2@0_2"});
      outcomes.run(0, store, request_of("tp", {0, 1}, 0, milliseconds(5000)));
    }
    if (rank == 1) {
      // Once rank 2 has seen what rank 0 is at.
      keys->wait({"r0@0_1"});
      std::this_thread::sleep_for(milliseconds(200));
      outcomes.run(1, store, request_of("tp", {0, 1}, 1, milliseconds(5000)));
    } else {
      outcomes.run(rank + 10, store, request_of("tp", {0, 2}, rank, milliseconds(5000)));
    }
  });
  EXPECT_THAT(outcomes.texts, testing::IsEmpty());
  EXPECT_EQ(outcomes.generations, (std::map<int, std::int64_t>{{0, 0}, {1, 0}, {10, 0}, {12, 0}}));
}

// The first to be done meets the others' records of the group before.
TEST(RendezvousTest, GroupsOfOneNameFollowEachOtherClosely) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const std::vector<std::vector<int>> lists{{0, 1, 2}, {0, 1}, {1, 2}, {2, 0}, {1, 0}, {2, 1, 0}};
  Outcomes outcomes;
  test::run_ranks_as_threads(3, [&](int rank) {
    for (int round = 0; round < 10; ++round) {
      for (const std::vector<int>& list : lists) {
        if (std::find(list.begin(), list.end(), rank) == list.end()) continue;
        try {
          shake_hands(store, "dbg", request_of("tp", list, rank, milliseconds(10000))).keys->written_keys();
        } catch (const CommError& error) {
          ADD_FAILURE() << "round " << round << ": " << error.what();
          return;
        }
      }
    }
  });
}

TEST(RendezvousTest, OneThatMakesAnotherGroupFirstIsSaidToDoSo) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  Outcomes outcomes;
  test::run_ranks_as_threads(3, [&](int rank) {
    if (rank == 1) return;
    outcomes.run(rank, store,
                 request_of("tp", rank == 0 ? std::vector<int>{0, 1} : std::vector<int>{0, 2}, rank,
                            rank == 0 ? kTimeout : milliseconds(500)));
  });
  ASSERT_EQ(outcomes.failures.size(), 2U);
  const CommFailure& failure = outcomes.failures.find(2)->second;
  EXPECT_EQ(failure.kind, CommErrorKind::peer_missing) << failure.cause;
  EXPECT_THAT(failure.cause, HasSubstr("makes the group 'tp' of ranks [0, 1]"));
}

TEST(RendezvousTest, AGroupOfOneWaitsForNobody) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  EXPECT_EQ(shake_hands(store, "dbg", request_of("tp", {5}, 5)).generation, 0);
}

// Deadlines pass at nearly the same time: the one that looks last finds the others gone, and must not blame them.
TEST(RendezvousTest, OneThatGaveUpBeforeIsNotBlamedForTheMissing) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  Outcomes outcomes;
  test::run_ranks_as_threads(3, [&](int rank) {
    if (rank == 0) return;
    auto request = request_of("tp", {0, 1, 2}, rank);
    request.timeout = rank == 1 ? milliseconds(100) : kTimeout;
    outcomes.run(rank, store, request);
  });
  ASSERT_EQ(outcomes.failures.size(), 2U);
  EXPECT_THAT(outcomes.failures.find(2)->second.peers, ElementsAre(0));
  EXPECT_THAT(outcomes.texts[2], AllOf(HasSubstr("rank 0 did not come: 1 of 3 members are here"),
                                       HasSubstr("rank 1 (pid"), HasSubstr("was here and gave up")));
}

TEST(RendezvousTest, AMissingMemberIsNamedOnAllOthers) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  Outcomes outcomes;
  test::run_ranks_as_threads(3, [&](int rank) {
    if (rank != 2) outcomes.run(rank, store, request_of("tp", {0, 1, 2}, rank));
  });
  ASSERT_EQ(outcomes.failures.size(), 2U);
  for (const auto& [rank, failure] : outcomes.failures) {
    EXPECT_EQ(failure.kind, CommErrorKind::peer_missing);
    EXPECT_THAT(failure.peers, ElementsAre(2)) << "on rank " << rank;
    EXPECT_EQ(failure.rank, rank);
    EXPECT_GE(failure.elapsed, kTimeout - milliseconds(300));
    EXPECT_THAT(outcomes.texts[rank], AllOf(HasSubstr("tp"), HasSubstr("ranks [0, 1, 2]"), HasSubstr("create"),
                                            HasSubstr("rank 2 did not come")));
  }
}

TEST(RendezvousTest, AMissingLeaderIsNamedOnAllOthers) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  Outcomes outcomes;
  test::run_ranks_as_threads(3, [&](int rank) {
    if (rank != 0) outcomes.run(rank, store, request_of("tp", {0, 1, 2}, rank));
  });
  ASSERT_EQ(outcomes.failures.size(), 2U);
  for (const auto& [rank, failure] : outcomes.failures) {
    EXPECT_EQ(failure.kind, CommErrorKind::peer_missing);
    EXPECT_EQ(failure.peers.front(), 0) << "on rank " << rank;
  }
}

TEST(RendezvousTest, ALateMemberHearsThatTheOthersGaveUp) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  Outcomes outcomes;
  outcomes.run(0, store, request_of("tp", {0, 1}, 0, milliseconds(300)));
  outcomes.run(1, store, request_of("tp", {0, 1}, 1, milliseconds(300)));
  ASSERT_EQ(outcomes.failures.size(), 2U);
  EXPECT_THAT(outcomes.texts[1], AllOf(HasSubstr("peer_missing"), HasSubstr("rank 0 (pid"), HasSubstr("gave up")));
  // What both left is no hindrance for the next attempt.
  Outcomes next;
  test::run_ranks_as_threads(2, [&](int rank) { next.run(rank, store, request_of("tp", {0, 1}, rank)); });
  EXPECT_EQ(next.generations.size(), 2U);
}

TEST(RendezvousTest, OtherRanksAreADifferenceWithBothValues) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  Outcomes outcomes;
  test::run_ranks_as_threads(3, [&](int rank) {
    outcomes.run(rank, store, request_of("tp", rank == 1 ? std::vector<int>{0, 1} : std::vector<int>{0, 1, 2}, rank));
  });
  ASSERT_EQ(outcomes.failures.size(), 3U);
  for (const auto& [rank, failure] : outcomes.failures) {
    EXPECT_EQ(failure.kind, CommErrorKind::handshake_mismatch) << outcomes.texts[rank];
    EXPECT_THAT(failure.cause, AllOf(HasSubstr("has ranks [0, 1, 2]"), HasSubstr("has ranks [0, 1]")));
  }
  EXPECT_LT(outcomes.soonest(), kTimeout - milliseconds(200));
}

TEST(RendezvousTest, ALateMemberHearsWhatTheOthersDifferedIn) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  Outcomes outcomes;
  test::run_ranks_as_threads(2, [&](int rank) {
    outcomes.run(rank, store, request_of("tp", rank == 1 ? std::vector<int>{0, 1} : std::vector<int>{0, 1, 2}, rank));
  });
  outcomes.run(2, store, request_of("tp", {0, 1, 2}, 2, milliseconds(300)));
  ASSERT_EQ(outcomes.failures.count(2), 1U);
  const CommFailure& late = outcomes.failures.find(2)->second;
  EXPECT_EQ(late.kind, CommErrorKind::handshake_mismatch);
  EXPECT_THAT(late.cause, AllOf(HasSubstr("has ranks [0, 1, 2]"), HasSubstr("has ranks [0, 1]")));
}

TEST(RendezvousTest, AnotherOrderIsADifference) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  Outcomes outcomes;
  test::run_ranks_as_threads(2, [&](int rank) {
    outcomes.run(rank, store, request_of("tp", rank == 0 ? std::vector<int>{0, 1} : std::vector<int>{1, 0}, rank));
  });
  ASSERT_EQ(outcomes.failures.size(), 2U);
  for (const auto& [rank, failure] : outcomes.failures) {
    EXPECT_EQ(failure.kind, CommErrorKind::handshake_mismatch);
    EXPECT_THAT(failure.cause, AllOf(HasSubstr("[0, 1]"), HasSubstr("[1, 0]"))) << "on rank " << rank;
  }
}

TEST(RendezvousTest, OtherSettingsAreADifferenceWithBothValues) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  Outcomes outcomes;
  test::run_ranks_as_threads(3, [&](int rank) {
    HandshakeRequest request = request_of("tp", {0, 1, 2}, rank);
    request.settings["device backend"] = rank == 2 ? "nccl" : "gloo";
    outcomes.run(rank, store, request);
  });
  ASSERT_EQ(outcomes.failures.size(), 3U);
  for (const auto& [rank, failure] : outcomes.failures) {
    EXPECT_EQ(failure.kind, CommErrorKind::handshake_mismatch) << "on rank " << rank;
    EXPECT_THAT(failure.cause,
                AllOf(HasSubstr("device backend gloo"), HasSubstr("has nccl"), HasSubstr("rank 2 (pid")));
  }
  EXPECT_LT(outcomes.soonest(), kTimeout - milliseconds(200));
}

TEST(RendezvousTest, AnotherNameOfTheSameRanksIsADifferenceAtTheDeadline) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  Outcomes outcomes;
  test::run_ranks_as_threads(2, [&](int rank) {
    outcomes.run(rank, store, request_of(rank == 0 ? "tp" : "pp", {0, 1}, rank));
  });
  ASSERT_EQ(outcomes.failures.size(), 2U);
  for (const auto& [rank, failure] : outcomes.failures) {
    EXPECT_EQ(failure.kind, CommErrorKind::handshake_mismatch) << "on rank " << rank;
    EXPECT_THAT(failure.cause, AllOf(HasSubstr("'tp'"), HasSubstr("'pp'")));
  }
}

TEST(RendezvousTest, TwoThatClaimOneRankAreFoundOut) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto keys = c10::make_intrusive<TrackedStore>(store, "dbg/hs/tp");
  Outcomes outcomes;
  test::run_ranks_as_threads(3, [&](int thread) {
    // Threads 1 and 2 both say that they are rank 1; the leader is kept busy by a third rank that never comes.
    if (thread == 2) keys->wait({"r1@0-2", "r0@0-2"});
    outcomes.run(thread, store, request_of("tp", {0, 1, 2}, thread == 0 ? 0 : 1));
  });
  ASSERT_EQ(outcomes.failures.size(), 3U);
  for (const auto& [thread, failure] : outcomes.failures) {
    EXPECT_EQ(failure.kind, CommErrorKind::handshake_mismatch) << outcomes.texts[thread];
    EXPECT_THAT(failure.cause, HasSubstr("two processes claim to be rank 1"));
    EXPECT_THAT(failure.peers, ElementsAre(1));
  }
  EXPECT_LT(outcomes.soonest(), kTimeout - milliseconds(200));
}

HandshakeRecord record_of_dead_process(int rank, std::vector<int> ranks) {
  HandshakeRecord record = HandshakeRecord::of_this_process();
  record.rank = rank;
  record.ranks = std::move(ranks);
  record.pid = 0x7ffffffe;  // above the kernel's largest
  return record;
}

// As the leader sees it: with the settings that all of this build have.
std::string json_like_ours(HandshakeRecord record, const c10::intrusive_ptr<c10d::Store>& store) {
  const auto keys = c10::make_intrusive<TrackedStore>(store, "dbg/hs/other");
  std::thread waiting([&] {
    EXPECT_THROW(shake_hands(store, "dbg", request_of("other", {0, 1}, 0, milliseconds(100))), CommError);
  });
  waiting.join();
  record.settings = HandshakeRecord::from_json(*keys->peek("r0@0_1"))->settings;
  return record.to_json();
}

TEST(RendezvousTest, AMemberThatCameAndDiedIsNamed) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto keys = c10::make_intrusive<TrackedStore>(store, "dbg/hs/tp");
  keys->put("r2@0-2", json_like_ours(record_of_dead_process(2, {0, 1, 2}), store));
  Outcomes outcomes;
  test::run_ranks_as_threads(3, [&](int rank) {
    if (rank != 2) outcomes.run(rank, store, request_of("tp", {0, 1, 2}, rank));
  });
  ASSERT_EQ(outcomes.failures.size(), 2U);
  const CommFailure& leaders = outcomes.failures.find(0)->second;
  EXPECT_EQ(leaders.kind, CommErrorKind::peer_lost);
  EXPECT_THAT(leaders.peers, ElementsAre(2));
  EXPECT_THAT(leaders.cause, HasSubstr("rank 2 came, but did not answer"));
}

// A store in memory that says which key is about to be looked at.
class WatchedStore final : public c10d::HashStore {
 public:
  std::function<void(const std::string&)> before_look;
  std::vector<std::uint8_t> compareSet(const std::string& key, const std::vector<std::uint8_t>& expected,
                                       const std::vector<std::uint8_t>& desired) override {
    if (before_look) before_look(key);
    return HashStore::compareSet(key, expected, desired);
  }
};

// All deadlines are about the same: while the leader sees who is missing, the others do so and give up.
TEST(RendezvousTest, OneThatGivesUpAtTheSameMomentIsNotBlamed) {
  for (const std::string last_look : {"r1@0-2", "a/"}) {
    const auto store = c10::make_intrusive<WatchedStore>();
    const auto keys = c10::make_intrusive<TrackedStore>(store, "dbg/hs/tp");
    keys->put("r2@0-2", json_like_ours(record_of_dead_process(2, {0, 1, 2}), store));
    HandshakeRecord member = HandshakeRecord::of_this_process();
    member.rank = 1;
    member.ranks = {0, 1, 2};
    member = *HandshakeRecord::from_json(json_like_ours(member, store));
    keys->put("r1@0-2", member.to_json());
    keys->put("a/" + member.nonce, "here");
    // What is looked at again, once the leader has the member's answer, is what it looks at when its time is over.
    bool has_answered = false;
    bool has_given_up = false;
    const std::string answer = "dbg/hs/tp/a/" + member.nonce;
    const std::string awaited = last_look == "a/" ? answer : "dbg/hs/tp/" + last_look;
    store->before_look = [&](const std::string& key) {
      if (has_given_up) return;
      if (has_answered && key == awaited) {
        has_given_up = true;
        member.gone = "rank 2 came, but did not answer";
        member.gone_kind = CommErrorKind::peer_lost;
        member.gone_peers = {2};
        keys->put("r1@0-2", member.to_json());
        keys->deleteKey("a/" + member.nonce);
      } else if (key == answer) {
        has_answered = true;
      }
    };
    Outcomes outcomes;
    outcomes.run(0, store, request_of("tp", {0, 1, 2}, 0, milliseconds(200)));
    EXPECT_TRUE(has_given_up) << last_look;
    ASSERT_EQ(outcomes.failures.size(), 1U);
    const CommFailure& failure = outcomes.failures.find(0)->second;
    EXPECT_EQ(failure.kind, CommErrorKind::peer_lost) << last_look << ": " << failure.cause;
    EXPECT_THAT(failure.peers, ElementsAre(2)) << last_look << ": " << failure.cause;
  }
}

TEST(RendezvousTest, WhatADeadProcessLeftIsWrittenOver) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto keys = c10::make_intrusive<TrackedStore>(store, "dbg/hs/tp");
  const std::string stale = json_like_ours(record_of_dead_process(1, {0, 1}), store);
  const std::string nonce = HandshakeRecord::from_json(stale)->nonce;
  keys->put("r1@0_1", stale);
  Outcomes outcomes;
  test::run_ranks_as_threads(2, [&](int rank) {
    // The living one comes after the leader has asked the dead one.
    if (rank == 1) keys->wait({"m/" + nonce});
    outcomes.run(rank, store, request_of("tp", {0, 1}, rank, milliseconds(5000)));
  });
  EXPECT_EQ(outcomes.generations.size(), 2U);
}

TEST(RendezvousTest, RubbishInTheStoreIsNoMember) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto keys = c10::make_intrusive<TrackedStore>(store, "dbg/hs/tp");
  for (const char* rubbish : {"", "{", "[]", "{\"nonce\": 7}", "null"}) {
    keys->put("r1@0_1", rubbish);
    keys->put("o1", rubbish);
    Outcomes outcomes;
    outcomes.run(0, store, request_of("tp", {0, 1}, 0, milliseconds(150)));
    EXPECT_EQ(outcomes.failures.find(0)->second.kind, CommErrorKind::peer_missing) << rubbish;
  }
}

TEST(RendezvousTest, ManyGroupsAtOnceOverOneClientOfATcpStore) {
  WorldOptions options;
  options.timeout = milliseconds(10000);
  const World server = World::over_tcp({"127.0.0.1", 0, true}, 0, 2, options);
  const World client = World::over_tcp({"127.0.0.1", server.store_port(), false}, 1, 2, options);
  std::vector<Outcomes> outcomes(4);
  test::run_ranks_as_threads(8, [&](int thread) {
    const int rank = thread % 2;
    const auto group = static_cast<std::size_t>(thread / 2);
    outcomes[group].run(rank, (rank == 0 ? server : client).store(),
                        request_of(formatted("g{}", group), {0, 1}, rank, milliseconds(10000)));
  });
  for (const Outcomes& group : outcomes) EXPECT_EQ(group.generations.size(), 2U);
}

TEST(RendezvousTest, AStoreThatGoesAwayIsSaid) {
  WorldOptions options;
  options.timeout = milliseconds(5000);
  auto server = std::make_optional(World::over_tcp({"127.0.0.1", 0, true}, 0, 2, options));
  const World client = World::over_tcp({"127.0.0.1", server->store_port(), false}, 1, 2, options);
  auto keys = c10::make_intrusive<TrackedStore>(server->store(), "dbg/hs/tp");
  Outcomes outcomes;
  std::thread waiting([&] { outcomes.run(1, client.store(), request_of("tp", {0, 1}, 1)); });
  keys->wait({"r1@0_1"});
  keys.reset();
  server.reset();
  waiting.join();
  ASSERT_EQ(outcomes.failures.size(), 1U);
  EXPECT_EQ(outcomes.failures.begin()->second.kind, CommErrorKind::store_down);
}

}  // namespace
}  // namespace dbg::distributed
