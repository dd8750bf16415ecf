// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// One worker's view of a store, which a test can make fail before or after a call is done.
#pragma once

#include <c10/util/Exception.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "distributed/tracked_store.h"

namespace dbg::test {

/// Hooks get the call's name and its first key, and may throw. The watch's own client has none of them.
class HookedStore : public distributed::TrackedStore {
 public:
  using Hook = std::function<void(const std::string& call, const std::string& key)>;
  HookedStore(c10::intrusive_ptr<c10d::Store> inner, Hook before, Hook after = {})
      : TrackedStore(std::move(inner), "hooked"), before_(std::move(before)), after_(std::move(after)) {}

  using c10d::Store::compareSet;
  using c10d::Store::set;
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override {
    if (before_) before_("set", key);
    TrackedStore::set(key, value);
    if (after_) after_("set", key);
  }
  std::vector<std::uint8_t> compareSet(const std::string& key, const std::vector<std::uint8_t>& expected,
                                       const std::vector<std::uint8_t>& desired) override {
    if (before_) before_("compareSet", key);
    auto found = TrackedStore::compareSet(key, expected, desired);
    if (after_) after_("compareSet", key);
    return found;
  }
  bool check(const std::vector<std::string>& keys) override {
    if (before_) before_("check", keys.front());
    const bool found = TrackedStore::check(keys);
    if (after_) after_("check", keys.front());
    return found;
  }

 private:
  Hook before_;
  Hook after_;
};

[[noreturn]] inline void throw_store_error() {
  C10_THROW_ERROR(DistStoreError, "connection reset by a test");
}

}  // namespace dbg::test
