// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The errors' kinds, words and codes.
#include "dbg/error.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <set>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace dbg {
namespace {

template <class Kind>
void expect_caught_as_error(const char* words) {
  try {
    throw Kind(words);
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), words);
    EXPECT_NE(dynamic_cast<const Kind*>(&error), nullptr);
    return;
  }
  FAIL() << "not an Error";
}

TEST(ErrorTest, EachKindIsAnErrorAndKeepsItsWords) {
  expect_caught_as_error<ConfigError>("a");
  expect_caught_as_error<IoError>("b");
  expect_caught_as_error<LogicError>("d");
  EXPECT_THROW(throw ConfigError("x"), std::runtime_error);
}

TEST(ErrorTest, NoKindIsAnother) {
  EXPECT_FALSE((std::is_base_of_v<ConfigError, IoError>));
  EXPECT_FALSE((std::is_base_of_v<IoError, CommError>));
  EXPECT_FALSE((std::is_base_of_v<ConfigError, LogicError>));
}

TEST(ErrorTest, AnIoErrorCarriesItsCode) {
  EXPECT_EQ(IoError("no room", ENOSPC).code(), ENOSPC);
  EXPECT_EQ(IoError("malformed").code(), 0);
  const IoError original("no room", ENOSPC);
  const IoError copy = original;
  EXPECT_EQ(copy.code(), ENOSPC);
  EXPECT_EQ(std::string(copy.what()), "no room");
}

CommFailure complete_failure() {
  CommFailure failure;
  failure.kind = CommErrorKind::timeout;
  failure.group = "tp@0_2.g1";
  failure.label = "tp:cpu";
  failure.ranks = {0, 2};
  failure.rank = 0;
  failure.peers = {2};
  failure.operation = "all_reduce";
  failure.elapsed = std::chrono::milliseconds(2004);
  failure.cause = "no word within 2.000 s.";
  failure.advice = "look at rank 2";
  return failure;
}

TEST(CommErrorTest, SaysAllThatIsKnown) {
  const CommError error(complete_failure());
  EXPECT_STREQ(error.what(),
               "tp:cpu (group tp@0_2.g1, ranks [0, 2]): all_reduce on rank 0 failed after 2.004 s: timeout, peer 2. no "
               "word within 2.000 s. look at rank 2.");
  EXPECT_EQ(error.kind(), CommErrorKind::timeout);
  EXPECT_EQ(error.failure().peers, std::vector<int>{2});
}

TEST(CommErrorTest, LeavesOutWhatIsNotKnown) {
  CommFailure failure;
  failure.kind = CommErrorKind::store_down;
  failure.operation = "connect";
  failure.cause = "no answer from host:1";
  EXPECT_STREQ(CommError(failure).what(), "connect failed after 0.000 s: store_down. no answer from host:1.");
}

TEST(CommErrorTest, KeepsItsFailureWhenCopiedAndCaughtAsError) {
  try {
    const CommError original(complete_failure());
    const CommError copy = original;
    throw copy;
  } catch (const Error& error) {
    const auto* failed = dynamic_cast<const CommError*>(&error);
    ASSERT_NE(failed, nullptr);
    EXPECT_EQ(failed->failure().label, "tp:cpu");
    return;
  }
  FAIL() << "not an Error";
}

TEST(CommErrorTest, EachKindHasItsOwnWord) {
  std::set<std::string> words;
  for (int kind = 0; kind <= static_cast<int>(CommErrorKind::unsupported); ++kind) {
    words.insert(to_text(static_cast<CommErrorKind>(kind)));
  }
  EXPECT_EQ(words.size(), 8U);
  EXPECT_EQ(words.count("unknown"), 0U);
}

}  // namespace
}  // namespace dbg
