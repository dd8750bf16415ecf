// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Asks each thread by a signal for its return addresses, then finds names for them.
#include "support/thread_stacks.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <vector>

#include "base/formatted.h"

namespace dbg::test {
namespace {

constexpr int kMostFrames = 64;
constexpr pid_t kNobody = 0;
constexpr pid_t kAnswering = -1;

// One answer at a time. `asked` decides who may write: the thread of that id, once.
struct Answer {
  std::atomic<pid_t> asked{kNobody};
  std::array<void*, kMostFrames> frames{};
  int depth = 0;
  sem_t ready{};
};

Answer& answer() {
  static Answer* value = [] {
    auto* fresh = new Answer;  // leaked: a late signal may still come
    ::sem_init(&fresh->ready, 0, 0);
    return fresh;
  }();
  return *value;
}

pid_t this_thread_id() {
  return static_cast<pid_t>(::syscall(SYS_gettid));
}

void on_signal(int /*number*/) {
  const int interrupted_errno = errno;
  Answer& slot = answer();
  pid_t expected = this_thread_id();
  if (slot.asked.compare_exchange_strong(expected, kAnswering)) {
    slot.depth = ::backtrace(slot.frames.data(), kMostFrames);
    ::sem_post(&slot.ready);
  }
  errno = interrupted_errno;
}

int stack_signal() {
  return SIGRTMIN + 6;
}

void install_handler() {
  static std::once_flag once;
  std::call_once(once, [] {
    std::array<void*, 1> frame{};
    ::backtrace(frame.data(), 1);  // loads what it needs now, not inside a handler
    answer();
    struct sigaction action {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    ::sigaction(stack_signal(), &action, nullptr);
  });
}

std::vector<void*> frames_of(pid_t thread) {
  Answer& slot = answer();
  slot.asked = thread;
  if (::syscall(SYS_tgkill, ::getpid(), thread, stack_signal()) != 0) {
    slot.asked = kNobody;
    return {};
  }
  timespec deadline{};
  ::clock_gettime(CLOCK_REALTIME, &deadline);
  deadline.tv_sec += 1;
  while (::sem_timedwait(&slot.ready, &deadline) != 0) {
    if (errno == EINTR) continue;
    pid_t expected = thread;
    if (slot.asked.compare_exchange_strong(expected, kNobody)) return {};
    ::sem_wait(&slot.ready);  // it has begun to answer
    break;
  }
  slot.asked = kNobody;
  return std::vector<void*>(slot.frames.begin(), slot.frames.begin() + slot.depth);  // braces would make a list of two
}

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(name, nullptr, nullptr, &status),
                                                         &std::free);
  return status == 0 && text ? text.get() : name;
}

// What addr2line prints for an address of the running binary, functions that were inlined there first; or nothing.
std::string from_addr2line(const void* base, const void* address) {
  const auto offset = static_cast<std::size_t>(static_cast<const char*>(address) - static_cast<const char*>(base));
  const std::string binary = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string command = formatted("addr2line -Cfpie '{}' {:#x} 2>/dev/null", binary, offset);
  std::string lines;
  if (FILE* pipe = ::popen(command.c_str(), "r")) {
    std::array<char, 4096> text{};
    while (std::fgets(text.data(), static_cast<int>(text.size()), pipe) != nullptr) lines += text.data();
    ::pclose(pipe);
  }
  while (!lines.empty() && lines.back() == '\n') lines.pop_back();
  return lines.rfind("??", 0) == 0 ? std::string() : lines;
}

const void* base_of_this_binary() {
  Dl_info info{};
  ::dladdr(reinterpret_cast<const void*>(&install_handler), &info);
  return info.dli_fbase;
}

std::string frame_text(void* address) {
  // A return address is the instruction after the call, which may belong to the next function.
  const void* call = static_cast<const char*>(address) - 1;
  Dl_info info{};
  if (::dladdr(call, &info) == 0 || info.dli_fname == nullptr) return formatted("{}", address);
  if (info.dli_sname != nullptr) return demangled(info.dli_sname);
  if (info.dli_fbase == base_of_this_binary()) {
    std::string text = from_addr2line(info.dli_fbase, call);
    if (!text.empty()) return text;
  }
  return formatted("{}+{:#x}", std::filesystem::path(info.dli_fname).filename().string(),
                   static_cast<const char*>(call) - static_cast<const char*>(info.dli_fbase));
}

}  // namespace

std::string stacks_of_other_threads() {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  install_handler();
  std::string text;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    const std::string id = entry.path().filename().string();
    pid_t thread = 0;
    std::from_chars(id.data(), id.data() + id.size(), thread);
    if (thread == this_thread_id()) continue;
    std::string name;
    std::ifstream comm(entry.path() / "comm");
    std::getline(comm, name);
    text += formatted("thread {} ({}):\n", thread, name);
    const std::vector<void*> frames = frames_of(thread);
    if (frames.empty()) text += "    no answer\n";
    // The first two are the handler and the trampoline that called it.
    for (std::size_t i = 2; i < frames.size(); ++i) text += formatted("    #{} {}\n", i - 2, frame_text(frames[i]));
  }
  return text;
}

void name_this_thread(const std::string& name) {
  ::pthread_setname_np(::pthread_self(), name.substr(0, 15).c_str());
}

}  // namespace dbg::test
