// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Asks CUDA through torch's device interface and the runtime that the process has already loaded, so that a CPU-only
// program needs neither at link time.
#include "dump/stream_capture.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>

#include "base/no_cancellation.h"

namespace dbg {
namespace {

using IsCapturing = int (*)(void* stream, int* status);  // cudaError_t cudaStreamIsCapturing(cudaStream_t, status*)

// What `find` finds, looked for once, or by each thread that comes first. No guard of a local static: a child that was
// forked while another thread was inside would wait for it for ever.
template <void* (*find)() noexcept>
void* found_once() noexcept {
  static char unknown;
  static std::atomic<void*> found{&unknown};
  void* known = found.load(std::memory_order_relaxed);
  if (known == &unknown) {
    known = find();
    found.store(known, std::memory_order_relaxed);
  }
  return known;
}

[[maybe_unused]] void* find_stream_of() noexcept {
  return dlsym(RTLD_DEFAULT, "_ZNK3c104cuda10CUDAStream6streamEv");
}

// The stream's CUDA handle. torch before 2.10 has no virtual for it; there CUDAStream::stream() is asked, a member of
// a class that holds nothing but the c10::Stream.
template <class Impl>
void* native_handle(const Impl& impl, c10::Stream stream) {
  if constexpr (requires {
                  { impl.getStreamNativeHandle(stream) } -> std::same_as<void*>;
                }) {
    return impl.getStreamNativeHandle(stream);
  } else {
    using StreamOf = void* (*)(const c10::Stream*);
    const auto stream_of = reinterpret_cast<StreamOf>(found_once<&find_stream_of>());
    return stream_of != nullptr ? stream_of(&stream) : nullptr;
  }
}

void* find_is_capturing() noexcept {
  constexpr const char* kSymbol = "cudaStreamIsCapturing";
  if (void* found = dlsym(RTLD_DEFAULT, kSymbol)) return found;
  for (const char* library : {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"}) {
    // Python loads its libraries privately; NOLOAD finds only what is there already. The handle is kept for good.
    if (void* handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD)) {
      if (void* found = dlsym(handle, kSymbol)) return found;
    }
  }
  return nullptr;
}

using GetContext = int (*)(void** context);  // CUresult cuCtxGetCurrent(CUcontext*)

// How many libraries were ever loaded into this process.
std::uint64_t loads_so_far() noexcept {
  std::uint64_t loads = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* to) {
        *static_cast<std::uint64_t*>(to) = info->dlpi_adds;
        return 1;  // the first one tells
      },
      &loads);
  return loads;
}

// The driver's cuCtxGetCurrent; null while no driver is loaded. Looking for it costs as much as a small record, so that
// is done only after something was loaded.
GetContext find_get_context() noexcept {
  static std::atomic<void*> found{nullptr};
  static std::atomic<std::uint64_t> looked_at{0};
  void* known = found.load(std::memory_order_relaxed);
  if (known != nullptr) return reinterpret_cast<GetContext>(known);
  const std::uint64_t loads = loads_so_far();
  if (loads == looked_at.load(std::memory_order_relaxed)) return nullptr;
  if (void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD)) known = dlsym(driver, "cuCtxGetCurrent");
  found.store(known, std::memory_order_relaxed);  // with the driver's handle, which is kept for good
  looked_at.store(loads, std::memory_order_relaxed);
  return reinterpret_cast<GetContext>(known);
}

// Whether CUDA is in use already. Asked of the driver that is loaded: it answers without initialising anything, as the
// runtime would, after which no forked child could use CUDA. Where there is no driver, c10 throws at each question.
bool is_driver_initialised() noexcept {
  const GetContext get_context = find_get_context();
  void* context = nullptr;  // null in a thread that has none yet, which is no error
  return get_context != nullptr && get_context(&context) == 0;
}

bool ask_cuda() noexcept {
  try {
    if (!c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA) || !is_driver_initialised()) return false;
    const base::NoCancellation until_answered;
    const auto* impl = c10::impl::getDeviceGuardImpl(c10::DeviceType::CUDA);
    void* stream = native_handle(*impl, impl->getStream(impl->getDevice()));
    if (stream == nullptr) return false;  // the default stream can't capture
    const auto is_capturing = reinterpret_cast<IsCapturing>(found_once<&find_is_capturing>());
    int status = 0;
    return is_capturing != nullptr && is_capturing(stream, &status) == 0 && status != 0;
  } catch (...) {
    return false;
  }
}

std::atomic<StreamCaptureProbe> current_probe{&ask_cuda};

}  // namespace

bool is_stream_capturing() noexcept {
  return current_probe.load(std::memory_order_relaxed)();
}

void set_stream_capture_probe(StreamCaptureProbe probe) noexcept {
  current_probe.store(probe != nullptr ? probe : &ask_cuda, std::memory_order_relaxed);
}

}  // namespace dbg
