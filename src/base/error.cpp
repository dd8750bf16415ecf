// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The errors' key functions, so that their type information exists once, and the words of a failure between ranks.
#include "dbg/error.h"

#include <fmt/ranges.h>

#include <string_view>
#include <utility>

#include "base/formatted.h"

namespace dbg {
namespace {

void append_sentence(std::string& text, std::string_view sentence) {
  while (!sentence.empty() && (sentence.back() == '.' || sentence.back() == ' ')) sentence.remove_suffix(1);
  if (!sentence.empty()) text += formatted(" {}.", sentence);
}

// "tp:cpu (group tp:cpu@0_1.g0, ranks [0, 1]): all_reduce on rank 0 failed after 2.004 s: timeout, peers [1]. CAUSE.
// ADVICE."
std::string words_of(const CommFailure& failure) {
  std::string text = failure.label;
  if (!failure.group.empty() || !failure.ranks.empty()) {
    std::string of_group = failure.group.empty() ? std::string() : "group " + failure.group;
    if (!failure.ranks.empty()) {
      of_group += formatted("{}ranks [{}]", of_group.empty() ? "" : ", ", fmt::join(failure.ranks, ", "));
    }
    text += formatted("{}({})", text.empty() ? "" : " ", of_group);
  }
  if (!text.empty()) text += ": ";
  text += failure.operation.empty() ? std::string("an operation") : failure.operation;
  if (failure.rank >= 0) text += formatted(" on rank {}", failure.rank);
  text += formatted(" failed after {:.3f} s: {}", static_cast<double>(failure.elapsed.count()) / 1000.0,
                    to_text(failure.kind));
  if (!failure.peers.empty()) {
    text += formatted(", {} {}", failure.peers.size() == 1 ? "peer" : "peers", fmt::join(failure.peers, ", "));
  }
  text += '.';
  append_sentence(text, failure.cause);
  append_sentence(text, failure.advice);
  return text;
}

}  // namespace

Error::~Error() = default;
ConfigError::~ConfigError() = default;
IoError::IoError(const std::string& what, int code) : Error(what), code_(code) {}
IoError::~IoError() = default;
CommError::CommError(CommFailure failure)
    : Error(words_of(failure)), failure_(std::make_shared<const CommFailure>(std::move(failure))) {}
CommError::~CommError() = default;
LogicError::~LogicError() = default;

const char* to_text(CommErrorKind kind) noexcept {
  switch (kind) {
    case CommErrorKind::handshake_mismatch:
      return "handshake_mismatch";
    case CommErrorKind::peer_missing:
      return "peer_missing";
    case CommErrorKind::peer_lost:
      return "peer_lost";
    case CommErrorKind::timeout:
      return "timeout";
    case CommErrorKind::broken:
      return "broken";
    case CommErrorKind::forked:
      return "forked";
    case CommErrorKind::store_down:
      return "store_down";
    case CommErrorKind::unsupported:
      return "unsupported";
  }
  return "unknown";
}

}  // namespace dbg
