// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Reads each channel of a group's label back, or says what it will show where it can't be read.
#include "dbg/label_report.h"

#include <nlohmann/json.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupWrapper.hpp>

#include "base/fence.h"
#include "base/formatted.h"
#include "distributed/backends.h"
#include "distributed/flight_recorder.h"
#include "distributed/group_impl.h"
#include "distributed/nccl_backend.h"

namespace dbg {

using distributed::OwnedHalf;

namespace {

class Reading {
 public:
  Reading(LabelReport& report, const OwnedHalf& half) : report_(report), half_(half) {}

  void all() {
    const auto group = half_.shown_now().group;
    if (!group) return;  // closed meanwhile
    add("group_desc of the process group", group->getGroupDesc(), {});
    for (const auto& backend : distributed::backends_of(*group)) of_backend(*backend, "the backend");
    const bool is_nccl = distributed::is_nccl(half_.kind);
    add("Kineto", formatted("[{}, {}]", half_.state.name, half_.state.label),
        is_nccl ? "NCCL's own events, under what its group says"
                : "of operations made through this object; the backend emits no events");
    if (const auto checker = half_.state.backends().checker) of_backend(*checker->backend, "the comparing helper");
  }

 private:
  void add(std::string channel, std::string shows, std::string note) {
    const bool carries = !half_.state.label.empty() && shows.find(half_.state.label) != std::string::npos;
    report_.channels.push_back({half_.half, std::move(channel), std::move(shows), carries, std::move(note)});
  }

  void of_backend(c10d::Backend& backend, const std::string& which) {
    if (const auto* wrapper = dynamic_cast<const c10d::ProcessGroupWrapper*>(&backend)) {
      add("group_desc of the checking wrapper", backend.getGroupDesc(),
          half_.is_adopted ? "its helper can't be reached and stays unlabelled" : "");
      of_backend(*wrapper->getWrappedPg(), "the wrapped backend");
      return;
    }
    add("group_desc of " + which, backend.getGroupDesc(), {});
    const std::string kind = backend.getBackendName();
    if (distributed::is_nccl(kind)) {
      add("name of the NCCL communicator", distributed::nccl_communicator_name(backend),
          half_.is_adopted ? "a communicator that is there keeps its name"
                           : "as in the options; a running communicator does not tell its name");
      return;
    }
    if (kind != "gloo") return;
    add("Flight Recorder entries", formatted("[{}, {}]", backend.getGroupUid(), backend.getGroupDesc()),
        "what an entry holds from the next collective on");
    const auto config = distributed::recorded_group_config(backend.getGroupUid());
    add("Flight Recorder pg_config", config ? formatted("[{}, {}]", config->name, config->description) : "",
        config ? (config->description.empty()
                      ? "this torch leaves the description empty on gloo; the name begins with the label"
                      : "")
               : "not recorded, or this torch does not tell");
  }

  LabelReport& report_;
  const OwnedHalf& half_;
};

}  // namespace

std::string LabelReport::text() const {
  std::string all;
  for (const LabelChannel& one : channels) {
    all += formatted("{}{}: {} = {}{}{}", all.empty() ? "" : "\n", one.half, one.channel,
                     one.shows.empty() ? "(nothing)" : one.shows, one.carries_label ? "" : " [no label]",
                     one.note.empty() ? "" : formatted(" ({})", one.note));
  }
  return all;
}

LabelReport GroupCoordinator::label_report() const {
  LabelReport report;
  if (is_closed()) return report;
  Reading(report, *impl_->device).all();
  if (impl_->cpu != impl_->device) Reading(report, *impl_->cpu).all();
  return report;
}

}  // namespace dbg
