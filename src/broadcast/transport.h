// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What moves buckets from the root to all consumers; one interface for gloo and NCCL.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "broadcast/header.h"
#include "dbg/error.h"

namespace dbg::broadcast {

/// A header and the infos it announces, as they travel.
struct ControlMessage {
  Header header;
  std::vector<std::byte> infos;
};

/// What a transport throws: with whom and of what kind. The sync finds out the rest.
class WireError : public Error {
 public:
  WireError(CommErrorKind kind, int peer, const std::string& what) : Error(what), kind_(kind), peer_(peer) {}
  CommErrorKind kind() const noexcept { return kind_; }
  /// The rank at the other end; -1: not known.
  int peer() const noexcept { return peer_; }

 private:
  CommErrorKind kind_;
  int peer_;
};

/// Moves one sync's stream. All ranks of the group call `control` and `payload` in the same order.
///
/// Every wait ends: by the deadline of each, or when the sync's signal is raised. After a throw the group is of no more
/// use. Threads: one thread at a time, the sync's own.
class Transport {
 public:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport() = default;

  /// On the root: sends; on the others: receives, checks the header, passes it on.
  /// Throws: WireError; CommError for a header that can't be.
  virtual void control(ControlMessage& message) = 0;

  /// How much memory this rank needs for a payload of `length` bytes: a relay holds its stripe only.
  virtual std::uint64_t memory_for(std::uint64_t length) const = 0;

  /// Root: sends from `memory`; others: receive into it and pass on. Returns when the values are there, or on their
  /// way. `memory`: bytes, at least memory_for(length). It must not change until `finish` of the number that is
  /// returned.
  virtual std::uint64_t payload(const at::Tensor& memory, std::uint64_t length) = 0;

  /// Waits for one message that is on its way; false when none is.
  virtual bool advance() = 0;
  /// The numbers below this one are finished: their memory may be used again.
  virtual std::uint64_t finished_below() const = 0;
  /// Waits until the payload of that number, and those before, are out of this rank's memory.
  virtual void finish(std::uint64_t number) = 0;

  /// What this rank has sent so far, control messages included.
  virtual std::uint64_t sent_bytes() const = 0;
};

}  // namespace dbg::broadcast
