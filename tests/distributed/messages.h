// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The words of an error.
#pragma once

#include <string>

namespace dbg::test {

/// What `code` throws as `Failure` says.
template <class Failure, class Code>
std::string message_of(Code&& code) {
  try {
    code();
  } catch (const Failure& error) {
    return error.what();
  }
  return "(nothing was thrown)";
}

}  // namespace dbg::test
