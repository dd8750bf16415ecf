// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Proposing and claiming experiment names.
#include "dump/exp_name.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

#include "dbg/error.h"

namespace dbg {
namespace {

constexpr const char* kBoardFolder = ".dbg_exp_names";

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

// Field 22 of /proc/<pid>/stat; the name in field 2 may hold spaces and brackets, so count from its last bracket.
std::string start_time_of(long pid) {
  const std::string stat = first_line(fmt::format("/proc/{}/stat", pid));
  const std::size_t bracket = stat.rfind(')');
  if (bracket == std::string::npos) return "";
  std::istringstream fields(stat.substr(bracket + 1));
  std::string field;
  for (int number = 3; number <= 22; ++number) {
    if (!(fields >> field)) return "";
  }
  return field;
}

// Says which process wrote a line, unmistakably: pids are used again, and several hosts may share the folder.
struct ProcessIdentity {
  std::string host;
  std::string boot;
  long pid = 0;
  std::string start_time;
  long parent = 0;
  std::string parent_start_time;

  static ProcessIdentity own() {
    char host[256] = "";
    if (::gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
    const std::string boot = first_line("/proc/sys/kernel/random/boot_id");
    const long pid = ::getpid();
    const long parent = ::getppid();
    return {host[0] != '\0' ? host : "?", boot.empty() ? "?" : boot, pid, start_time_of(pid), parent,
            start_time_of(parent)};
  }
  std::string to_line() const {
    return fmt::format("{} {} {} {} {} {}", host, boot, pid, start_time, parent, parent_start_time);
  }
};

std::optional<ProcessIdentity> parse_identity(const std::string& line) {
  std::istringstream fields(line);
  ProcessIdentity identity;
  fields >> identity.host >> identity.boot >> identity.pid >> identity.start_time >> identity.parent >>
      identity.parent_start_time;
  if (!fields) return std::nullopt;
  return identity;
}

// Whether a claim was left by a launch before ours. A claimant that ended already may still be of our launch (a rank
// that ran quickly); what tells is whether the same launcher started it.
bool is_of_earlier_launch(const ProcessIdentity& claimant, const ProcessIdentity& own) {
  if (claimant.host != own.host) return false;  // can't know
  if (claimant.boot != own.boot) return true;
  if (claimant.parent == own.parent && claimant.parent_start_time == own.parent_start_time) return false;
  if (::kill(static_cast<pid_t>(claimant.pid), 0) != 0 && errno == ESRCH) return true;
  return start_time_of(claimant.pid) != claimant.start_time;
}

struct Claimed {
  std::string exp_name;
  std::optional<ProcessIdentity> claimant;
  std::int64_t time_ns = 0;
};

std::optional<Claimed> read_claim(const std::string& path) {
  struct stat status {};
  std::ifstream file(path);
  if (!file || ::stat(path.c_str(), &status) != 0) return std::nullopt;
  Claimed claim;
  std::string identity;
  std::getline(file, claim.exp_name);
  std::getline(file, identity);
  claim.claimant = parse_identity(identity);
  claim.time_ns = std::int64_t{status.st_mtim.tv_sec} * 1000000000 + status.st_mtim.tv_nsec;
  return claim;
}

// Creates `path` with `text`, whole from the first moment on: written under another name, then linked. Returns false
// when it is there already. Throws: IoError.
bool create_exclusively(const std::string& path, const std::string& text) {
  const std::string temporary = fmt::format("{}.{}.tmp", path, ::getpid());
  const int file = ::open(temporary.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0600);
  const auto fail = [&](int code) {
    ::unlink(temporary.c_str());
    throw IoError(
        fmt::format("can't create '{}': {}; give the folder room and write permission, or set DUMPER_EXP_NAME", path,
                    std::strerror(code)),
        code);
  };
  if (file < 0) fail(errno);
  const ssize_t written = ::write(file, text.data(), text.size());
  const int write_error = written < 0 ? errno : ENOSPC;
  const bool whole = written == static_cast<ssize_t>(text.size());
  if (::close(file) != 0 && whole) fail(errno);
  if (!whole) fail(write_error);
  const int linked = ::link(temporary.c_str(), path.c_str());
  const int link_error = errno;
  if (linked != 0 && link_error != EEXIST) fail(link_error);
  ::unlink(temporary.c_str());
  return linked == 0;
}

std::string as_word(const std::string& text) {
  std::string word;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    word.push_back(plain ? c : '_');
  }
  return word.substr(0, 120);
}

}  // namespace

std::string propose_exp_name(std::chrono::system_clock::time_point now, std::uint32_t random) {
  const auto since_epoch = now.time_since_epoch();
  const auto seconds = std::chrono::floor<std::chrono::seconds>(since_epoch);
  const auto milliseconds = std::chrono::floor<std::chrono::milliseconds>(since_epoch - seconds);
  const std::time_t time = static_cast<std::time_t>(seconds.count());
  std::tm utc{};
  ::gmtime_r(&time, &utc);
  return fmt::format("dump_{:04}{:02}{:02}_{:02}{:02}{:02}_{:03}{:03}", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday,
                     utc.tm_hour, utc.tm_min, utc.tm_sec, milliseconds.count(), random % 1000);
}

ExpNameClaim LocalExpNameBoard::claim(const std::string& proposal) {
  struct timespec now {};
  // The coarse clock is the one that stamps files: a record written right after this is not older than it.
  ::clock_gettime(CLOCK_REALTIME_COARSE, &now);
  return {proposal, std::int64_t{now.tv_sec} * 1000000000 + now.tv_nsec};
}

FileExpNameBoard::FileExpNameBoard(std::string dir, std::string key, int rank)
    : folder_(std::move(dir) + "/" + kBoardFolder), key_(std::move(key)), rank_(rank) {}

ExpNameClaim FileExpNameBoard::claim(const std::string& proposal) {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) {
    throw IoError(
        fmt::format("can't create the folder '{}': {}; set DUMPER_EXP_NAME, or DUMPER_DIR to a folder that can "
                    "be written",
                    folder_, error.message()),
        error.value());
  }
  ::chmod(folder_.c_str(), 0700);
  const ProcessIdentity own = ProcessIdentity::own();
  constexpr int kMostLaunches = 100000;  // of one key; far beyond what one shell starts
  for (int launch = 0; launch < kMostLaunches; ++launch) {
    const std::string path = fmt::format("{}/{}.{}", folder_, key_, launch);
    const bool is_first = create_exclusively(path, proposal + "\n" + own.to_line() + "\n");
    const std::optional<Claimed> claim = read_claim(path);
    if (!claim) continue;  // removed in this moment
    const std::string place = fmt::format("{}.rank{}", path, rank_);
    if (!is_first && claim->claimant && is_of_earlier_launch(*claim->claimant, own)) continue;
    if (!create_exclusively(place, own.to_line() + "\n") && first_line(place) != own.to_line()) continue;
    return {claim->exp_name, claim->time_ns};
  }
  throw IoError(fmt::format("'{}' holds too many old launches; remove it, or set DUMPER_EXP_NAME", folder_));
}

std::string launch_key() {
  const std::string run_id = variable("TORCHELASTIC_RUN_ID");
  const std::string address = variable("MASTER_ADDR");
  if (!run_id.empty() || !address.empty()) {
    // A launch without torchelastic but with a master may be repeated from one shell: the board tells these apart.
    return as_word(fmt::format("{}_{}_{}_{}", run_id.empty() ? "run" : run_id, variable("TORCHELASTIC_RESTART_COUNT"),
                               address, variable("MASTER_PORT")));
  }
  const long parent = ::getppid();
  return as_word(fmt::format("parent_{}_{}", parent, start_time_of(parent)));
}

bool launch_spans_nodes() {
  const auto number = [](const char* name) { return std::atoi(variable(name).c_str()); };
  const int world = number("WORLD_SIZE");
  const int local = number("LOCAL_WORLD_SIZE");
  return (world > 0 && local > 0 && world > local) || number("GROUP_WORLD_SIZE") > 1 || number("SLURM_NNODES") > 1;
}

}  // namespace dbg
