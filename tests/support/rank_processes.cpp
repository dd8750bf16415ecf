// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The parent's side: starts, watches, signals and collects rank processes.
#include "support/rank_processes.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/formatted.h"
#include "dbg/error.h"
#include "support/rank_protocol.h"

namespace dbg::test {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }
  void reset(int number) {
    close();
    number_ = number;
  }
  void close() {
    if (number_ >= 0) ::close(number_);
    number_ = -1;
  }

 private:
  int number_;
};

void require(bool worked, const char* what) {
  if (!worked) throw std::system_error(errno, std::generic_category(), what);
}

std::vector<std::string> environment_of(const RankSpawn& spawn, int rank) {
  std::map<std::string, std::optional<std::string>> changes = spawn.environment;
  changes.emplace("RANK", std::to_string(rank));
  changes.emplace("WORLD_SIZE", std::to_string(spawn.world_size));
  changes.emplace("LOCAL_RANK", std::to_string(rank));
  changes[kBodyVariable] = spawn.body;
  changes[kArgumentVariable] = spawn.argument;
  changes[kRankVariable] = std::to_string(rank);
  changes[kWorldSizeVariable] = std::to_string(spawn.world_size);
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (changes.count(std::string(text.substr(0, text.find('=')))) == 0) entries.emplace_back(text);
  }
  for (const auto& [name, value] : changes) {
    if (value) entries.push_back(name + "=" + *value);
  }
  return entries;
}

}  // namespace

struct RankProcesses::Process {
  Process(const RankSpawn& spawn, int rank_number) : rank(rank_number) {
    std::array<int, 2> pipe_ends{};
    require(::pipe2(pipe_ends.data(), O_CLOEXEC) == 0, "pipe2");
    from_child.reset(pipe_ends[0]);
    Descriptor childs_output(pipe_ends[1]);
    std::array<int, 2> sockets{};
    require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()) == 0, "socketpair");
    to_child.reset(sockets[0]);
    Descriptor childs_socket(sockets[1]);

    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, childs_output.number(), STDOUT_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, childs_output.number(), STDERR_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, childs_socket.number(), kChildSocket);
    const std::string binary = std::filesystem::read_symlink("/proc/self/exe").string();
    std::string argument_zero = binary;
    std::array<char*, 2> arguments = {argument_zero.data(), nullptr};
    std::vector<std::string> entries = environment_of(spawn, rank);
    std::vector<char*> environment;
    for (std::string& entry : entries) environment.push_back(entry.data());
    environment.push_back(nullptr);
    errno = ::posix_spawn(&pid, binary.c_str(), &actions, nullptr, arguments.data(), environment.data());
    ::posix_spawn_file_actions_destroy(&actions);
    require(errno == 0, "posix_spawn");
    childs_output.close();
    reader = std::thread([this] { collect(); });
  }

  ~Process() {
    send(SIGKILL);
    if (reader.joinable()) reader.join();
  }

  void collect() {
    std::array<char, 4096> bytes{};
    for (;;) {
      const ssize_t got = ::read(from_child.number(), bytes.data(), bytes.size());
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) break;
      const std::lock_guard lock(mutex);
      output.append(bytes.data(), static_cast<std::size_t>(got));
      changed.notify_all();
    }
    // Looked at first and taken away under the lock, so that send() never signals a process id used again.
    siginfo_t info{};
    while (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
    }
    const std::lock_guard lock(mutex);
    int status = 0;
    ::waitpid(pid, &status, 0);
    if (WIFEXITED(status)) exit_code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) signal = WTERMSIG(status);
    ended = true;
    changed.notify_all();
  }

  void send(int number) {
    const std::lock_guard lock(mutex);
    if (!ended) ::kill(pid, number);
  }

  // Waits until `text` is in the output, the process has ended, or `deadline`; returns whether the text is there.
  bool wait_for(std::string_view text, std::chrono::steady_clock::time_point deadline) {
    std::unique_lock lock(mutex);
    changed.wait_until(lock, deadline, [&] { return ended || output.find(text) != std::string::npos; });
    return output.find(text) != std::string::npos;
  }

  const int rank;
  pid_t pid = 0;
  Descriptor from_child;
  Descriptor to_child;
  std::thread reader;

  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  std::string output;
  bool ended = false;
  bool timed_out = false;
  std::optional<int> exit_code;
  std::optional<int> signal;
};

