// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Environment variables for the length of a scope.
#pragma once

#include <stdlib.h>

#include <optional>
#include <string>

namespace dbg::test {

/// Sets one variable, or unsets it for nullopt, and puts back what was there. The environment belongs to the process:
/// not for tests whose other threads read it meanwhile.
class ScopedEnv {
 public:
  ScopedEnv(std::string name, const std::optional<std::string>& value) : name_(std::move(name)) {
    if (const char* before = ::getenv(name_.c_str())) before_ = before;
    put(value);
  }
  ~ScopedEnv() { put(before_); }
  ScopedEnv(const ScopedEnv&) = delete;
  ScopedEnv& operator=(const ScopedEnv&) = delete;

 private:
  void put(const std::optional<std::string>& value) const {
    if (value) {
      ::setenv(name_.c_str(), value->c_str(), 1);
    } else {
      ::unsetenv(name_.c_str());
    }
  }

  std::string name_;
  std::optional<std::string> before_;
};

}  // namespace dbg::test
