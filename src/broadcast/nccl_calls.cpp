// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The calls for real: NCCL's, and CUDA's through torch's streams and events, so that no CUDA runtime has to be linked.
#include "broadcast/nccl_calls.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/cuda/CUDAStream.h>
#include <dlfcn.h>
#include <nccl.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "base/formatted.h"
#include "broadcast/transport.h"
#include "broadcast/wire_thread.h"
#include "distributed/nccl_backend.h"

namespace dbg::broadcast {
namespace {

using std::chrono::steady_clock;

// What the end of a communicator may take; then its thread is left behind.
constexpr std::chrono::seconds kAbortLimit{10};

void check(ncclResult_t result, const char* call) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  throw WireError(CommErrorKind::broken, -1, formatted("{}: {}", call, ncclGetErrorString(result)));
}

void require_gpu() {
  if (const std::string why = distributed::why_no_nccl(); !why.empty()) {
    throw ConfigError(formatted("the transport nccl was asked for, and {}: take gloo, or run where a GPU is.", why));
  }
}

// A stream of CUDA that nobody else has: those of torch's pools go round, and what somebody else puts into one would
// hold up the buckets, and the default stream would too.
class OwnStream {
 public:
  explicit OwnStream(c10::Device device)
      : device_(device), destroy_(function<cudaError_t(cudaStream_t)>("cudaStreamDestroy")) {
    const c10::DeviceGuard guard(device_);
    const auto create = function<cudaError_t(cudaStream_t*, unsigned)>("cudaStreamCreateWithFlags");
    if (const cudaError_t error = create(&stream_, cudaStreamNonBlocking); error != cudaSuccess) {
      throw WireError(CommErrorKind::broken, -1,
                      formatted("cudaStreamCreateWithFlags on {}: error {}", device_.str(), static_cast<int>(error)));
    }
  }
  // What is under way ends first, on the device; this waits for nothing.
  ~OwnStream() {
    if (is_left_) return;
    const c10::DeviceGuard guard(device_);
    static_cast<void>(destroy_(stream_));
  }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;

  cudaStream_t native() const { return stream_; }
  c10::Stream torch() const { return c10::cuda::getStreamFromExternal(stream_, device_.index()); }
  // It is never destroyed: something on the device does not end.
  void leave() { is_left_ = true; }

 private:
  // libtorch has brought the CUDA runtime into the process.
  template <class Function>
  static Function* function(const char* name) {
    void* const found = ::dlsym(RTLD_DEFAULT, name);
    if (found == nullptr) {
      throw WireError(
          CommErrorKind::unsupported, -1,
          formatted("there is no {} in this process; take a libtorch with CUDA, or the transport gloo", name));
    }
    return reinterpret_cast<Function*>(found);
  }

  const c10::Device device_;
  cudaError_t (*const destroy_)(cudaStream_t);
  cudaStream_t stream_ = nullptr;
  bool is_left_ = false;
};

class RealNcclCalls : public NcclCalls {
 public:
  RealNcclCalls(const std::string& id, int rank, int size, std::chrono::milliseconds timeout,
                std::shared_ptr<distributed::AbortSignal> signal)
      : timeout_(timeout),
        signal_(std::move(signal)),
        guard_(c10::DeviceType::CUDA),
        device_(guard_.getDevice()),
        own_stream_(device_),
        own_copy_stream_(device_),
        stream_(own_stream_.torch()),
        copy_stream_(own_copy_stream_.torch()) {
    ncclUniqueId unique;
    if (id.size() != sizeof unique)
      throw ConfigError(formatted("an id of NCCL has {} bytes, and {} came.", sizeof unique, id.size()));
    std::memcpy(&unique, id.data(), sizeof unique);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    try {
      check(ncclCommInitRankConfig(&comm_, size, unique, rank, &config), "ncclCommInitRankConfig");
      settle("ncclCommInitRankConfig");
    } catch (...) {
      abort();
      throw;
    }
  }

  ~RealNcclCalls() override {
    abort();
    if (is_stuck_) return;  // what the device still uses is not freed
    const c10::DeviceGuard guard(device_);
    for (void* memory : memory_) static_cast<void>(ncclMemFree(memory));
  }

  void set_signal(std::shared_ptr<distributed::AbortSignal> signal) override { signal_ = std::move(signal); }

