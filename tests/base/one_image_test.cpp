// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Facts about the mark of a copy of dbg; what two copies are like is in tests/dump/dumper_copies_test.cpp.
#include "base/one_image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dbg::base {
namespace {

TEST(OneImageTest, ThisProgramHoldsOneCopy) {
  EXPECT_THAT(images_with_dbg(), testing::ElementsAre("the program itself"));
}

}  // namespace
}  // namespace dbg::base
