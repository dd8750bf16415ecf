// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Sorts what backends and stores throw.
#include "distributed/comm_cause.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <exception>
#include <optional>
#include <utility>

#include "base/fence.h"
#include "distributed/store_caller.h"

namespace dbg::distributed {
namespace {

struct Words {
  std::string_view part;
  CommErrorKind kind;
};

// The first that is found decides: a checked group says "mismatch" in the middle of much else, and gloo's
// "Application timeout caused pair closure" speaks of both.
constexpr std::array<Words, 17> kWords{{
    {"Detected mismatch between collectives", CommErrorKind::handshake_mismatch},
    {"does not support", CommErrorKind::unsupported},
    {"doesn't support", CommErrorKind::unsupported},
    {"is not supported", CommErrorKind::unsupported},
    {"Unsupported data type", CommErrorKind::unsupported},
    {"Invalid scalar type", CommErrorKind::unsupported},
    {"not implemented", CommErrorKind::unsupported},
    {"closed by peer", CommErrorKind::peer_lost},
    {"reset by peer", CommErrorKind::peer_lost},
    {"Broken pipe", CommErrorKind::peer_lost},
    {"Connection refused", CommErrorKind::peer_lost},
    {"ncclRemoteError", CommErrorKind::peer_lost},
    {"failed to pass monitoredBarrier", CommErrorKind::timeout},
    {"imed out", CommErrorKind::timeout},
    {"imeout", CommErrorKind::timeout},
    {"Try again", CommErrorKind::timeout},
    {"ocket closed", CommErrorKind::peer_lost},
}};

std::optional<CommErrorKind> kind_of_type() noexcept {
  try {
    throw;
  } catch (const c10::NotImplementedError&) {
    return CommErrorKind::unsupported;
  } catch (const c10::DistStoreError&) {
    return CommErrorKind::store_down;
  } catch (const StoreSilent&) {
    return CommErrorKind::store_down;
  } catch (...) {
    return std::nullopt;
  }
}

}  // namespace

CommErrorKind kind_of_words(std::string_view text) noexcept {
  const auto* const found = std::find_if(kWords.begin(), kWords.end(),
                                         [&](const Words& words) { return text.find(words.part) != text.npos; });
  return found != kWords.end() ? found->kind : CommErrorKind::broken;
}

CommCause cause_of_current_exception() noexcept {
  CommCause cause;
  cause.text = base::describe_current_exception();
  cause.kind = kind_of_type().value_or(kind_of_words(cause.text));
  cause.breaks_group = cause.kind != CommErrorKind::unsupported && cause.kind != CommErrorKind::handshake_mismatch;
  return cause;
}

}  // namespace dbg::distributed
