// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The notes of a failing group: their format, who counts as silent, and a store that is not there.
#include "distributed/failure_notes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "base/formatted.h"

namespace dbg::distributed {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::IsEmpty;

TEST(FailureNoteTest, TheDescribedFormatIsRead) {
  const auto note = FailureNote::parse("timeout\nall_reduce\n7\nTimed out\nwaiting");
  ASSERT_TRUE(note.has_value());
  EXPECT_EQ(note->kind, CommErrorKind::timeout);
  EXPECT_EQ(note->operation, "all_reduce");
  EXPECT_EQ(note->sequence, 7U);
  EXPECT_EQ(note->cause, "Timed out\nwaiting");
  EXPECT_EQ(note->to_text(), "timeout\nall_reduce\n7\nTimed out\nwaiting");
}

TEST(FailureNoteTest, WhatIsNoNoteIsNone) {
  for (const char* text :
       {"", "timeout", "timeout\nx", "timeout\nx\n1", "tmeout\nx\n1\nc", "timeout\nx\n-1\nc", "timeout\nx\n1x\nc"}) {
    EXPECT_FALSE(FailureNote::parse(text).has_value()) << text;
  }
}

std::unique_ptr<GroupHalf> member(const c10::intrusive_ptr<c10d::Store>& store, int rank) {
  auto half = std::make_unique<GroupHalf>();
  half->ranks = {4, 5, 6};
  half->rank_in_group = rank;
  half->store = store;
  return half;
}

TEST(FailureNotesTest, WhoLeavesNoneIsSilent) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto own = member(store, 0);
  EXPECT_FALSE(has_failure_note(*own));
  leave_failure_note(*member(store, 2), {CommErrorKind::peer_lost, "barrier", 3, "closed"});
  EXPECT_TRUE(has_failure_note(*own));
  const auto notes = collect_failure_notes(*own, milliseconds(50));
  ASSERT_TRUE(notes.has_value());
  EXPECT_THAT(notes->silent, ElementsAre(1));
  ASSERT_TRUE(notes->by_rank[2].has_value());
  EXPECT_EQ(notes->by_rank[2]->operation, "barrier");
}

TEST(FailureNotesTest, WhenAllHaveSpokenNobodyIsWaitedFor) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  for (const int rank : {1, 2}) leave_failure_note(*member(store, rank), {CommErrorKind::timeout, "x", 0, "y"});
  const auto started = std::chrono::steady_clock::now();
  const auto notes = collect_failure_notes(*member(store, 0), std::chrono::seconds(20));
  EXPECT_LT(std::chrono::steady_clock::now() - started, std::chrono::seconds(5));
  ASSERT_TRUE(notes.has_value());
  EXPECT_THAT(notes->silent, IsEmpty());
}

TEST(FailureNotesTest, WithoutAStoreThereIsNoEvidence) {
  const auto own = member(nullptr, 0);
  leave_failure_note(*own, {});
  EXPECT_FALSE(has_failure_note(*own));
  EXPECT_FALSE(collect_failure_notes(*own, milliseconds(1)).has_value());
}

class BrokenStore final : public c10d::HashStore {
 public:
  void set(const std::string&, const std::vector<std::uint8_t>&) override { throw std::runtime_error("set is broken"); }
  bool check(const std::vector<std::string>&) override { throw std::runtime_error("check is broken"); }
};

TEST(FailureNotesTest, AStoreThatFailsIsNoEvidenceAndNoSecondFailure) {
  const auto own = member(c10::make_intrusive<BrokenStore>(), 0);
  EXPECT_THAT(leave_failure_note(*own, {}).value_or(""), testing::HasSubstr("set is broken"));
  EXPECT_FALSE(has_failure_note(*own));
  EXPECT_FALSE(collect_failure_notes(*own, milliseconds(1)).has_value());
}

TEST(FailureNotesTest, TheLastToCloseDeletesThoseOfAll) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<c10::intrusive_ptr<TrackedStore>> notes;
  for (const int rank : {0, 1, 2}) {
    notes.push_back(c10::make_intrusive<TrackedStore>(store, "notes"));
    if (rank != 2) leave_failure_note(*member(notes.back(), rank), {CommErrorKind::timeout, "x", 0, "y"});
    notes.back()->put(formatted("own/{}", rank), "1");
  }
  for (const int rank : {0, 1}) {
    TrackedStore& own = *notes[static_cast<std::size_t>(rank)];
    const std::int64_t count = count_as_closing(own);
    EXPECT_EQ(count, rank + 1);
    EXPECT_FALSE(have_all_closed(own, 3));
    delete_notes(own, 3, count);
    EXPECT_FALSE(own.check({formatted("own/{}", rank)}));
    // Whoever comes later has to hear of it.
    const auto heard = collect_failure_notes(*member(notes[2], 2), milliseconds(50));
    ASSERT_TRUE(heard.has_value());
    EXPECT_THAT(heard->silent, IsEmpty());
  }
  delete_notes(*notes[2], 3, count_as_closing(*notes[2]));
  EXPECT_EQ(store->getNumKeys(), 0);
  EXPECT_TRUE(have_all_closed(*notes[0], 3));
}

}  // namespace
}  // namespace dbg::distributed
