// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Reading a pickle that has to be fine, one that must not be, and one of which parts are refused.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "codec/archive_reader.h"
#include "dbg/error.h"

namespace dbg::test::pickled {

/// The value, of which nothing may have been refused.
inline c10::IValue read(const std::string& bytes, const codec::ReadLimits& limits = {}) {
  std::vector<codec::Refusal> refusals;
  c10::IValue value = codec::read_pickle_bytes(bytes.data(), bytes.size(), limits, &refusals);
  for (const auto& refusal : refusals) ADD_FAILURE() << refusal.path << ": " << refusal.reason;
  return value;
}

/// What reading says; fails the test when it goes through.
inline std::string error_of(const std::string& bytes, const codec::ReadLimits& limits = {}) {
  try {
    codec::read_pickle_bytes(bytes.data(), bytes.size(), limits);
  } catch (const IoError& error) {
    return error.what();
  }
  ADD_FAILURE() << "it was read";
  return {};
}

/// "path: reason" of every refusal.
inline std::vector<std::string> refusals_of(const std::string& bytes) {
  std::vector<codec::Refusal> refusals;
  codec::read_pickle_bytes(bytes.data(), bytes.size(), {}, &refusals);
  std::vector<std::string> out;
  for (const auto& refusal : refusals) out.push_back(refusal.path + ": " + refusal.reason);
  return out;
}

}  // namespace dbg::test::pickled
