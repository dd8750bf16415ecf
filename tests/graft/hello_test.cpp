// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The words that ranks leave in the store, and what all conclude from them.
#include "graft/hello.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "dbg/error.h"
#include "graft/sides.h"

namespace dbg::graft {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class HelloTest : public testing::Test {
 protected:
  std::string complaint() {
    try {
      read_hellos(*hello_, config_, sides_);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "(none)";
  }

  const Sides sides_{1, 2};
  GraftConfig config_ = test::graft_config(1, 2);
  const c10::intrusive_ptr<c10d::Store> store_ = c10::make_intrusive<c10d::HashStore>();
  const c10::intrusive_ptr<distributed::TrackedStore> hello_ = hello_store(store_, "graft");
};

TEST_F(HelloTest, ThreeOfThisVersionSpeakDbgsWire) {
  config_.max_bytes = 300;
  for (const int rank : {0, 1, 2}) {
    say_hello(*hello_, config_, sides_, rank);
    EXPECT_EQ(read_hellos(*hello_, config_, sides_).are_all_dbg, rank == 2);
  }
  // As the header file says.
  EXPECT_EQ(hello_->peek("1"), "2 1 2 300");
  EXPECT_TRUE(store_->check({"dbg_graft/graft/2"}));
}

TEST_F(HelloTest, ARankWithoutAWordIsPython) {
  say_hello(*hello_, config_, sides_, 0);
  say_hello(*hello_, config_, sides_, 2);
  const Hellos hellos = read_hellos(*hello_, config_, sides_);
  EXPECT_FALSE(hellos.are_all_dbg);
  EXPECT_THAT(hellos.silent, ElementsAre(1));
}

TEST_F(HelloTest, ThoseOfAnotherVersionAndThoseToldSoSpeakPythons) {
  say_hello(*hello_, config_, sides_, 0);
  say_hello(*hello_, config_, sides_, 1);
  for (const char* other : {"1 9 9", "999 9 9 9", "plain 1 2 100", "", "2", "2 one two 3", "2 1 2"}) {
    hello_->put("2", other);
    const Hellos hellos = read_hellos(*hello_, config_, sides_);
    EXPECT_FALSE(hellos.are_all_dbg) << other;
    EXPECT_THAT(hellos.silent, IsEmpty()) << other;
  }
  hello_->put("2", "2 1 2 100");
  EXPECT_TRUE(read_hellos(*hello_, config_, sides_).are_all_dbg);
  config_.plain_wire = true;
  EXPECT_FALSE(read_hellos(*hello_, config_, sides_).are_all_dbg);
}

TEST_F(HelloTest, TheLeastLimitCounts) {
  config_.max_bytes = 1000;
  say_hello(*hello_, config_, sides_, 0);
  EXPECT_EQ(read_hellos(*hello_, config_, sides_).max_bytes, 1000);
  hello_->put("1", "2 1 2 2000");
  hello_->put("2", "plain 1 2 10");
  EXPECT_EQ(read_hellos(*hello_, config_, sides_).max_bytes, 10);
  hello_->put("2", "2 1 2 -5");  // is none
  EXPECT_EQ(read_hellos(*hello_, config_, sides_).max_bytes, 1000);
}

TEST_F(HelloTest, OtherSizesAndASecondMeetingAreRefusedInWords) {
  say_hello(*hello_, config_, sides_, 0);
  hello_->put("1", "2 1 3 2000");
  EXPECT_THAT(complaint(),
              HasSubstr("target rank 0 was told 1 baseline and 3 target ranks, and this rank 1 and 2: set the same"));
  hello_->put("1", "plain 2 2 2000");
  EXPECT_THAT(complaint(), HasSubstr("target rank 0 was told 2 baseline and 2 target ranks"));
  EXPECT_THROW(say_hello(*hello_, config_, sides_, 0), ConfigError);
  EXPECT_THROW(say_hello(*hello_, config_, sides_, 1), ConfigError);
}

}  // namespace
}  // namespace dbg::graft
