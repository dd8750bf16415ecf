// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Adds the time of a scope to a sum.
#pragma once

#include <chrono>

namespace dbg::broadcast {

class ScopeTime {
 public:
  explicit ScopeTime(double& sum) : sum_(sum), began_(std::chrono::steady_clock::now()) {}
  ~ScopeTime() { sum_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count(); }
  ScopeTime(const ScopeTime&) = delete;
  ScopeTime& operator=(const ScopeTime&) = delete;

 private:
  double& sum_;
  std::chrono::steady_clock::time_point began_;
};

}  // namespace dbg::broadcast
