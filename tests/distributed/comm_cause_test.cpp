// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What backends throw, sorted.
#include "distributed/comm_cause.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace dbg::distributed {
namespace {

// A checked group's word for a mismatch leaves the group usable; all else that comes from the wire breaks it.
TEST(CommCauseTest, WordsOfBackendsAreSorted) {
  const auto expect = [](CommErrorKind kind, const char* words) { EXPECT_EQ(kind_of_words(words), kind) << words; };
  expect(CommErrorKind::timeout, "[unbound_buffer.cc:78] Timed out waiting 1000ms for recv operation to complete");
  expect(CommErrorKind::timeout, "Application timeout caused pair closure");
  expect(CommErrorKind::peer_lost, "[pair.cc:547] Connection closed by peer [127.0.0.1]:24258");
  expect(CommErrorKind::peer_lost, "[pair.cc:538] Read error [127.0.0.1]:62681: Connection reset by peer");
  expect(CommErrorKind::peer_lost, "Broken pipe");
  expect(CommErrorKind::unsupported, "Invalid scalar type");
  expect(CommErrorKind::unsupported, "Backend ucc does not support gather");
  expect(CommErrorKind::handshake_mismatch,
         "Detected mismatch between collectives on ranks. Rank 0 is running collective: CollectiveFingerPrint(...)");
  expect(CommErrorKind::broken, "something new");
}

TEST(CommCauseTest, OnlyRefusalsLeaveTheGroupWhole) {
  const auto breaks = [](const auto& error) {
    try {
      throw error;
    } catch (...) {
      return cause_of_current_exception().breaks_group;
    }
  };
  EXPECT_FALSE(breaks(std::runtime_error("Invalid scalar type")));
  EXPECT_FALSE(breaks(std::runtime_error("Detected mismatch between collectives")));
  EXPECT_TRUE(breaks(std::runtime_error("Timed out waiting 1000ms")));
  EXPECT_TRUE(breaks(std::runtime_error("something new")));
}

TEST(CommCauseTest, TypesCountBeforeWords) {
  const auto kind_of = [](auto&& body) {
    try {
      body();
    } catch (...) {
      return cause_of_current_exception().kind;
    }
    return CommErrorKind::broken;
  };
  EXPECT_EQ(kind_of([] { C10_THROW_ERROR(DistStoreError, "wait timed out after 300 ms"); }), CommErrorKind::store_down);
  EXPECT_EQ(kind_of([] { C10_THROW_ERROR(NotImplementedError, "no"); }), CommErrorKind::unsupported);
}

}  // namespace
}  // namespace dbg::distributed
