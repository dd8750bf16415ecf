// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Notes that the members of a failing group leave each other in its store, so that each can say who is silent.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dbg/error.h"
#include "distributed/group_half.h"
#include "distributed/tracked_store.h"

namespace dbg::distributed {

/// How long the notes of the others are waited for when an operation has failed, or the making of a group: so much it
/// adds to the timeout.
inline constexpr std::chrono::milliseconds kNotesLimit{400};

/// What one member says about its own failure.
///
/// In the store: key `failed/<rank in group>`, value `<kind>\n<operation>\n<sequence>\n<cause>`, and the key
/// `failed/any` once there is one. Written at most once a member. Key `made/<rank in group>`: this
/// member has made its backend. Key `closing`: how many members have closed the group.
struct FailureNote {
  CommErrorKind kind = CommErrorKind::broken;
  std::string operation;
  std::uint64_t sequence = 0;
  std::string cause;

  std::string to_text() const;
  /// nullopt for what is no note; a store may hold anything.
  static std::optional<FailureNote> parse(const std::string& text);
};

/// What the members' notes say together.
struct FailureNotes {
  std::vector<std::optional<FailureNote>> by_rank;  ///< rank in group; nullopt: silent
  std::vector<int> silent;                          ///< ranks in the group, never the caller's own
};

/// Leaves this member's note. Returns why the store did not take it within a moment; nullopt also without a store.
std::optional<std::string> leave_failure_note(const GroupHalf& half, const FailureNote& note);

/// Whether some member has left a note. One question to the store; false without one or when it does not answer within
/// a moment.
bool has_failure_note(const GroupHalf& half);

/// Waits until each other member has left a note, at most for `limit`. nullopt without a store, or when that does not
/// answer: nobody is called silent on no evidence.
std::optional<FailureNotes> collect_failure_notes(const GroupHalf& half, std::chrono::milliseconds limit);

/// Says that this member has made its backend: for those of whom another one is silent meanwhile.
/// Throws: what the store throws.
void leave_made_note(TrackedStore& notes, int rank_in_group);

/// As collect_failure_notes, while the group is made: who has made its backend is not silent, and has no note.
std::optional<FailureNotes> collect_notes_of_making(const GroupHalf& half, std::chrono::milliseconds limit);

/// Counts this member among those that close the group; returns how many have. All of them, once each.
/// Throws: what the store throws.
std::int64_t count_as_closing(TrackedStore& notes);

/// Whether all members of a group of `size` have closed it; also when the last of them has deleted the count.
/// Throws: what the store throws.
bool have_all_closed(TrackedStore& notes, int size);

/// Deletes this member's keys but leaves the others what they may still read: the count, and after a failure the note
/// of it, since a member that comes later has to hear who failed first. The last one to close (`count` is `size`)
/// deletes those of all.
/// Throws: what the store throws.
void delete_notes(TrackedStore& notes, int size, std::int64_t count);

}  // namespace dbg::distributed
