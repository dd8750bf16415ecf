// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The Grafter: puts named tensors of one running system into another. Hangs on a Dumper as its interceptor.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dbg/config.h"
#include "dbg/dumper.h"
#include "dbg/export.h"
#include "dbg/parallel_state.h"
#include "dbg/tags.h"

namespace dbg {

/// Which part a run plays. `file`: there is no other run; the values come from a folder of records.
enum class GraftRole { baseline, target, file };

/// Which way a tensor flows: `b2t` baseline to target, `t2b` back.
enum class GraftDirection { b2t, t2b };

/// `baseline`, `target`, `file`; `b2t`, `t2b`: as the knobs and the log have them.
DBG_API const char* to_text(GraftRole role) noexcept;
DBG_API const char* to_text(GraftDirection direction) noexcept;

/// Everything a Grafter can be told. The same on both sides, but for `role` (and `transform`, where only one receives).
/// As knobs of a Dumper the fields are called `grafter_*`.
struct DBG_API GraftConfig {
  GraftRole role = GraftRole::target;
  /// Which dumps flow which way, as expressions of docs/filter.md over the tags and `step`; empty: none.
  std::string b2t_filter = {};
  std::string t2b_filter = {};
  /// Where baseline rank 0 serves the store.
  std::string master_address = {};
  int master_port = -1;
  int baseline_world_size = -1;
  int target_world_size = -1;
  std::string backend = "gloo";
  std::string group_name = "graft";
  /// For meeting the other side, and for each graft.
  std::chrono::milliseconds timeout{std::chrono::seconds(300)};
  /// Name of a registered transform. Empty: identity by rank.
  std::string transform = {};
  /// The longest payload of one rank that is taken. On Python's wire, where each rank gets all of them padded to the
  /// longest, they may take four times that together; a sender that knows its own to be too much gives nothing.
  std::int64_t max_bytes = std::int64_t{4} << 30;
  /// For role `file`: a folder of records.
  std::string folder = {};
  /// Speaks the Python twin's wire even where all ranks are dbg: to see what the other costs, and what it is for.
  bool plain_wire = false;
  /// For tests: faults throw, once this rank has done its part of the protocol.
  bool strict = false;

  /// The `grafter_*` knobs and `strict`. Throws: ConfigError for a role that is none.
  static GraftConfig from(const DumperConfig& config);

  /// Throws: one ConfigError with every fault and the offending values.
  void validate() const;
};

/// What a tensor's axes mean on one rank, where that rank said so.
struct GraftPlace {
  /// As `DumpOptions::dims` (dbg/dims.h), or `dims` in the extras; empty: not said.
  std::string dims = {};
  /// The rank's place, from the Dumper's plugins, or `<axis>_rank` and `<axis>_size` in the extras.
  ParallelState parallel = {};
};

/// What a transform sees on one receiving rank.
struct GraftInput {
  const Tags& tags;                          ///< of this rank's dump
  std::vector<at::Tensor> received;          ///< one a sender, in rank order, on the target's device
  std::vector<c10::IValue> received_extras;  ///< each sender's `DumpOptions::grafter_extras`; None where omitted
  at::Tensor target;                         ///< a copy of the tensor that is to be replaced
  GraftDirection direction = GraftDirection::b2t;
  int receiver_rank = 0;  ///< this rank among the receivers
  int receiver_count = 1;
  std::vector<GraftPlace> received_places = {};  ///< of the senders
  GraftPlace target_place = {};
};

/// Makes what replaces the target: a tensor of the target's shape and dtype. May throw, and may do with `target` what
/// it likes: the model's tensor is touched only when all went well.
/// Threads: called on the dumping thread, with no lock held.
using GraftTransform = std::function<at::Tensor(const GraftInput&)>;

/// Ends a registration. Removing twice is harmless; keeps nothing alive, and dropping it removes nothing.
class DBG_API GraftTransformHandle {
 public:
  GraftTransformHandle() = default;
  /// Calls that are under way go on with the old one.
  void remove() noexcept;

