// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A group's keys: prefixed, remembered, deleted, and waited for without blocking the store. On each kind of store.
#include "distributed/tracked_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <string>
#include <thread>

#include "dbg/world.h"
#include "support/temp_folder.h"

namespace dbg::distributed {
namespace {

using std::chrono::milliseconds;
using Bytes = std::vector<std::uint8_t>;

class TrackedStoreTest : public testing::TestWithParam<std::string> {
 protected:
  TrackedStoreTest() {
    if (GetParam() == "tcp") {
      world_.emplace(World::over_tcp({"127.0.0.1", 0, true}, 0, 1));
    } else if (GetParam() == "file") {
      world_.emplace(World::over_file(folder_ / "store", 0, 1));
    } else {
      world_.emplace(World::for_threads(1).front());
    }
    store_ = c10::make_intrusive<TrackedStore>(world_->store(), "dbg/tp");
  }

  c10d::Store& inner() { return *world_->store(); }

  test::TempFolder folder_;
  std::optional<World> world_;
  c10::intrusive_ptr<TrackedStore> store_;
};

TEST_P(TrackedStoreTest, KeysLieUnderThePrefix) {
  store_->set("key", Bytes{1, 2});
  EXPECT_EQ(inner().get("dbg/tp/key"), (Bytes{1, 2}));
  EXPECT_EQ(store_->get("key"), (Bytes{1, 2}));
  EXPECT_TRUE(store_->check({"key"}));
  EXPECT_FALSE(store_->check({"key", "another"}));
}

TEST_P(TrackedStoreTest, DeletesExactlyWhatItWrote) {
  inner().set("dbg/tp/theirs", Bytes{9});
  const std::int64_t before = inner().getNumKeys();
  store_->set("a", Bytes{1});
  store_->add("b", 3);
  store_->compareSet("c", Bytes{}, Bytes{2});
  const auto copy = store_->clone();
  copy->set("d", Bytes{4});
  EXPECT_EQ(inner().getNumKeys(), before + 4);
  EXPECT_EQ(store_->written_keys(), (std::vector<std::string>{"dbg/tp/a", "dbg/tp/b", "dbg/tp/c", "dbg/tp/d"}));
  EXPECT_TRUE(store_->delete_written_keys());
  EXPECT_EQ(inner().getNumKeys(), before);
  EXPECT_TRUE(inner().check({"dbg/tp/theirs"}));
}

TEST_P(TrackedStoreTest, LooksWithoutWaiting) {
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(store_->peek("key"), std::nullopt);
  EXPECT_LT(std::chrono::steady_clock::now() - began, milliseconds(2000));
  EXPECT_FALSE(store_->check({"key"}));
  store_->put("key", "value");
  EXPECT_EQ(store_->peek("key"), "value");
  store_->put("key", "");
  EXPECT_EQ(store_->peek("key"), "");
  store_->deleteKey("key");
  EXPECT_EQ(store_->peek("key"), std::nullopt);
  EXPECT_TRUE(store_->written_keys().empty());
}

TEST_P(TrackedStoreTest, AWaitingThreadKeepsNobodyOut) {
  auto waiting = std::async(std::launch::async, [&] { return store_->get("key"); });
  // Over the same client of a TCPStore: one that waited inside it would never see the key.
  for (int i = 0; i < 20; ++i) store_->add("other", 1);
  store_->set("key", Bytes{5});
  ASSERT_EQ(waiting.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  EXPECT_EQ(waiting.get(), Bytes{5});
}

TEST_P(TrackedStoreTest, GivesUpAfterItsTimeout) {
  const auto began = std::chrono::steady_clock::now();
  try {
    store_->wait({"never"}, milliseconds(150));
    FAIL() << "nothing was thrown";
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("wait timeout after 150ms, keys: dbg/tp/never"));
  }
  const auto took = std::chrono::steady_clock::now() - began;
  EXPECT_GE(took, milliseconds(150));
  EXPECT_LT(took, milliseconds(1150));
}

TEST_P(TrackedStoreTest, WaitsOneAfterTheOtherEndAtTheDeadline) {
  const auto began = std::chrono::steady_clock::now();
  store_->set_deadline(began + milliseconds(200));
  for (int i = 0; i < 5; ++i) EXPECT_ANY_THROW(store_->wait({"never"}, milliseconds(5000)));
  EXPECT_LT(std::chrono::steady_clock::now() - began, milliseconds(1200));
  store_->set_deadline(std::nullopt);
  store_->set("key", Bytes{1});
  store_->wait({"key"}, milliseconds(5000));
}

TEST_P(TrackedStoreTest, RemembersNoKeyThatAStoreOnTopOnlyLookedAt) {
  TrackedStore top(store_, "top");
  EXPECT_EQ(top.peek("key"), std::nullopt);
  EXPECT_TRUE(store_->written_keys().empty());
  top.put("key", "1");
  EXPECT_EQ(top.peek("key"), "1");
  EXPECT_EQ(store_->written_keys(), (std::vector<std::string>{"dbg/tp/top/key"}));
}

TEST_P(TrackedStoreTest, LeavesWhatOthersDelete) {
  store_->put("own", "1");
  store_->put("others", "1");
  store_->leave("others");
  EXPECT_THAT(store_->written_keys(), testing::ElementsAre(testing::EndsWith("/own")));
  EXPECT_TRUE(store_->delete_written_keys());
  EXPECT_FALSE(store_->check({"own"}));
  EXPECT_TRUE(store_->check({"others"}));
}

TEST_P(TrackedStoreTest, AMovedDeadlineEndsWaitsUnderWayOfClonesToo) {
  const c10::intrusive_ptr<c10d::Store> copy = store_->clone();
  const auto began = std::chrono::steady_clock::now();
  auto waiting = std::async(std::launch::async, [&] { copy->wait({"never"}, milliseconds(20000)); });
  store_->set_deadline(began + milliseconds(100));
  EXPECT_ANY_THROW(waiting.get());
  EXPECT_LT(std::chrono::steady_clock::now() - began, milliseconds(10000));
}

INSTANTIATE_TEST_SUITE_P(Stores, TrackedStoreTest, testing::Values("memory", "file", "tcp"),
                         [](const auto& chosen) { return chosen.param; });

}  // namespace
}  // namespace dbg::distributed
