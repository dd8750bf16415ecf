// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Signals. (That they end real operations is in p2p_test.cpp and collective_call_test.cpp.)
#include "distributed/abort_signal.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace dbg::distributed {
namespace {

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

TEST(AbortSignalTest, TheFirstCauseStays) {
  AbortSignal signal;
  EXPECT_FALSE(signal.cause().has_value());
  signal.raise("first");
  signal.raise("second");
  EXPECT_EQ(signal.cause(), "first");
}

}  // namespace
}  // namespace dbg::distributed
