// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Calls of a store that falls silent: each ends in time, later ones at once, and all is well once it answers again.
#include "distributed/store_caller.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <utility>
#include <vector>

#include "dbg/error.h"
#include "dbg/world.h"
#include "distributed/tracked_store.h"

namespace dbg::distributed {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
using testing::HasSubstr;

// As the client of a TCPStore whose server is stopped: what is asked waits until it goes on.
class SilentStore final : public c10d::Store {
 public:
  ~SilentStore() override {
    if (at_end_) at_end_();
  }
  c10::intrusive_ptr<c10d::Store> clone() override {
    answer();
    return c10::make_intrusive<SilentStore>();
  }
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override {
    answer();
    inner_.set(key, value);
  }
  std::vector<std::uint8_t> get(const std::string& key) override {
    answer();
    return inner_.get(key);
  }
  std::int64_t add(const std::string& key, std::int64_t value) override {
    answer();
    return inner_.add(key, value);
  }
  bool deleteKey(const std::string& key) override {
    answer();
    return inner_.deleteKey(key);
  }
  bool check(const std::vector<std::string>& keys) override {
    answer();
    return inner_.check(keys);
  }
  std::int64_t getNumKeys() override {
    answer();
    return inner_.getNumKeys();
  }
  void wait(const std::vector<std::string>&) override { answer(); }
  void wait(const std::vector<std::string>&, const milliseconds&) override { answer(); }

  /// What its end is to do.
  void at_end(std::function<void()> job) { at_end_ = std::move(job); }
  void stop() {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
  }
  // Returns when a call waits here.
  void await_question() {
    std::unique_lock lock(mutex_);
    asked_.wait_for(lock, std::chrono::seconds(20), [this] { return num_waiting_ != 0; });
  }
  void go_on() {
    const std::lock_guard lock(mutex_);
    is_stopped_ = false;
    changed_.notify_all();
  }

 private:
  void answer() {
    std::unique_lock lock(mutex_);
    ++num_waiting_;
    asked_.notify_all();
    changed_.wait(lock, [this] { return !is_stopped_; });
    --num_waiting_;
  }
  c10d::HashStore inner_;
  std::function<void()> at_end_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable asked_;
  bool is_stopped_ = false;
  int num_waiting_ = 0;
};

class StoreCallerTest : public testing::Test {
 protected:
  ~StoreCallerTest() override { store_->go_on(); }

  std::int64_t ask(milliseconds patience) {
    return caller_->call(
        "add", [](c10d::Store& store) { return store.add("n", 1); }, Clock::now() + patience);
  }

  // What asking throws, which it must do by `limit`.
  std::string silence(milliseconds patience, milliseconds limit) {
    const auto began = Clock::now();
    std::string words = "(none)";
    try {
      ask(patience);
    } catch (const StoreSilent& error) {
      words = error.what();
    }
    EXPECT_LT(Clock::now() - began, limit) << words;
    return words;
  }

  void expect_answers() {
    const auto deadline = Clock::now() + std::chrono::seconds(10);
    while (caller_->fault() && Clock::now() < deadline) std::this_thread::yield();
    EXPECT_EQ(caller_->fault(), std::nullopt);
    EXPECT_GT(ask(milliseconds(10000)), 0);
  }

