// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Calls to a store that says nothing end, and what it says is passed on unchanged.
#include "broadcast/patient_store.h"

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "distributed/tracked_store.h"
#include "support/rank_threads.h"

namespace dbg::broadcast {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

// Says nothing while it is held; what it is held by outlives it.
class HeldStore : public c10d::HashStore {
 public:
  struct Gate {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_held = false;
    int num_inside = 0;
    void hold(bool held) {
      const std::lock_guard lock(mutex);
      is_held = held;
      changed.notify_all();
    }
  };
  explicit HeldStore(std::shared_ptr<Gate> gate) : gate_(std::move(gate)) {}
  bool check(const std::vector<std::string>& keys) override {
    {
      std::unique_lock lock(gate_->mutex);
      ++gate_->num_inside;
      gate_->changed.notify_all();
      gate_->changed.wait_for(lock, seconds(20), [&] { return !gate_->is_held; });
      --gate_->num_inside;
      gate_->changed.notify_all();
    }
    return c10d::HashStore::check(keys);
  }

 private:
  std::shared_ptr<Gate> gate_;
};

class PatientStoreTest : public testing::Test {
 protected:
  ~PatientStoreTest() override {
    gate_->hold(false);
    std::unique_lock lock(gate_->mutex);
    gate_->changed.wait_for(lock, seconds(20), [&] { return gate_->num_inside == 0; });
  }
  c10::intrusive_ptr<PatientStore> patient(milliseconds limit) {
    return c10::make_intrusive<PatientStore>(c10::make_intrusive<HeldStore>(gate_), limit);
  }
  std::shared_ptr<HeldStore::Gate> gate_ = std::make_shared<HeldStore::Gate>();
};

std::string refusal_of(c10d::Store& store) {
  try {
    store.check({"a"});
  } catch (const c10::DistStoreError& error) {
    return error.what_without_backtrace();
  }
  return "answered";
}

TEST_F(PatientStoreTest, AnswersAndErrorsComeThrough) {
  const auto store = patient(seconds(20));
  store->set("a", "1");
  EXPECT_TRUE(store->check({"a"}));
  EXPECT_EQ(store->get_to_str("a"), "1");
  EXPECT_EQ(store->add("n", 3), 3);
  const auto found = store->compareSet("a", "1", "2");
  EXPECT_EQ(found, "2");
  EXPECT_TRUE(store->deleteKey("a"));
  EXPECT_FALSE(store->check({"a"}));
  EXPECT_THROW(store->wait({"a"}, milliseconds(20)), c10::DistStoreError);
  // On a store that tracks keys it is found again.
  const distributed::TrackedStore tracked(store, "p");
  EXPECT_EQ(tracked.inner().get(), store.get());
}

TEST_F(PatientStoreTest, ACallWithoutAnswerEndsAndThoseAfterItAtOnceUntilTheStoreIsBack) {
  const auto store = patient(milliseconds(200));
  gate_->hold(true);
  EXPECT_THAT(refusal_of(*store), testing::HasSubstr("did not answer within 200 ms"));
  store->set_limit(seconds(20));
  const auto began = steady_clock::now();
  EXPECT_THAT(refusal_of(*store), testing::HasSubstr("still does not answer"));
  EXPECT_LT(steady_clock::now() - began, seconds(5));
  gate_->hold(false);
  const auto deadline = steady_clock::now() + seconds(20);
  while (refusal_of(*store) != "answered" && steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_EQ(refusal_of(*store), "answered");
}

TEST_F(PatientStoreTest, AShorterLimitHoldsForCallsUnderWay) {
  const auto store = patient(seconds(60));
  gate_->hold(true);
  std::thread other([&] {
    std::unique_lock lock(gate_->mutex);
    gate_->changed.wait_for(lock, seconds(20), [&] { return gate_->num_inside == 1; });
    lock.unlock();
    store->set_limit(milliseconds(10));
  });
  const auto began = steady_clock::now();
  EXPECT_THAT(refusal_of(*store), testing::HasSubstr("did not answer"));
  EXPECT_LT(steady_clock::now() - began, seconds(10));
  other.join();
}

TEST_F(PatientStoreTest, ClosingEndsWhatWaitsAndNothingIsWaitedForAtTheEnd) {
  auto store = patient(seconds(60));
  gate_->hold(true);
  std::thread other([&] {
    std::unique_lock lock(gate_->mutex);
    gate_->changed.wait_for(lock, seconds(20), [&] { return gate_->num_inside == 1; });
    lock.unlock();
    store->close();
  });
  const auto began = steady_clock::now();
  EXPECT_THAT(refusal_of(*store), testing::HasSubstr("no longer asked"));
  other.join();
  store.reset();  // its thread is still in there
  EXPECT_LT(steady_clock::now() - began, seconds(10));
}

}  // namespace
}  // namespace dbg::broadcast
