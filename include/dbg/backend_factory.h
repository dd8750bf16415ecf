// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Backends that dbg does not know by itself: a vendor's, named once and then used like gloo and nccl.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dbg/export.h"

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace dbg {

/// What a backend is made of. Members of one group get the same name, label and ranks.
struct DBG_API BackendRequest {
  // In the library, so that whoever keeps a request needs no header of c10d.
  BackendRequest();
  BackendRequest(const BackendRequest&);
  BackendRequest(BackendRequest&&) noexcept;
  BackendRequest& operator=(const BackendRequest&);
  BackendRequest& operator=(BackendRequest&&) noexcept;
  ~BackendRequest();

  c10::intrusive_ptr<c10d::Store> store;  ///< of this backend's own keys; they are deleted when the group is closed
  int rank = 0;                           ///< in the group
  int size = 1;
  int local_rank = 0;  ///< this rank's number on its node
  std::vector<int> global_ranks;
  std::string group_name;  ///< unique: `tp:device@0_1.g0`
  std::string group_desc;  ///< the label: `tp:device`; is set on the backend after it was made, too
  std::string half;        ///< `device` or `cpu`
  std::chrono::milliseconds timeout{0};
  std::string interface;  ///< for gloo and its like; may be empty
  /// What the caller passed as `GroupOptions::device_options`, a `c10d::Backend::Options`; may be null.
  c10::intrusive_ptr<c10::intrusive_ptr_target> options;
};

/// Makes a backend. Called on each member's thread while it creates the group; what it throws comes out of `create`.
using BackendFactory = std::function<c10::intrusive_ptr<c10d::Backend>(const BackendRequest&)>;

class BackendRegistration;

/// Makes `name` usable as `GroupOptions::device_backend` and `cpu_backend`.
/// Threads: safe to call from any thread.
/// Throws: ConfigError when the name is empty, taken, or one of `auto`, `gloo`, `nccl`, `nccl2`, `nccl-legacy`.
DBG_API BackendRegistration register_backend(const std::string& name, BackendFactory factory);

/// Takes a factory away when it is removed or destroyed; groups that were made live on.
/// Threads: one thread at a time.
class DBG_API BackendRegistration {
 public:
  BackendRegistration() noexcept;
  ~BackendRegistration();
  BackendRegistration(BackendRegistration&&) noexcept;
  BackendRegistration& operator=(BackendRegistration&&) noexcept;
  BackendRegistration(const BackendRegistration&) = delete;
  BackendRegistration& operator=(const BackendRegistration&) = delete;

  /// Removing twice is harmless.
  void remove() noexcept;

 private:
  friend BackendRegistration register_backend(const std::string& name, BackendFactory factory);
  explicit BackendRegistration(std::string name);
  std::string name_;  // empty: removed
};

}  // namespace dbg
