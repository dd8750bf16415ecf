// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The notes of a failing group: their format, who counts as silent, and a store that is not there.
#include "distributed/failure_notes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

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
  delete_failure_notes(*own);
}

TEST(FailureNotesTest, AMembersNotesCanBeDeleted) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto own = member(store, 0);
  leave_failure_note(*own, {CommErrorKind::timeout, "x", 0, "y"});
  delete_failure_notes(*own);
  EXPECT_EQ(store->getNumKeys(), 0);
}

}  // namespace
}  // namespace dbg::distributed
