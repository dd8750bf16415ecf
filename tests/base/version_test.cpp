// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The version is one thing wherever it is written.
#include "dbg/version.h"

#include <gtest/gtest.h>

#include <string>

namespace dbg {
namespace {

TEST(VersionTest, LibraryHeadersAndProjectAgree) {
  const std::string from_header = std::to_string(DBG_VERSION_MAJOR) + "." + std::to_string(DBG_VERSION_MINOR) + "." +
                                  std::to_string(DBG_VERSION_PATCH);
  EXPECT_EQ(version(), from_header);
  EXPECT_EQ(from_header, DBG_TEST_PROJECT_VERSION) << "project(VERSION) in the top CMakeLists.txt";
}

TEST(VersionTest, NamesTheTorchItWasCompiledAgainst) {
  EXPECT_EQ(std::string(compiled_torch_version()).substr(0, 2), "2.");
}

}  // namespace
}  // namespace dbg
