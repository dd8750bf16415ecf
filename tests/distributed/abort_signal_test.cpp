// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Signals and the watch on a store. (That they end real operations is in p2p_test.cpp and collective_call_test.cpp.)
#include "distributed/abort_signal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "dbg/error.h"
#include "support/log_capture.h"

namespace dbg::distributed {
namespace {

using std::chrono::steady_clock;
using testing::HasSubstr;

class CountsAborts final : public c10d::Work {
 public:
  void abort() override {
    ++aborts;
    if (throws) throw std::runtime_error("a backend that can't");
  }
  std::atomic<int> aborts{0};
  bool throws = false;
};

TEST(AbortSignalTest, EndsWhatWaitsAndWhatBeginsLaterButNotWhatIsOver) {
  AbortSignal signal;
  const auto over = c10::make_intrusive<CountsAborts>();
  const auto waiting = c10::make_intrusive<CountsAborts>();
  const auto later = c10::make_intrusive<CountsAborts>();
  waiting->throws = true;
  { const AbortSignal::Scope scope(&signal, over); }
  const AbortSignal::Scope scope(&signal, waiting);
  signal.raise("enough");
  const AbortSignal::Scope begun_later(&signal, later);
  EXPECT_EQ(over->aborts, 0);
  EXPECT_EQ(waiting->aborts, 1);
  EXPECT_EQ(later->aborts, 1);
}

TEST(AbortWatchTest, AWatchThatIsNeverAskedEndsAtOnce) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto signal = std::make_shared<AbortSignal>();
  const auto started = steady_clock::now();
  { const AbortWatch watch(store, "abort", signal); }
  EXPECT_LT(steady_clock::now() - started, std::chrono::seconds(2));
  EXPECT_FALSE(signal->cause().has_value());
}

TEST(AbortSignalTest, TheFirstCauseStays) {
  AbortSignal signal;
  EXPECT_FALSE(signal.cause().has_value());
  signal.raise("first");
  signal.raise("second");
  EXPECT_EQ(signal.cause(), "first");
}

TEST(AbortWatchTest, RaisesWhenTheKeyAppears) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto signal = std::make_shared<AbortSignal>();
  const AbortWatch watch(store, "abort", signal);
  raise_through_store(*store, "abort", "the source ended");
  const auto deadline = steady_clock::now() + std::chrono::seconds(20);
  while (!signal->cause() && steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_EQ(signal->cause(), "the source ended");
}

// A store that is down.
class NoStore final : public c10d::Store {
 public:
  c10::intrusive_ptr<c10d::Store> clone() override { return c10::make_intrusive<NoStore>(); }
  void set(const std::string&, const std::vector<std::uint8_t>&) override { fail(); }
  std::vector<std::uint8_t> get(const std::string&) override { fail(); }
  std::int64_t add(const std::string&, std::int64_t) override { fail(); }
  bool deleteKey(const std::string&) override { fail(); }
  bool check(const std::vector<std::string>&) override { fail(); }
  std::int64_t getNumKeys() override { fail(); }
  void wait(const std::vector<std::string>&) override { fail(); }
  void wait(const std::vector<std::string>&, const std::chrono::milliseconds&) override { fail(); }

 private:
  [[noreturn]] static void fail() { throw std::runtime_error("nobody answers"); }
};

TEST(AbortWatchTest, AStoreThatIsDownRaisesNothing) {
  const test::LogCapture log;
  const auto signal = std::make_shared<AbortSignal>();
  { const AbortWatch watch(c10::make_intrusive<NoStore>(), "abort", signal); }
  EXPECT_FALSE(signal->cause().has_value());
  NoStore store;
  try {
    raise_through_store(store, "abort", "cause");
    ADD_FAILURE() << "no error";
  } catch (const CommError& error) {
    EXPECT_EQ(error.kind(), CommErrorKind::store_down);
    EXPECT_THAT(error.what(), HasSubstr("nobody answers"));
  }
}

}  // namespace
}  // namespace dbg::distributed
