// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// main() of test binaries that start themselves as ranks, and the rank process's side.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <thread>

#include "base/fence.h"
#include "base/formatted.h"
#include "support/rank_processes.h"
#include "support/rank_protocol.h"
#include "support/stderr_line.h"
#include "support/thread_stacks.h"

namespace dbg::test {
namespace {

std::map<std::string, RankBody, std::less<>>& bodies() {
  static std::map<std::string, RankBody, std::less<>> all;
  return all;
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

// Answers requests for stacks; ends the process when the test process is gone.
void watch_test_process() {
  name_this_thread("rank watcher");
  for (;;) {
    char request = 0;
    const ssize_t got = ::recv(kChildSocket, &request, 1, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) std::_Exit(EXIT_FAILURE);
    write_to_stderr(formatted("\n=== stacks of process {}\n{}{}\n", ::getpid(), stacks_of_other_threads(), kEndOfStacks));
  }
}

}  // namespace

bool register_rank_body(std::string_view name, RankBody body) {
  if (!bodies().emplace(name, body).second) throw std::logic_error(formatted("two rank bodies named {}", name));
  return true;
}

std::optional<int> run_rank_if_asked() {
  const std::string name = variable(kBodyVariable);
  if (name.empty()) return std::nullopt;
  const auto body = bodies().find(name);
  if (body == bodies().end()) {
    write_to_stderr(formatted("no DBG_RANK_BODY is named '{}'\n", name));
    return EXIT_FAILURE;
  }
  std::thread(watch_test_process).detach();
  name_this_thread("rank " + variable(kRankVariable));
  const RankContext context{std::stoi(variable(kRankVariable)), std::stoi(variable(kWorldSizeVariable)),
                            variable(kArgumentVariable)};
  if (const auto cause = base::run_fenced([&] { body->second(context); })) {
    write_to_stderr(formatted("rank {} threw: {}\n", context.rank, *cause));
    return EXIT_FAILURE;
  }
  return testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed() ? EXIT_FAILURE : EXIT_SUCCESS;
}

}  // namespace dbg::test

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  if (const auto exit_code = dbg::test::run_rank_if_asked()) return *exit_code;
  return RUN_ALL_TESTS();
}
