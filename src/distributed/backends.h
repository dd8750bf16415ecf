// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Makes one half of a group: the backend of the asked kind, labelled before it says its first word, and its process
// group.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "dbg/backend_factory.h"

namespace dbg::distributed {

/// A half of a group.
struct MadeHalf {
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  c10::intrusive_ptr<c10d::Backend> backend;  ///< what operations go to; a wrapper when the half is checked
  std::string kind;                           ///< `gloo`, `nccl`, or a registered name
};

/// Whether a backend's name is one of NCCL's: `nccl`, or one of torch 2.15's two classes by the name that Python gives
/// it, `nccl2` and `nccl-legacy`.
bool is_nccl(std::string_view kind) noexcept;

/// `auto` resolved: nccl where a GPU and NCCL are, else gloo.
/// Throws: ConfigError for a name that is not known, listing those that are.
std::string resolve_backend(const std::string& kind);

/// Makes the backend and its process group.
///
/// `request.timeout` bounds the making; operations get `operation_timeout` where the backend has one to set.
/// `is_checked`: sizes, dtypes and operations are compared between the members before each collective. `with_labels`:
/// off only where tests prove that they can fail. `check_prefix`: before the checking group's keys.
/// Throws: what the backend throws; ConfigError for nccl where it can't be had.
MadeHalf make_half(const std::string& kind, const BackendRequest& request, std::chrono::milliseconds operation_timeout,
                   bool is_checked, bool with_labels, const std::string& check_prefix = "check");

/// Makes the process group around a backend that is there.
c10::intrusive_ptr<c10d::ProcessGroup> wrap_backend(const c10::intrusive_ptr<c10d::Backend>& backend,
                                                    const std::string& kind,
                                                    const c10::intrusive_ptr<c10d::Store>& store);

/// Sets the label (and the name, when it is given) on a backend and, inside wrappers, on what they wrap.
void label_backend(c10d::Backend& backend, const std::optional<std::string>& name, const std::string& label);

/// The same for a process group and all its backends.
void label_group(c10d::ProcessGroup& group, const std::optional<std::string>& name, const std::string& label);

/// The backends of a process group, each once.
std::vector<c10::intrusive_ptr<c10d::Backend>> backends_of(c10d::ProcessGroup& group);

}  // namespace dbg::distributed
