// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The Dumper's inside: settings, participants, and the way of one value from the call to the sink.
#pragma once

#include <c10/util/SmallVector.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fence.h"
#include "dbg/dumper.h"
#include "dbg/log.h"
#include "dump/exp_name.h"
#include "dump/filter.h"
#include "dump/grad_hooks.h"
#include "dump/participant_state.h"
#include "dump/plugin_list.h"
#include "dump/sink.h"

namespace dbg::detail {

/// What a call sees of the configuration: immutable, replaced as a whole.
struct Settings {
  DumperConfig config;
  Filter filter;
  std::shared_ptr<const PluginList> plugins = std::make_shared<const PluginList>();
  std::shared_ptr<const ValueInterceptor> interceptor;  // null: none
};

/// The pairs of one call: name, recompute_status, call tags, context. Borrows from the call and from `context`.
struct CallPairs {
  c10::SmallVector<RecordNamePair, 12> pairs;  // [0] name, [1] recompute_status
  std::shared_ptr<const Tags> context;
  std::vector<std::unique_ptr<std::string>> renamed;  // keys `user_<reserved>`
};

/// A call's tags, wherever they lie.
using TagSpan = std::span<const TagRef>;

/// Which record of a value this is, for the console line.
enum class RecordKind { value, grad, parameter, parameter_grad };

/// What the first write found out under a lock, to be done once that is free: a log handler may call the Dumper.
struct FileNotes {
  std::vector<std::pair<LogLevel, std::string>> lines;
  bool is_first_of_launch = false;  ///< this process chose the experiment's name
};

/// Why a call led to a record, or did not.
enum class DumpOutcome { written, filtered, skipped, dropped, failed };

/// What a fault befell. Each has its own rate of lines, so that one kind can't hide another.
enum class FaultPlace { dump, dict, walk, parameter, record, gradient, interceptor, step, context };
inline constexpr std::size_t kFaultPlaces = 9;

/// What stays the same for all records of one call.
struct DumpRequest {
  std::string_view name;
  bool save = true;
  bool want_value = true;
  bool want_current_grad = false;
  bool want_future_grad = false;
  RecordKind kind = RecordKind::value;
  std::string_view dims;
  std::string_view dims_grad;
  std::string_view local_name;  // of a parameter that plugins renamed
  const c10::IValue* extras = nullptr;
  DumpModelReport* report = nullptr;
};

/// Lines that a Dumper which is on begins with: what this build lacks, other copies of dbg in the process.
void say_at_start(const DumperConfig& config);

class DumperImpl : public std::enable_shared_from_this<DumperImpl> {
 public:
  /// `enabled` and `mirror` (may be null) are the words that inline checks read; both outlive `detach()`.
  DumperImpl(DumperConfig config, std::atomic<unsigned char>* enabled, std::atomic<unsigned char>* mirror);

  /// Called when the Dumper goes: hooks that come later do nothing.
  void detach() noexcept;

  void dump(std::string_view name, const LazyValue& value, TagList tags, const DumpOptions& options);
  void dump_dict(std::string_view prefix, const DictView& dict, TagList tags, const DumpOptions& options);
  void dump_dict(std::string_view prefix, const c10::IValue& dict, TagList tags, const DumpOptions& options);
  DumpModelReport dump_model(const ModelView& model, const DumpModelOptions& options);
  void step();
  void set_context(TagList tags);
  /// Called inside a catch block, when a context could not be changed.
  void context_fault();
  std::shared_ptr<ParticipantState> participant_state();
  /// Whether this is a forked child, where nothing is to be touched; says so once.
  bool refuse_in_forked_child();

  void configure(DumperConfig config);
  /// Changes some fields and leaves what another thread configures meanwhile.
  void configure(const std::vector<std::string>& key_values);
  DumperConfig config();
  void reset();
  DumperState state();
  std::uint64_t add_plugin(std::shared_ptr<FrameworkPlugin> plugin);
  void remove_plugin(std::uint64_t id);
  void set_interceptor(ValueInterceptor interceptor);
  void set_config_listener(ConfigListener listener);
  std::optional<std::int64_t> layer_id_of(std::string_view module_path);

