// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The few calls of CUDA and NCCL that a sync makes, behind an interface: what orders them runs, and is tested, where
// there is neither. One of two sources of `make_nccl_calls` is compiled; callers need no #ifdef.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "distributed/abort_signal.h"

namespace dbg::broadcast {

/// One rank's communicator with a stream and events of its own. Calls only enqueue, except where they say otherwise.
/// Threads: one thread at a time.
class NcclCalls {
 public:
  NcclCalls() = default;
  NcclCalls(const NcclCalls&) = delete;
  NcclCalls& operator=(const NcclCalls&) = delete;
  /// Aborts what is under way.
  virtual ~NcclCalls() = default;

  /// Memory on the device that NCCL can register; never from torch's caching allocator, whose expandable segments it
  /// can't. Freed with the communicator.
  virtual void* allocate(std::uint64_t size) = 0;
  virtual void copy_in(void* device, const void* host, std::uint64_t size) = 0;
  virtual void copy_out(void* host, const void* device, std::uint64_t size) = 0;
  /// The sync that is under way: its signal ends what waits inside a call.
  virtual void set_signal(std::shared_ptr<distributed::AbortSignal> signal) = 0;

  /// From rank 0 to all, of exactly that many bytes.
  virtual void broadcast(void* device, std::uint64_t size) = 0;
  /// Marks this place in the stream; returns the mark's number.
  virtual std::uint64_t record() = 0;
  /// Whether all before the mark is done. Never waits. Throws: WireError when the communicator has failed.
  virtual bool is_done(std::uint64_t mark) = 0;
  /// Gives up what is under way, on all ranks in time; nothing else may be called then.
  virtual void abort() noexcept = 0;
};

/// What the root makes and all ranks pass to `make_nccl_calls`. Throws: ConfigError without NCCL or GPU.
std::string make_nccl_id();

/// Joins the communicator, non-blocking, within `timeout` and until `signal` is raised. On the calling thread's device.
/// Collective: all ranks. Throws: ConfigError without NCCL or GPU; WireError.
std::shared_ptr<NcclCalls> make_nccl_calls(const std::string& id, int rank, int size, std::chrono::milliseconds timeout,
                                           std::shared_ptr<distributed::AbortSignal> signal);

}  // namespace dbg::broadcast
