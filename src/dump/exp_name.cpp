// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Proposing and claiming experiment names.
#include "dump/exp_name.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "base/fnv_hash.h"
#include "base/formatted.h"
#include "base/no_cancellation.h"
#include "dbg/error.h"
#include "dump/atomic_file.h"
#include "dump/config_knobs.h"

namespace dbg {
namespace {

// Of a file in /proc.
std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Of a claim or a place: what this user wrote, as a plain file, and no more than such a file holds. Anything else that
// goes by its name (a FIFO, which would wait for a writer; a link; a device; a huge file) is none.
struct BoardFile {
  std::string text;
  std::int64_t time_ns = 0;

  std::string first_line() const { return text.substr(0, text.find('\n')); }
};

// Whether a file is of this user. Some network file systems give root's files to somebody else: the folder's owner
// then.
bool is_own(const struct stat& file, const std::string& path) {
  if (file.st_uid == ::geteuid()) return true;
  struct stat folder {};
  return ::stat(path.substr(0, path.rfind('/')).c_str(), &folder) == 0 && file.st_uid == folder.st_uid;
}

std::optional<BoardFile> read_board_file(const std::string& path) {
  constexpr std::size_t kLongest = 4096;
  const base::NoCancellation until_closed;
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC);
  if (descriptor < 0) return std::nullopt;
  std::optional<BoardFile> file;
  struct stat status {};
  if (::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode) && is_own(status, path) &&
      status.st_size <= static_cast<off_t>(kLongest)) {
    char bytes[kLongest];
    std::size_t size = 0;
    ssize_t got = 0;
    do {
      got = ::read(descriptor, bytes + size, sizeof bytes - size);
      if (got > 0) size += static_cast<std::size_t>(got);
    } while (size < sizeof bytes && (got > 0 || (got < 0 && errno == EINTR)));
    if (got >= 0) {
      file.emplace();
      file->text.assign(bytes, size);
      file->time_ns = std::int64_t{status.st_mtim.tv_sec} * 1000000000 + status.st_mtim.tv_nsec;
    }
  }
  ::close(descriptor);
  return file;
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

struct ProcessStatus {
  char state = '?';
  std::string start_time;  // clock ticks since boot; empty when there is no such process
};

// Fields 3 and 22 of /proc/<pid>/stat; the name in field 2 may hold spaces and brackets, so count from its last
// bracket.
ProcessStatus status_of(long pid) {
  ProcessStatus status;
  const std::string stat = first_line(formatted("/proc/{}/stat", pid));
  const std::size_t bracket = stat.rfind(')');
  if (bracket == std::string::npos) return status;
  std::istringstream fields(stat.substr(bracket + 1));
  std::string field;
  for (int number = 3; number <= 22; ++number) {
    if (!(fields >> field)) return status;
    if (number == 3) status.state = field.front();
  }
  status.start_time = field;
  return status;
}

// Says which process wrote a line, unmistakably: pids are used again, and several machines may share the folder.
struct ProcessIdentity {
  std::string host;
  std::string boot;
  std::string pid_namespace;
  long pid = 0;
  std::string start_time;