RankProcesses::RankProcesses(const RankSpawn& spawn)
    : limit_(spawn.limit), deadline_(std::chrono::steady_clock::now() + spawn.limit) {
  for (int rank = 0; rank < spawn.world_size; ++rank) processes_.push_back(std::make_unique<Process>(spawn, rank));
}

RankProcesses::~RankProcesses() = default;

void RankProcesses::wait_for_output(int rank, std::string_view text) {
  Process& process = *processes_.at(static_cast<std::size_t>(rank));
  if (process.wait_for(text, deadline_)) return;
  const std::lock_guard lock(process.mutex);
  throw Error(formatted("rank {} {} without printing '{}'; it printed:\n{}", rank,
                        process.ended ? "ended" : "reached the limit", text, process.output));
}

void RankProcesses::send_signal(int rank, int number) {
  processes_.at(static_cast<std::size_t>(rank))->send(number);
}

void RankProcesses::kill(int rank) {
  send_signal(rank, SIGKILL);
}

void RankProcesses::stop(int rank) {
  send_signal(rank, SIGSTOP);
}

void RankProcesses::resume(int rank) {
  send_signal(rank, SIGCONT);
}

void RankProcesses::set_limit(std::chrono::milliseconds limit) {
  limit_ = limit;
  deadline_ = std::chrono::steady_clock::now() + limit;
}

void RankProcesses::report_and_kill_those_running() {
  for (const auto& process : processes_) {
    {
      const std::lock_guard lock(process->mutex);
      if (process->ended) continue;
      process->timed_out = true;
    }
    process->send(SIGCONT);  // a stopped process can't answer
    const char request = kStacksPlease;
    const ssize_t ignored = ::send(process->to_child.number(), &request, 1, MSG_NOSIGNAL);
    static_cast<void>(ignored);
  }
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  for (const auto& process : processes_) {
    process->wait_for(kEndOfStacks, patience);
    process->send(SIGKILL);
  }
}

const std::vector<RankResult>& RankProcesses::wait() {
  if (!results_.empty()) return results_;
  bool all_ended = true;
  for (const auto& process : processes_) {
    std::unique_lock lock(process->mutex);
    all_ended &= process->changed.wait_until(lock, deadline_, [&process] { return process->ended; });
  }
  if (!all_ended) report_and_kill_those_running();
  bool all_passed = true;
  for (const auto& process : processes_) {
    process->reader.join();
    results_.push_back({process->rank, process->exit_code, process->signal, process->timed_out, process->output});
    all_passed &= results_.back().passed();
  }
  if (!all_passed) {
    for (const RankResult& result : results_) {
      const std::string text =
          formatted("--- rank {}{}\n{}\n", result.rank,
                    result.timed_out ? formatted(" (not done after {} ms)", limit_.count()) : "", result.output);
      const ssize_t ignored = ::write(STDERR_FILENO, text.data(), text.size());
      static_cast<void>(ignored);
    }
  }
  return results_;
}

std::vector<RankResult> spawn_ranks(const RankSpawn& spawn) {
  return RankProcesses(spawn).wait();
}

void expect_all_passed(const std::vector<RankResult>& results) {
  for (const RankResult& result : results) {
    if (result.passed()) continue;
    const std::string how = result.timed_out   ? "was not done in time"
                            : result.exit_code ? formatted("exited with {}", *result.exit_code)
                                               : formatted("was killed by signal {}", result.signal.value_or(0));
    ADD_FAILURE() << "rank " << result.rank << " " << how << "; its output is on stderr";
  }
}

}  // namespace dbg::test
