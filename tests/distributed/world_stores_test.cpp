// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The stores a World can be made over, and what is said when they can't be reached.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "base/formatted.h"
#include "dbg/error.h"
#include "dbg/world.h"
#include "distributed/messages.h"
#include "support/rank_processes.h"
#include "support/temp_folder.h"

namespace dbg {
namespace {

using std::chrono::milliseconds;
using test::message_of;
using testing::AllOf;
using testing::HasSubstr;

TEST(WorldStoresTest, AStoreThatNobodyServesIsSaidWithinTheTimeout) {
  // A port that was free a moment ago.
  const std::uint16_t port = World::over_tcp({"127.0.0.1", 0, true}, 0, 1).store_port();
  WorldOptions options;
  options.timeout = milliseconds(1000);
  const auto began = std::chrono::steady_clock::now();
  try {
    World::over_tcp({"127.0.0.1", port, false}, 1, 2, options);
    FAIL() << "nothing was thrown";
  } catch (const CommError& error) {
    EXPECT_EQ(error.kind(), CommErrorKind::store_down);
    EXPECT_THAT(error.what(), AllOf(HasSubstr(formatted("127.0.0.1:{}", port)), HasSubstr("as a client")));
    EXPECT_GE(error.failure().elapsed, milliseconds(500));
  }
  EXPECT_LE(std::chrono::steady_clock::now() - began, milliseconds(2000));
}

TEST(WorldStoresTest, TwoServersOfOneProcessShareThePort) {
  const World first = World::over_tcp({"127.0.0.1", 0, true}, 0, 2);
  const World second = World::over_tcp({"127.0.0.1", first.store_port(), true}, 1, 2);
  first.store()->set("key", std::vector<std::uint8_t>{3});
  EXPECT_NO_THROW(second.store()->wait({"key"}, milliseconds(5000)));  // a client's set() waits for no answer
}

TEST(WorldStoresTest, APortThatIsTakenIsAnErrorOfTheServer) {
  const World first = World::over_tcp({"127.0.0.1", 0, true}, 0, 1);
  const auto results = test::spawn_ranks(
      {.body = "serves_a_taken_port", .world_size = 1, .argument = std::to_string(first.store_port())});
  test::expect_all_passed(results);
}

TEST(WorldStoresTest, RanksMeetInAFile) {
  const test::TempFolder folder;
  const World first = World::over_file(folder / "store", 0, 2);
  const World second = World::over_file(folder / "store", 1, 2);
  first.store()->set("key", std::vector<std::uint8_t>{5});
  EXPECT_EQ(second.store()->get("key"), std::vector<std::uint8_t>{5});
}

TEST(WorldStoresTest, AFileThatCannotBeMadeIsAnError) {
  WorldOptions options;
  options.timeout = milliseconds(500);
  EXPECT_THAT(message_of<CommError>([&] { World::over_file("/nowhere/at/all", 0, 1, options); }),
              HasSubstr("opening the FileStore /nowhere/at/all"));
}

DBG_RANK_BODY(serves_a_taken_port) {
  const auto port = static_cast<std::uint16_t>(std::stoi(context.argument));
  WorldOptions options;
  options.timeout = milliseconds(2000);
  EXPECT_THAT(message_of<CommError>([&] {
                World::over_tcp({"127.0.0.1", port, true}, 0, 1, options);
              }),
              AllOf(HasSubstr("as its server"), HasSubstr(std::to_string(port))));
}

}  // namespace
}  // namespace dbg