  static ProcessIdentity own() {
    char host[256] = "";
    if (::gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
    char pid_namespace[64] = "";
    const bool has_namespace = ::readlink("/proc/self/ns/pid", pid_namespace, sizeof pid_namespace - 1) > 0;
    const std::string boot = first_line("/proc/sys/kernel/random/boot_id");
    const long pid = ::getpid();
    return {host[0] != '\0' ? host : "?", boot.empty() ? "?" : boot, has_namespace ? pid_namespace : "?", pid,
            status_of(pid).start_time};
  }
  std::string to_line() const { return formatted("{} {} {} {} {}", host, boot, pid_namespace, pid, start_time); }
};

std::optional<ProcessIdentity> parse_identity(const std::string& line) {
  std::istringstream fields(line);
  ProcessIdentity identity;
  fields >> identity.host >> identity.boot >> identity.pid_namespace >> identity.pid >> identity.start_time;
  if (!fields) return std::nullopt;
  return identity;
}

std::int64_t ns_since_boot() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return std::int64_t{now.tv_sec} * 1000000000 + now.tv_nsec;
}

// When a process started, rounded down to a clock tick; nullopt when it is not told.
std::optional<std::int64_t> started_ns(const std::string& start_time) {
  std::int64_t ticks = 0;
  const auto parsed = std::from_chars(start_time.data(), start_time.data() + start_time.size(), ticks);
  const long ticks_a_second = ::sysconf(_SC_CLK_TCK);
  if (parsed.ec != std::errc() || ticks_a_second <= 0) return std::nullopt;
  return ticks * (1000000000 / ticks_a_second);
}

struct Claimed {
  std::string exp_name;
  std::optional<ProcessIdentity> claimant;
  std::int64_t claimed_since_boot_ns = 0;
  std::int64_t time_ns = 0;
};

// nullopt when there is no claim of that path, or one whose name is not that of a folder.
std::optional<Claimed> read_claim(const std::string& path) {
  const std::optional<BoardFile> file = read_board_file(path);
  if (!file) return std::nullopt;
  std::istringstream lines(file->text);
  Claimed claim;
  std::string identity;
  std::getline(lines, claim.exp_name);
  // Whoever may write into the folder must not say where records go.
  if (!dumping::path_component_fault(claim.exp_name).empty()) return std::nullopt;
  std::getline(lines, identity);
  lines >> claim.claimed_since_boot_ns;
  claim.claimant = parse_identity(identity);
  claim.time_ns = file->time_ns;
  return claim;
}

// Whether a claim was left by a launch before ours.
bool is_of_earlier_launch(const Claimed& claim, const ProcessIdentity& own) {
  if (!claim.claimant) return true;  // not written by us, or by another version
  const ProcessIdentity& claimant = *claim.claimant;
  if (claimant.host != own.host) return false;  // can't know
  if (claimant.boot != own.boot) return true;
  if (claimant.pid_namespace != own.pid_namespace) return false;  // can't know
  const ProcessStatus now = status_of(claimant.pid);
  const bool is_gone = now.start_time != claimant.start_time || now.state == 'Z' || now.state == 'X';
  const std::optional<std::int64_t> own_start_ns = started_ns(own.start_time);
  return is_gone && own_start_ns && *own_start_ns > claim.claimed_since_boot_ns;
}

// The numbers of a key's claims, the newest first. Throws: std::system_error.
std::vector<int> claims_of(const std::string& folder, const std::string& key) {
  const std::string prefix = key + ".";
  std::vector<int> numbers;
  std::error_code error;
  std::filesystem::directory_iterator entries(folder, error);
  if (error == std::errc::no_such_file_or_directory) return numbers;
  if (error) throw std::system_error(error);
  for (const auto& entry : entries) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix)) continue;
    int number = 0;
    const char* const end = name.data() + name.size();
    const auto parsed = std::from_chars(name.data() + prefix.size(), end, number);
    if (parsed.ec == std::errc() && parsed.ptr == end) numbers.push_back(number);
  }
  std::sort(numbers.begin(), numbers.end(), std::greater<>());
  return numbers;
}

// Creates a file, whole from the first moment on. Returns false when it is there already. Throws: IoError.
bool create_exclusively(const std::string& folder, const std::string& name, const std::string& text) {
  dumping::AtomicFile file(folder);
  file.write(text.data(), text.size());  // publish says what went wrong
  return file.publish(name);
}

std::string as_word(const std::string& text, std::size_t longest) {
  std::string word;
  for (const char c : text.substr(0, longest)) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    word.push_back(plain ? c : '_');
  }
  return word;
}

// The parts as one word for people, and a hash for what the word can't tell apart, on which all ranks agree.
std::string key_of(const std::vector<std::string>& parts) {
  std::uint64_t hash = base::kFnvStart;
  std::string text;
  for (const std::string& part : parts) {
    hash = base::fnv_hash(part + '\0', hash);
    text += part + "_";
  }
  return formatted("{}{:016x}", as_word(text, 100), hash);
}

}  // namespace

std::string propose_exp_name(std::chrono::system_clock::time_point now, std::uint32_t random) {
  const auto since_epoch = now.time_since_epoch();
  const auto seconds = std::chrono::floor<std::chrono::seconds>(since_epoch);
  const auto milliseconds = std::chrono::floor<std::chrono::milliseconds>(since_epoch - seconds);
  const std::time_t time = static_cast<std::time_t>(seconds.count());
  std::tm utc{};
  ::gmtime_r(&time, &utc);
  return formatted("dump_{:04}{:02}{:02}_{:02}{:02}{:02}_{:03}{:03}", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday,
                   utc.tm_hour, utc.tm_min, utc.tm_sec, milliseconds.count(), random % 1000);
}

