// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What a backend or store threw, as one of dbg's kinds: they throw text, and only text tells a timeout from a lost
// peer.
#pragma once

#include <string>
#include <string_view>

#include "dbg/error.h"

namespace dbg::distributed {

/// A failure as far as the exception alone tells it.
struct CommCause {
  CommErrorKind kind = CommErrorKind::broken;
  /// Whether the group can do nothing more: true unless the operation was refused before anything went out.
  bool breaks_group = true;
  std::string text;
};

/// The kind that a backend's or store's words mean.
/// Source: the words of gloo and c10d of torch 2.7 to 2.15; what is not among them is `broken`.
CommErrorKind kind_of_words(std::string_view text) noexcept;

/// What the exception being handled means. Only inside a catch block.
CommCause cause_of_current_exception() noexcept;

}  // namespace dbg::distributed
