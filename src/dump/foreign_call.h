// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Whether a thread is inside code that the Dumper called: that may dump in its turn, and must not be called for it.
#pragma once

namespace dbg::detail {

/// Who is called.
enum class Foreign { interceptor, plugin };

/// While it lives, the calling thread is inside foreign code of that kind. An interceptor that dumps (a value it
/// derived), or a plugin that does, would else be called for its own dump, and for that one's, until the stack ends.
template <Foreign kind>
class ForeignCall {
 public:
  ForeignCall() noexcept : was_inside_(inside_) { inside_ = true; }
  ~ForeignCall() { inside_ = was_inside_; }
  ForeignCall(const ForeignCall&) = delete;
  ForeignCall& operator=(const ForeignCall&) = delete;

  static bool is_inside() noexcept { return inside_; }

 private:
  static constinit inline thread_local bool inside_ = false;
  const bool was_inside_;
};

}  // namespace dbg::detail
