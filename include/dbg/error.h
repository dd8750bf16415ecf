// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The errors that dbg throws: from set-up calls only, never from a call inside a model.
#pragma once

#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "dbg/export.h"

namespace dbg {

/// The base of every error that dbg throws. `what()` says what was tried, with which values, and what to do next.
class DBG_API Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  ~Error() override;
};

/// A setting, expression or argument is not acceptable; nothing was changed.
class DBG_API ConfigError : public Error {
 public:
  using Error::Error;
  ~ConfigError() override;
};

/// A file could not be written or read; the text names the file and the system's reason.
class DBG_API IoError : public Error {
 public:
  /// `code` is the errno of the failed call, 0 where there was none (a malformed file, say).
  explicit IoError(const std::string& what, int code = 0);
  ~IoError() override;

  /// The errno of the failed call, 0 where there was none.
  int code() const noexcept { return code_; }

 private:
  int code_ = 0;
};

/// What kind of thing went wrong between ranks; what a program decides by.
enum class CommErrorKind {
  handshake_mismatch,  ///< the ranks are of different opinions: label, ranks, sizes, versions, dtypes ...
  peer_missing,        ///< a rank never came
  peer_lost,           ///< a rank was there and is gone: killed, closed, or its connection broke
  timeout,             ///< the deadline passed; who was waited for is in `peers` where it is known
  broken,              ///< the group failed before, or was closed, and can do nothing more
  forked,              ///< this process is a forked child; groups belong to the process that made them
  store_down,          ///< the store does not answer
  unsupported,         ///< the backend lacks the operation, or refuses these arguments
};

/// The kind as it stands in messages: `peer_lost`.
DBG_API const char* to_text(CommErrorKind kind) noexcept;

/// All that is known of one failure between ranks. Ranks are global ones.
struct CommFailure {
  CommErrorKind kind = CommErrorKind::broken;
  std::string group;       ///< the group's unique name, `tp:cpu@0_1.g0`; empty where no group is concerned
  std::string label;       ///< `tp:cpu`; empty where no group is concerned
  std::vector<int> ranks;  ///< the group's members, in its order
  int rank = -1;           ///< the one that reports; -1: not known
  std::vector<int> peers;  ///< those the failure is about (absent, silent, of another opinion), as far as known
  std::string operation;   ///< `all_reduce`
  std::chrono::milliseconds elapsed{0};  ///< from the operation's start
  std::string cause;                     ///< what happened, with values
  std::string advice;                    ///< what to do next; may be empty
};

/// A peer did not do its part: gone, silent past the deadline, or of another opinion.
class DBG_API CommError : public Error {
 public:
  explicit CommError(CommFailure failure);
  ~CommError() override;

  CommErrorKind kind() const noexcept { return failure_->kind; }
  const CommFailure& failure() const noexcept { return *failure_; }

 private:
  // Shared, so that copying the error cannot throw.
  std::shared_ptr<const CommFailure> failure_;
};

/// The caller broke a rule of the interface (a scope ended on another thread, say).
class DBG_API LogicError : public Error {
 public:
  using Error::Error;
  ~LogicError() override;
};

}  // namespace dbg
