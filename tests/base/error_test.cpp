// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The errors' kinds, words and codes.
#include "dbg/error.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <stdexcept>
#include <string>
#include <type_traits>

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
  expect_caught_as_error<CommError>("c");
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

}  // namespace
}  // namespace dbg