 private:
  friend DBG_API GraftTransformHandle register_graft_transform(const std::string& name, GraftTransform transform);
  std::string name_;
  std::uint64_t id_ = 0;
};

/// Makes `name` usable as `transform`. Built in:
/// - `identity`: the sender of this receiver's rank; needs as many senders as receivers. The default.
/// - `cast`: the same, made the target's dtype.
/// - `select:N`: sender N.  `average`: the mean of all senders, in double.
/// - `concat:D`: all senders joined along dimension D.  `slice:D`: sender 0's part along D that is this receiver's.
/// - `dims`: puts the senders' shards together and takes this receiver's, by the dims and places of both sides.
/// Threads: safe to call from any thread.
/// Throws: ConfigError when the name is empty, taken, built in or holds a `:`, or the function is empty.
DBG_API GraftTransformHandle register_graft_transform(const std::string& name, GraftTransform transform);

/// What became of the calls that a filter matched, on one rank. Each is in exactly one of the first nine.
struct GraftCounters {
  std::uint64_t sent = 0;         ///< its tensor was on offer; what a receiver made of it, that one's counters say
  std::uint64_t grafted = 0;      ///< the target holds the new value
  std::uint64_t failed = 0;       ///< the transform threw, or gave the wrong shape or dtype
  std::uint64_t refused = 0;      ///< a contribution that can't be read, or is damaged
  std::uint64_t empty = 0;        ///< a side had no tensor to give, or none that can be written into (expanded, say)
  std::uint64_t out_of_step = 0;  ///< the sides were at different names, tags or steps
  std::uint64_t ambiguous = 0;    ///< both filters matched
  std::uint64_t missing = 0;      ///< role `file`: there is no such record
  std::uint64_t off = 0;          ///< grafting was off, or went off in this call
  std::uint64_t bytes_sent = 0;   ///< of tensors, to each receiver
  std::uint64_t bytes_received = 0;
};

enum class GraftPhase {
  waiting,   ///< no dump has matched yet, or the sides are about to meet
  grafting,  ///< the sides have met; for role `file`, a dump has matched
  off,       ///< for the rest of the run; `cause` says why
};

/// How grafting stands on one rank.
struct GraftState {
  GraftPhase phase = GraftPhase::waiting;
  std::string cause;  ///< why it is off
  std::string peers;  ///< `dbg` when all ranks are, `python` when one is not; empty before they met
  std::string label;  ///< of the group: `graft:cpu`
  GraftCounters counters;
};

/// Puts the tensors of one run into another while both run.
///
/// At a dump that a filter matches, the senders' tensors go to the receivers, whose transform makes of them what then
/// replaces the tensor that was dumped. The ranks of both runs are one group: the baseline's first, then the target's.
/// Each participant joins it at its first matching dump, and waits there for all others, at most `timeout`. A rank
/// meets once: another Participant object of that rank is refused, and so is another Grafter while baseline rank 0
/// serves the store in which this one met; that takes another port or group name.
///
/// Calls are told apart by step, name, direction, how often that name came, and those tags that all ranks have: where
/// the ranks are at different ones, nothing is grafted until the next step at the latest, and the log says who was
/// where. (Python's wire says nothing of that; there calls are paired by their order.) A dump during the capture of a
/// CUDA graph takes part with nothing to give, or to put a value into, so that nobody waits for it.
///
/// A debug tool never harms the run: what fails is logged and counted, the target keeps its value to the bit, and
/// grafting goes on with the next call, or, when a peer is gone or silent, is off for the rest of the run. Wire: the
/// Python twin's where one of the ranks is Python (src/graft/python_wire.h), else dbg's own (src/graft/framed_wire.h).
///
///     dbg::Grafter grafter(config);
///     dumper.set_interceptor(grafter.interceptor());
///
/// The process's own Dumper has one as soon as its `grafter_enable` is on (dbg/runtime.h).
/// Threads: safe to call from any thread; calls of one participant take turns at the wire. A forked child's copy is
/// off, and may be destroyed.
class DBG_API Grafter {
 public:
  /// Throws: ConfigError when the configuration is not acceptable; IoError when `folder` can't be read.
  explicit Grafter(GraftConfig config);
  /// As `close`.
  ~Grafter();
  Grafter(const Grafter&) = delete;
  Grafter& operator=(const Grafter&) = delete;

  /// Grafts, if a filter matches; for role `file`, if `b2t_filter` does. Never throws unless `strict`.
  /// Collective: where it matches, all ranks of both sides call it, in the same order.
  void intercept(const Interception& interception);

  /// What a Dumper is given: calls `intercept`. After `close` it does nothing.
  ValueInterceptor interceptor();

  const GraftConfig& config() const noexcept;

  /// Of the calling participant.
  GraftState state() const;

  /// Ends calls that wait for the others, also those that have not met them yet, leaves the group, and for role `file`
  /// says which records nobody asked for. Waits for no transform; at most some seconds. Never throws.
  void close() noexcept;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace dbg
