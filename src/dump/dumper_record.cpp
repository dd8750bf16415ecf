// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// One record: its pairs, its meta, and its way into a sink and onto the console.
#include <cxxabi.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/formatted.h"
#include "base/log.h"
#include "base/no_cancellation.h"
#include "codec/pickle_writer.h"
#include "dbg/version.h"
#include "dump/console_line.h"
#include "dump/dumper_impl.h"
#include "dump/part_name.h"

namespace dbg::detail {
namespace {

// The axes that go into file names, in the order of the Python twin.
constexpr std::array<std::string_view, 5> kFileNameAxes = {"pp", "tp", "cp", "ep", "etp"};

std::string_view to_text(RecordKind kind) {
  switch (kind) {
    case RecordKind::value:
      break;
    case RecordKind::grad:
      return "Grad";
    case RecordKind::parameter:
      return "ParamValue";
    case RecordKind::parameter_grad:
      return "ParamGrad";
  }
  return "Value";
}

}  // namespace

DumpOutcome DumperImpl::write_record_of(const Settings& settings, ParticipantState& state, const CallPairs& call,
                                        const DumpRequest& request, RecordKind kind, std::string_view name,
                                        const c10::IValue& value, std::int64_t step) {
  const base::NoCancellation until_written;
  const bool is_grad = kind == RecordKind::grad || kind == RecordKind::parameter_grad;
  try {
    const std::shared_ptr<RecordSink> capture = state.capture_sink();
    const bool to_file = settings.config.enable_output_file && request.save && capture == nullptr;
    const bool to_console = settings.config.enable_output_console;
    if (!to_file && !to_console && !(capture && request.save)) {
      count(DumpOutcome::skipped);
      return DumpOutcome::skipped;
    }
    if (const std::optional<std::string> reason = codec::refusal_of(value)) {
      skip("dump", name, *reason);
      // Not by configuration, so whoever reads the report must see it.
      if (request.report != nullptr) ++(is_grad ? request.report->grads_failed : request.report->failed);
      return DumpOutcome::skipped;
    }

    const auto participant = current_participant();
    const bool is_future_grad = kind == RecordKind::grad;
    RecordDraft draft;
    draft.value = value;
    draft.pairs.reserve(call.pairs.size() + 8);
    draft.pairs.emplace_back("step", step);
    draft.pairs.emplace_back("rank", participant->rank());
    draft.pairs.emplace_back("dump_index", state.next_dump_index());
    draft.pairs.emplace_back("name", name);
    // As in the Python twin, whose comparator pairs by equal tag sets: a later gradient has no recompute_status.
    for (std::size_t i = is_future_grad ? 2 : 1; i < call.pairs.size(); ++i) draft.pairs.push_back(call.pairs[i]);

    const ParallelInfo parallel = settings.plugins->collect_parallel_info(plugin_faults(settings));
    std::array<std::string, kFileNameAxes.size()> axis_keys;  // outlives the draft's borrowed keys
    if (settings.config.include_parallel_rank_in_filename) {
      for (std::size_t i = 0; i < kFileNameAxes.size(); ++i) {
        const auto axis = parallel.merged.find(kFileNameAxes[i]);
        if (!axis) continue;
        axis_keys[i] = formatted("{}_rank", kFileNameAxes[i]);
        bool taken = false;
        for (const auto& pair : draft.pairs) taken = taken || pair.first == axis_keys[i];
        if (!taken) {
          draft.pairs.emplace_back(axis_keys[i], axis->rank);
        } else if (!warned_parallel_.exchange(true, std::memory_order_relaxed)) {
          base::log(LogLevel::warning, kPart,
                    "tag '{}' of dump '{}' is also a plugin's parallel rank; the call's value wins (said once)",
                    axis_keys[i], name);
        }
      }
    }
    draft.extra_meta.emplace_back("world_rank", participant->rank());
    draft.extra_meta.emplace_back("world_size", participant->world_size());
    std::vector<std::string> info_keys;  // outlives the draft's borrowed keys
    info_keys.reserve(parallel.by_meta_name.size());
    for (const auto& [meta_name, axes] : parallel.by_meta_name) {
      draft.extra_meta.emplace_back(info_keys.emplace_back(meta_name + "_parallel_info"), axes);
    }
    const std::string_view dims = is_grad && !request.dims_grad.empty() ? request.dims_grad : request.dims;
    if (!dims.empty()) draft.extra_meta.emplace_back("dims", dims);
    if (!is_grad && !request.dims_grad.empty()) draft.extra_meta.emplace_back("dims_grad", request.dims_grad);
    if (!is_future_grad) {
      const std::string_view status = call.pairs[1].second.text();
      if (status != "disabled") {
        draft.extra_meta.emplace_back("recompute_pseudo_rank", status == "recompute" ? 1 : 0);
        draft.extra_meta.emplace_back("recompute_pseudo_size", 2);
      }
    }
    if (!request.local_name.empty()) draft.extra_meta.emplace_back("local_name", request.local_name);
    draft.extra_meta.emplace_back("dbg_version", version());

    std::shared_ptr<RecordSink> sink = capture;
    if (to_file) sink = file_sink(settings, state);
    const bool to_sink = sink != nullptr && request.save;
    SinkOutcome result;
    if (to_sink) {
      while ((result = sink->write(draft)).taken) {
        draft.pairs[RecordDraft::kDumpIndexAt].second = state.next_dump_index();
      }
      bytes_written_.fetch_add(result.bytes, std::memory_order_relaxed);
    }
    if (to_console) {
      std::string path = draft.file_name();
      // Asked of the sink that wrote it: the Dumper may have another by now.
      if (to_file) path = formatted("{}/{}", sink->folder(), path);
      base::log_text(LogLevel::info, kPart, console_line(to_text(kind), path, value));
    }
    count(to_sink ? DumpOutcome::written : DumpOutcome::skipped);
    return to_sink ? DumpOutcome::written : DumpOutcome::skipped;
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    // Here and not further out: the gradient of a value that could not be written may still be.
    if (!settings.config.strict) {
      count(DumpOutcome::failed);
      record_fault(settings, FaultPlace::record, name);
      return DumpOutcome::failed;
    }
    throw;
  }
}

}  // namespace dbg::detail
