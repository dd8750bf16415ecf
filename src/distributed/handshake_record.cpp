// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// JSON in and out; nonces; the process's own facts.
#include "distributed/handshake_record.h"

#include <fmt/ranges.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "base/formatted.h"

namespace dbg::distributed {
namespace {

using nlohmann::json;

// Far more than a record of a large group needs; a store may hold anything.
constexpr std::size_t kMostBytes = 1 << 24;

template <class Read>
auto read_json(std::string_view text, Read&& read) -> std::optional<decltype(read(json()))> {
  if (text.size() > kMostBytes) return std::nullopt;
  try {
    return read(json::parse(text));
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

CommErrorKind kind_from(const json& value) {
  const int number = value.get<int>();
  for (const CommErrorKind known : {CommErrorKind::handshake_mismatch, CommErrorKind::peer_lost}) {
    if (number == static_cast<int>(known)) return known;
  }
  return CommErrorKind::peer_missing;
}

std::string fresh_nonce() {
  std::random_device device;
  return formatted("{:08x}{:08x}{:08x}", device(), device(), device());
}

std::string own_machine() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

std::string own_host() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "?";
  return name.data();
}

}  // namespace

std::string HandshakeRecord::to_json() const {
  return json{{"nonce", nonce},
              {"rank", rank},
              {"ranks", ranks},
              {"settings", settings},
              {"host", host},
              {"machine", machine},
              {"pid", pid},
              {"loopback", binds_to_loopback},
              {"gone", gone},
              {"gone_kind", static_cast<int>(gone_kind)},
              {"gone_peers", gone_peers}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

std::optional<HandshakeRecord> HandshakeRecord::from_json(std::string_view text) {
  return read_json(text, [](const json& value) {
    HandshakeRecord record;
    value.at("nonce").get_to(record.nonce);
    value.at("rank").get_to(record.rank);
    value.at("ranks").get_to(record.ranks);
    value.at("settings").get_to(record.settings);
    value.at("host").get_to(record.host);
    value.at("machine").get_to(record.machine);
    value.at("pid").get_to(record.pid);
    value.at("loopback").get_to(record.binds_to_loopback);
    value.at("gone").get_to(record.gone);
    record.gone_kind = kind_from(value.at("gone_kind"));
    value.at("gone_peers").get_to(record.gone_peers);
    return record;
  });
}

HandshakeRecord HandshakeRecord::of_this_process() {
  HandshakeRecord record;
  record.nonce = fresh_nonce();
  record.host = own_host();
  record.machine = own_machine();
  record.pid = ::getpid();
  return record;
}

std::string HandshakeRecord::who() const {
  return formatted("rank {} (pid {} on {})", rank, pid, host);
}

std::optional<bool> HandshakeRecord::is_alive() const {
  if (machine.empty() || machine != own_machine() || host != own_host()) return std::nullopt;
  return ::kill(static_cast<pid_t>(pid), 0) == 0 || errno == EPERM;
}

std::optional<std::string> difference_of(const HandshakeRecord& a, const HandshakeRecord& b) {
  if (a.ranks != b.ranks) {
    return formatted("{} has ranks [{}], {} has ranks [{}]", a.who(), fmt::join(a.ranks, ", "), b.who(),
                     fmt::join(b.ranks, ", "));
  }
  for (const auto& [what, value] : a.settings) {
    const auto theirs = b.settings.find(what);
    if (theirs == b.settings.end() || theirs->second != value) {
      return formatted("{} has {} {}, {} has {}", a.who(), what, value, b.who(),
                       theirs == b.settings.end() ? "none" : theirs->second);
    }
  }
  if (a.settings.size() != b.settings.size()) return formatted("{} and {} have unlike settings", a.who(), b.who());
  if (a.machine != b.machine && (a.binds_to_loopback || b.binds_to_loopback)) {
    return formatted("{} and {} are on two machines, and gloo binds to loopback on {}", a.who(), b.who(),
                     (a.binds_to_loopback ? a : b).host);
  }
  return std::nullopt;
}

std::string HandshakeMail::to_json() const {
  return json{{"prepare", prepare}, {"kind", static_cast<int>(kind)}, {"peers", peers}, {"cause", cause}}.dump(
      -1, ' ', false, json::error_handler_t::replace);
}

std::optional<HandshakeMail> HandshakeMail::from_json(std::string_view text) {
  return read_json(text, [](const json& value) {
    HandshakeMail mail;
    value.at("prepare").get_to(mail.prepare);
    mail.kind = kind_from(value.at("kind"));
    value.at("peers").get_to(mail.peers);
    value.at("cause").get_to(mail.cause);
    return mail;
  });
}

}  // namespace dbg::distributed
