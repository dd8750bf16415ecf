// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The errors that dbg throws: from set-up calls only, never from a call inside a model.
#pragma once

#include <stdexcept>
#include <string>

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

/// A peer did not do its part: gone, silent past the deadline, or of another opinion.
class DBG_API CommError : public Error {
 public:
  using Error::Error;
  ~CommError() override;
};

/// The caller broke a rule of the interface (a scope ended on another thread, say).
class DBG_API LogicError : public Error {
 public:
  using Error::Error;
  ~LogicError() override;
};

}  // namespace dbg
