// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The NCCL switch switches: the source that the build chose is the one that answers.
#include "distributed/nccl_support.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dbg::distributed {
namespace {

TEST(NcclSupportTest, AvailableAsTheBuildFoundIt) {
  EXPECT_EQ(nccl_available(), DBG_TEST_WITH_NCCL != 0);
}

TEST(NcclSupportTest, NamesBothVersionsOrSaysThatThereIsNone) {
  if (nccl_available()) {
    // Asks the library, which needs no GPU for it.
    EXPECT_THAT(nccl_version_text(),
                testing::MatchesRegex(R"(NCCL [0-9]+\.[0-9]+\.[0-9]+ \(built against [0-9]+\.[0-9]+\.[0-9]+\))"));
  } else {
    EXPECT_EQ(nccl_version_text(), "built without NCCL");
  }
}

}  // namespace
}  // namespace dbg::distributed