  void* allocate(std::uint64_t size) override {
    const c10::DeviceGuard guard(device_);
    void* memory = nullptr;
    check(ncclMemAlloc(&memory, std::max<std::uint64_t>(size, 1)), "ncclMemAlloc");
    memory_.push_back(memory);
    return memory;
  }

  void copy_in(void* device, const void* host, std::uint64_t size) override {
    // The host's memory is pageable: such a copy waits for what its stream has before it, which shall be no broadcast.
    {
      const c10::StreamGuard guard(copy_stream_);
      on_device(device, size).copy_(on_host(host, size), /*non_blocking=*/true);
    }
    c10::Event copied(c10::DeviceType::CUDA);
    copied.record(copy_stream_);
    copied.block(stream_);
  }

  void copy_out(void* host, const void* device, std::uint64_t size) override {
    const c10::StreamGuard guard(stream_);
    on_host(host, size).copy_(on_device(device, size), /*non_blocking=*/true);
  }

  void broadcast(void* device, std::uint64_t size) override {
    const c10::StreamGuard guard(stream_);
    check(ncclBroadcast(device, device, size, ncclUint8, 0, comm_, own_stream_.native()), "ncclBroadcast");
    settle("ncclBroadcast");
  }

  std::uint64_t record() override {
    events_.emplace_back(c10::DeviceType::CUDA);
    events_.back().record(stream_);
    return first_mark_ + events_.size() - 1;
  }

  bool is_done(std::uint64_t mark) override {
    ncclResult_t state = ncclSuccess;
    check(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError");
    check(state, "the communicator");
    while (!events_.empty() && first_mark_ <= mark && events_.front().query()) {
      events_.pop_front();
      ++first_mark_;
    }
    return mark < first_mark_;
  }

  void abort() noexcept override {
    if (comm_ == nullptr) return;
    // It may wait for the device, and the device for a peer.
    WireThread aborting([comm = std::exchange(comm_, nullptr)] { static_cast<void>(ncclCommAbort(comm)); });
    is_stuck_ = !aborting.join_for(kAbortLimit);
    if (!is_stuck_) return;
    own_stream_.leave();
    own_copy_stream_.leave();
  }

 private:
  at::Tensor on_device(const void* memory, std::uint64_t size) const {
    return at::from_blob(const_cast<void*>(memory), {static_cast<std::int64_t>(size)},
                         at::TensorOptions().dtype(at::kByte).device(device_));
  }
  static at::Tensor on_host(const void* memory, std::uint64_t size) {
    return at::from_blob(const_cast<void*>(memory), {static_cast<std::int64_t>(size)},
                         at::TensorOptions().dtype(at::kByte));
  }

  // A non-blocking communicator says "in progress" first; the next call has to wait for it.
  void settle(const char* call) {
    const auto deadline = steady_clock::now() + timeout_;
    auto pause = std::chrono::microseconds(10);
    for (;;) {
      ncclResult_t state = ncclSuccess;
      check(ncclCommGetAsyncError(comm_, &state), call);
      check(state, call);
      if (state == ncclSuccess) return;
      if (signal_) {
        if (const auto cause = signal_->cause()) throw WireError(CommErrorKind::broken, -1, "aborted: " + *cause);
      }
      if (steady_clock::now() >= deadline) {
        throw WireError(CommErrorKind::timeout, -1, formatted("{} was not done within {} ms", call, timeout_.count()));
      }
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, std::chrono::microseconds(1000));
    }
  }

  const std::chrono::milliseconds timeout_;
  std::shared_ptr<distributed::AbortSignal> signal_;
  const c10::impl::VirtualGuardImpl guard_;
  const c10::Device device_;
  OwnStream own_stream_;
  OwnStream own_copy_stream_;  // to the device
  const c10::Stream stream_;
  const c10::Stream copy_stream_;
  ncclComm_t comm_ = nullptr;
  bool is_stuck_ = false;
  std::vector<void*> memory_;
  std::deque<c10::Event> events_;
  std::uint64_t first_mark_ = 0;  // of the first in events_
};

}  // namespace

std::string make_nccl_id() {
  require_gpu();
  ncclUniqueId id;
  check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  return {reinterpret_cast<const char*>(&id), sizeof id};
}

std::shared_ptr<NcclCalls> make_nccl_calls(const std::string& id, int rank, int size, std::chrono::milliseconds timeout,
                                           std::shared_ptr<distributed::AbortSignal> signal) {
  require_gpu();
  return std::make_shared<RealNcclCalls>(id, rank, size, timeout, std::move(signal));
}

}  // namespace dbg::broadcast