  c10::intrusive_ptr<SilentStore> store_ = c10::make_intrusive<SilentStore>();
  std::shared_ptr<StoreCaller> caller_ = StoreCaller::of(store_);
};

TEST_F(StoreCallerTest, HandsOnAnswersAndErrors) {
  EXPECT_EQ(ask(milliseconds(10000)), 1);
  EXPECT_EQ(ask(milliseconds(10000)), 2);
  const auto fail = [](c10d::Store&) { throw ConfigError("the store's own words"); };
  EXPECT_THROW(caller_->call("fail", fail), ConfigError);
  EXPECT_EQ(ask(milliseconds(10000)), 3);
}

TEST_F(StoreCallerTest, ASilentStoreEndsTheCallAndLaterOnesAtOnce) {
  store_->stop();
  EXPECT_THAT(silence(milliseconds(500), milliseconds(1500)), HasSubstr("does not answer: 'add' has been under way"));
  EXPECT_NE(caller_->fault(), std::nullopt);
  EXPECT_THAT(silence(milliseconds(20000), milliseconds(1000)), HasSubstr("does not answer"));
  store_->go_on();
  expect_answers();
}

TEST_F(StoreCallerTest, AMissedLookIsForgiven) {
  store_->stop();
  {
    const StoreDeadline look(Clock::now() + milliseconds(250), StoreDeadline::Missed::is_forgiven);
    EXPECT_THAT(silence(milliseconds(20000), milliseconds(1500)), HasSubstr("does not answer"));
  }
  EXPECT_EQ(caller_->fault(), std::nullopt);
  std::thread later([&] { store_->go_on(); });
  // Waits behind the look that was left behind, and gets its answer.
  EXPECT_EQ(ask(milliseconds(20000)), 2);
  later.join();
}

TEST_F(StoreCallerTest, TheEarliestDeadlineOfTheThreadCounts) {
  store_->stop();
  const StoreDeadline outer(Clock::now() + milliseconds(300));
  const StoreDeadline inner(Clock::now() + milliseconds(20000));
  EXPECT_NE(silence(milliseconds(20000), milliseconds(1500)), "(none)");
}

TEST_F(StoreCallerTest, OneThatIsLeftBehindHoldsUpNobody) {
  store_->stop();
  EXPECT_NE(silence(milliseconds(200), milliseconds(1500)), "(none)");
  const auto began = Clock::now();
  caller_.reset();
  EXPECT_LT(Clock::now() - began, milliseconds(1000));
}

TEST_F(StoreCallerTest, AShorterLimitHoldsForCallsUnderWay) {
  store_->stop();
  std::thread other([&] {
    store_->await_question();
    caller_->set_limit(milliseconds(10));
  });
  EXPECT_THAT(silence(milliseconds(20000), milliseconds(5000)), HasSubstr("does not answer"));
  EXPECT_EQ(caller_->limit(), milliseconds(10));
  other.join();
}

TEST_F(StoreCallerTest, TheEndEndsWhatWaitsThereAndNobodyElse) {
  const auto others = c10::make_intrusive<TrackedStore>(store_, "dbg");
  const auto keys = TrackedStore::with_own_caller(store_, "sync");
  const auto clone = keys->with_own_client();
  store_->stop();
  std::thread other([&] {
    store_->await_question();
    keys->end("the sync is over");
  });
  const auto began = Clock::now();
  EXPECT_THAT([&] { keys->put("a", "1"); }, testing::ThrowsMessage<StoreSilent>(HasSubstr("the sync is over")));
  EXPECT_LT(Clock::now() - began, milliseconds(5000));
  other.join();
  store_->go_on();
  EXPECT_THROW(keys->put("a", "1"), StoreSilent);
  clone->put("b", "1");
  others->put("c", "1");
}

TEST_F(StoreCallerTest, AllThatStandOnAStoreShareOne) {
  EXPECT_EQ(StoreCaller::of(store_), caller_);
  const std::weak_ptr<StoreCaller> watched = caller_;
  caller_.reset();
  EXPECT_TRUE(watched.expired());
  EXPECT_NE(StoreCaller::of(store_), nullptr);
}

TEST_F(StoreCallerTest, GroupsKeysEndInTimeAlsoOneInAnother) {
  const auto keys = c10::make_intrusive<TrackedStore>(store_, "dbg");
  const auto nested = c10::make_intrusive<TrackedStore>(keys, "tp");
  nested->put("a", "1");
  store_->stop();
  const StoreDeadline in_time(Clock::now() + milliseconds(300));
  const auto began = Clock::now();
  EXPECT_THROW(nested->put("b", "1"), StoreSilent);
  EXPECT_THROW(keys->wait({"never"}, milliseconds(20000)), StoreSilent);
  EXPECT_FALSE(keys->delete_written_keys());
  EXPECT_LT(Clock::now() - began, milliseconds(2000));
  EXPECT_NE(nested->fault(), std::nullopt);
}

// As the server of a TCPStore while its only thread looks up the name of a client.
class StoreEndTest : public testing::Test {
 protected:
  ~StoreEndTest() override { may_end_.set_value(); }

  c10::intrusive_ptr<SilentStore> slow_to_end() {
    auto store = c10::make_intrusive<SilentStore>();
    const std::shared_future<void> may_end = may_end_.get_future().share();
    store->at_end([may_end, ended = ended_] {
      may_end.wait_for(std::chrono::seconds(10));
      ended->set_value();
    });
    return store;
  }

  // `drop` lets go of the last reference.
  template <class Drop>
  void expect_ends_by_itself(Drop drop) {
    const auto began = Clock::now();
    drop();
    EXPECT_LT(Clock::now() - began, std::chrono::seconds(5));
    const auto has_ended = ended_->get_future();
    EXPECT_EQ(has_ended.wait_for(milliseconds(0)), std::future_status::timeout);
    std::exchange(may_end_, std::promise<void>()).set_value();
    EXPECT_EQ(has_ended.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  }

  std::promise<void> may_end_;
  std::shared_ptr<std::promise<void>> ended_ = std::make_shared<std::promise<void>>();
};

TEST_F(StoreEndTest, HoldsUpNobodyWhoAskedIt) {
  auto caller = std::make_unique<StoreCaller>(slow_to_end());
  EXPECT_EQ(caller->call("add", [](c10d::Store& store) { return store.add("n", 1); }), 1);
  expect_ends_by_itself([&] { caller.reset(); });
}

TEST_F(StoreEndTest, HoldsUpNobodyWhoNeverDid) {
  auto caller = std::make_unique<StoreCaller>(slow_to_end());
  expect_ends_by_itself([&] { caller.reset(); });
}

TEST_F(StoreEndTest, HoldsUpNobodyWhoseWorldStoodOnIt) {
  std::optional<World> world = World::create(slow_to_end(), 0, 1);
  expect_ends_by_itself([&] { world.reset(); });
}

}  // namespace
}  // namespace dbg::distributed