  /// Writes the gradient of a tensor that was dumped at `capture`'s step. Called by autograd's threads; never throws
  /// unless strict.
  void write_future_grad(const GradCapture& capture, const at::Tensor& grad);

 private:
  std::shared_ptr<const Settings> settings() const;
  /// Takes `config`, which is valid; unless `expected` is given and others are the settings by now: then nothing.
  bool replace_config(DumperConfig config, const Settings* expected);
  /// The step that the participant of a capture is in.
  std::int64_t step_of(const GradCapture& capture) noexcept;
  /// Dumps what `visit` hands to its argument, a function of key and value, inside the fence.
  template <class Visit>
  void walk_dict(std::string_view prefix, TagList tags, const DumpOptions& options, Visit&& visit);

  void dump_parameters(const Settings& settings, const ModelView& model, const DumpModelOptions& options,
                       DumpModelReport& report);
  void dump_value(const Settings& settings, const DumpRequest& request, const LazyValue& value, TagSpan tags);
  DumpOutcome write_record_of(const Settings& settings, ParticipantState& state, const CallPairs& call,
                              const DumpRequest& request, RecordKind kind, std::string_view name,
                              const c10::IValue& value, std::int64_t step);
  void intercept(const Settings& settings, const CallPairs& call, const DumpRequest& request, const c10::IValue& value,
                 std::int64_t step);
  void warn_of_nested_dump(const Settings& settings, std::string_view name);
  CallPairs make_call_pairs(std::string_view name, std::string_view recompute_status, TagSpan tags,
                            std::shared_ptr<const Tags> context);
  bool passes_filter(const Settings& settings, const CallPairs& call, std::int64_t step);
  /// Counts a dump or gradient that is left out because a stream is being captured; warns once.
  void drop(std::string_view name);
  void skip(std::string_view what, std::string_view name, std::string_view reason);
  PluginFaultHandler plugin_faults(const Settings& settings);

  std::shared_ptr<RecordSink> file_sink(const Settings& settings, ParticipantState& state);
  void claim_exp_name(const Settings& settings, FileNotes& notes);
  void clean_up(const Settings& settings, ParticipantState& state);
  std::string folder_locked(const Settings& settings) const;

  /// Logs the current exception at a limited rate, and rethrows it when strict.
  void record_fault(const Settings& settings, FaultPlace place, std::string_view name);
  void count(DumpOutcome outcome, std::uint64_t number = 1) noexcept;
  void publish_enabled(bool enabled) noexcept;
  void tell_listener();

  std::atomic<unsigned char>* enabled_;
  std::atomic<unsigned char>* mirror_;
  std::atomic<bool> detached_{false};
  const unsigned fork_generation_;
  ParticipantStates participants_;
  GradHooks grad_hooks_;

  mutable std::mutex settings_mutex_;
  std::shared_ptr<const Settings> settings_;  // under settings_mutex_
  std::uint64_t last_plugin_id_ = 0;          // under settings_mutex_

  // Held while the listener is called: two that configure at once would else leave it with the older one's settings.
  std::mutex listener_mutex_;
  ConfigListener listener_;  // under listener_mutex_

  std::mutex sink_mutex_;
  std::string exp_name_;              // under sink_mutex_: empty until claimed
  std::int64_t claimed_ns_ = 0;       // under sink_mutex_
  std::shared_ptr<RecordSink> sink_;  // under sink_mutex_: of sink_folder_
  std::string sink_folder_;           // under sink_mutex_
  bool sink_checksum_ = true;         // under sink_mutex_

  std::atomic<std::uint64_t> outcomes_[5]{};
  std::atomic<std::uint64_t> interceptions_{0};
  std::atomic<std::uint64_t> interceptor_faults_{0};
  std::atomic<std::uint64_t> plugin_faults_{0};
  std::atomic<std::uint64_t> bytes_written_{0};
  base::RepeatLimiter faults_[kFaultPlaces];
  base::RepeatLimiter skips_;
  base::RepeatLimiter drops_;
  std::atomic<bool> warned_reserved_{false};
  std::atomic<bool> warned_duplicate_{false};
  std::atomic<bool> warned_parallel_{false};
  std::atomic<bool> warned_nested_{false};
};

}  // namespace dbg::detail