ExpNameClaim LocalExpNameBoard::claim(const std::string& proposal) {
  struct timespec now {};
  // The coarse clock is the one that stamps files: a record written right after this is not older than it.
  ::clock_gettime(CLOCK_REALTIME_COARSE, &now);
  return {proposal, std::int64_t{now.tv_sec} * 1000000000 + now.tv_nsec};
}

FileExpNameBoard::FileExpNameBoard(const std::string& dir, std::string key, int rank)
    : folder_(formatted("{}/.dbg_exp_names_{}", dir, ::geteuid())), key_(std::move(key)), rank_(rank) {}

ExpNameClaim FileExpNameBoard::claim(const std::string& proposal) {
  const auto failure = [this](const std::string& cause, int code) {
    return IoError(
        formatted("the ranks can't agree on an exp_name in '{}': {}. Give the folder room and write permission, or "
                  "set DUMPER_EXP_NAME",
                  folder_, cause),
        code);
  };
  try {
    const ProcessIdentity own = ProcessIdentity::own();
    const std::string line = own.to_line() + "\n";
    const auto take_place = [&](int launch) {
      const std::string place = formatted("{}.{}.rank{}", key_, launch, rank_);
      if (create_exclusively(folder_, place, line)) return true;
      const std::optional<BoardFile> taken = read_board_file(folder_ + "/" + place);
      return taken && taken->first_line() == own.to_line();
    };
    // Two launches may propose the same name in the same millisecond.
    std::string exp_name;
    const auto take_name = [&] {
      for (int number = 1; exp_name.empty(); ++number) {
        const std::string name = number == 1 ? proposal : formatted("{}_{}", proposal, number);
        if (create_exclusively(folder_, "name." + name, line)) exp_name = name;
      }
    };
    constexpr int kAttempts = 1000;  // each lost to another process that claimed in the same moment
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      const std::vector<int> launches = claims_of(folder_, key_);
      for (const int launch : launches) {
        const std::optional<Claimed> claim = read_claim(formatted("{}/{}.{}", folder_, key_, launch));
        if (!claim) continue;  // removed in this moment, or none of ours
        if (is_of_earlier_launch(*claim, own)) break;
        if (take_place(launch)) return {claim->exp_name, claim->time_ns, false};
      }
      take_name();
      const int fresh = launches.empty() ? 0 : launches.front() + 1;
      const std::string name = formatted("{}.{}", key_, fresh);
      if (!create_exclusively(folder_, name, formatted("{}\n{}{}\n", exp_name, line, ns_since_boot()))) continue;
      dumping::remove_stale_temporaries(folder_);
      const std::optional<Claimed> claim = read_claim(folder_ + "/" + name);
      if (claim && take_place(fresh)) return {exp_name, claim->time_ns, true};
      exp_name.clear();  // it is theirs who came between
    }
  } catch (const IoError& error) {
    throw failure(error.what(), error.code());
  } catch (const std::system_error& error) {
    throw failure(error.what(), error.code().value());
  }
  throw failure("other launches took every name", EAGAIN);
}

std::string launch_key() {
  const std::string run_id = variable("TORCHELASTIC_RUN_ID");
  const std::string address = variable("MASTER_ADDR");
  if (!run_id.empty() || !address.empty()) {
    // The same may be launched again from one shell: the board tells these apart.
    return key_of({run_id, variable("TORCHELASTIC_RESTART_COUNT"), address, variable("MASTER_PORT")});
  }
  const long parent = ::getppid();
  return key_of({"parent", std::to_string(parent), status_of(parent).start_time});
}

std::string launch_key_of_all_nodes() {
  const std::string run_id = variable("TORCHELASTIC_RUN_ID");
  return run_id.empty() ? std::string() : key_of({run_id, variable("TORCHELASTIC_RESTART_COUNT")});
}

bool launch_spans_nodes() {
  const auto number = [](const char* name) { return std::atoi(variable(name).c_str()); };
  const int world = number("WORLD_SIZE");
  const int local = number("LOCAL_WORLD_SIZE");
  return (world > 0 && local > 0 && world > local) || number("GROUP_WORLD_SIZE") > 1 || number("SLURM_NNODES") > 1;
}

}  // namespace dbg
