// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Agreement over a store: the first cause counts for all, signals go up soon, the roll names who is silent.
#include "broadcast/sync_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

namespace dbg::broadcast {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::ElementsAre;
using testing::HasSubstr;

class SyncWatchTest : public testing::Test {
 protected:
  std::unique_ptr<SyncWatch> watch(int worker, int count = 3) {
    return std::make_unique<SyncWatch>(c10::make_intrusive<distributed::TrackedStore>(store_, "test"), worker, count,
                                       worker == 0);
  }
  c10::intrusive_ptr<c10d::HashStore> store_ = c10::make_intrusive<c10d::HashStore>();
};

SyncCause cause(const std::string& text) {
  SyncCause made;
  made.kind = CommErrorKind::peer_lost;
  made.text = text;
  made.advice = "look";
  made.workers = {1, 2};
  return made;
}

bool is_raised_within(const distributed::AbortSignal& signal, milliseconds limit) {
  const auto deadline = steady_clock::now() + limit;
  while (!signal.cause() && steady_clock::now() < deadline) std::this_thread::sleep_for(milliseconds(2));
  return signal.cause().has_value();
}

TEST_F(SyncWatchTest, TheFirstCauseCountsForAllAndReachesThem) {
  const auto a = watch(0);
  const auto b = watch(1);
  const auto c = watch(2);
  const auto signal_a = a->begin(4);
  const auto signal_c = c->begin(4);
  b->begin(4);
  EXPECT_EQ(b->fail(4, cause("the first")).value().text, "the first");
  EXPECT_EQ(a->fail(4, cause("the second")).value().text, "the first");
  EXPECT_EQ(signal_a->cause(), "the first");
  EXPECT_TRUE(is_raised_within(*signal_c, milliseconds(2000)));
  const SyncCause known = c->verdict(4).cause.value();
  EXPECT_EQ(known.kind, CommErrorKind::peer_lost);
  EXPECT_EQ(known.advice, "look");
  EXPECT_THAT(known.workers, ElementsAre(1, 2));
}

TEST_F(SyncWatchTest, ACommitIsDecidedOnceAndAgainstNoCause) {
  const auto a = watch(0);
  const auto b = watch(1);
  const auto signal = b->begin(1);
  a->begin(1);
  EXPECT_FALSE(b->verdict(1).is_decided);
  EXPECT_FALSE(a->decide_commit(1));
  EXPECT_TRUE(b->verdict(1).is_decided);
  EXPECT_FALSE(b->fail(1, cause("too late")));
  EXPECT_FALSE(is_raised_within(*signal, milliseconds(150)));
  a->begin(2);
  b->begin(2);
  b->fail(2, cause("in time"));
  EXPECT_EQ(a->decide_commit(2).value().text, "in time");
}

TEST_F(SyncWatchTest, AnEarlierSyncsCauseIsNotThisOnes) {
  const auto a = watch(0);
  a->begin(1);
  a->fail(1, cause("old"));
  a->end();
  const auto signal = a->begin(2);
  EXPECT_FALSE(is_raised_within(*signal, milliseconds(200)));
  EXPECT_FALSE(a->verdict(2).is_decided);
}

TEST_F(SyncWatchTest, TheRollNamesWhoIsSilentAndWhatOthersDo) {
  const auto a = watch(0);
  const auto b = watch(1);  // there is no third
  a->begin(1);
  b->begin(1);
  b->activity().set("takes weight 3 from its source", true);
  b->activity().set_buckets(17);
  const SyncWatch::Roll roll = a->call_roll(1, milliseconds(600));
  EXPECT_THAT(roll.silent, ElementsAre(2));
  EXPECT_THAT(roll.answers[1], testing::AllOf(HasSubstr("takes weight 3 from its source (the program's own code)"),
                                              HasSubstr("17 buckets")));
}

TEST_F(SyncWatchTest, OneCallsTheRollForAll) {
  const auto a = watch(0);
  const auto b = watch(1);
  EXPECT_TRUE(a->may_call_roll(1));
  EXPECT_FALSE(b->may_call_roll(1));
  EXPECT_TRUE(a->may_call_roll(1));
  EXPECT_TRUE(b->may_call_roll(2));
}

// Notes what it is asked for.
class NotingStore : public c10d::HashStore {
 public:
  bool check(const std::vector<std::string>& keys) override {
    const std::lock_guard lock(mutex_);
    ++count_;
    asked_.insert(keys.begin(), keys.end());
    return c10d::HashStore::check(keys);
  }
  std::set<std::string> asked(int at_least) {
    const auto deadline = steady_clock::now() + milliseconds(5000);
    for (;;) {
      {
        const std::lock_guard lock(mutex_);
        if (count_ >= at_least || steady_clock::now() > deadline) return asked_;
      }
      std::this_thread::sleep_for(milliseconds(2));
    }
  }

 private:
  std::mutex mutex_;
  int count_ = 0;
  std::set<std::string> asked_;
};

TEST_F(SyncWatchTest, AQuietSyncAsksTheStoreOneQuestion) {
  const auto store = c10::make_intrusive<NotingStore>();
  SyncWatch quiet(c10::make_intrusive<distributed::TrackedStore>(store, "test"), 0, 2, true);
  quiet.begin(1);
  EXPECT_THAT(store->asked(3), ElementsAre("test/s/1/news"));
  // A store of thousands of workers hears about as much as one of five hundred.
  EXPECT_EQ(watch_period(2), milliseconds(50));
  EXPECT_EQ(watch_period(512), milliseconds(51));
  EXPECT_EQ(watch_period(4096), milliseconds(409));
  EXPECT_EQ(watch_period(100000), milliseconds(500));
}

TEST_F(SyncWatchTest, ActorsLearnTheMostThatAnyBegan) {
  const auto a = watch(0, 2);
  const auto other =
      std::make_unique<SyncWatch>(c10::make_intrusive<distributed::TrackedStore>(store_, "test"), 1, 2, true);
  a->begin(1);
  other->begin(1);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(other->pulls().begin());
  EXPECT_TRUE(a->pulls().begin());
  a->fail(1, cause("over"));
  EXPECT_EQ(a->most_pulled(1, 2, milliseconds(2000)), 5);
  EXPECT_FALSE(a->pulls().begin());
  EXPECT_FALSE(other->pulls().begin());  // its watch has frozen it
  a->pulls().begin_frozen();
  EXPECT_EQ(a->pulls().count(), 2);
}

TEST_F(SyncWatchTest, AnythingInTheStoreIsACauseInWords) {
  EXPECT_EQ(SyncCause::from_json("not json").text, "not json");
  EXPECT_EQ(SyncCause::from_json("{\"kind\": 7}").text, "{\"kind\": 7}");
  EXPECT_EQ(SyncCause::from_json(cause("ключ \xff").to_json()).kind, CommErrorKind::peer_lost);
}

TEST_F(SyncWatchTest, KeysOfASyncGo) {
  const auto a = watch(0, 2);
  a->begin(1);
  a->call_roll(1, milliseconds(10));
  a->fail(1, cause("over"));
  a->most_pulled(1, 1, milliseconds(10));
  a->end();
  a->forget(1, true);
  EXPECT_EQ(store_->getNumKeys(), 0);
}

}  // namespace
}  // namespace dbg::broadcast
