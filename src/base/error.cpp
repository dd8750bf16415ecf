// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The errors' key functions, so that their type information exists once.
#include "dbg/error.h"

namespace dbg {

Error::~Error() = default;
ConfigError::~ConfigError() = default;
IoError::IoError(const std::string& what, int code) : Error(what), code_(code) {}
IoError::~IoError() = default;
CommError::~CommError() = default;
LogicError::~LogicError() = default;

}  // namespace dbg
