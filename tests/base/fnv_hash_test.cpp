// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Published values, and hashing in parts.
#include "base/fnv_hash.h"

#include <gtest/gtest.h>

namespace dbg::base {
namespace {

TEST(FnvHashTest, GivesThePublishedValues) {
  EXPECT_EQ(fnv_hash(""), 0xcbf29ce484222325U);
  EXPECT_EQ(fnv_hash("a"), 0xaf63dc4c8601ec8cU);
  EXPECT_EQ(fnv_hash("foobar"), 0x85944171f73967e8U);
  EXPECT_EQ(fnv_hash("\xff"), 0xaf64724c8602eb6eU);
}

TEST(FnvHashTest, GoesOnFromAnEarlierOne) {
  EXPECT_EQ(fnv_hash("bar", fnv_hash("foo")), fnv_hash("foobar"));
}

}  // namespace
}  // namespace dbg::base
