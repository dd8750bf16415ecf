// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The registered plugins, asked through the fence: in order, first answer wins, a fault costs one warning.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dbg/plugin.h"

namespace dbg {

/// Called for each plugin call that threw: which plugin, which question, the cause, and whether it is the first time.
using PluginFaultHandler =
    std::function<void(const std::string& plugin, std::string_view question, const std::string& cause, bool first)>;

/// What the plugins say of the calling participant's place.
struct ParallelInfo {
  /// Meta key without its suffix -> axes; plugins that share a key are merged, first wins per axis.
  std::vector<std::pair<std::string, ParallelState>> by_meta_name;
  /// All axes over all plugins, first wins.
  ParallelState merged;
};

/// An immutable list of plugins. What a plugin does inside its answer asks none: it could be the same question.
/// Threads: safe to call from any thread; plugins are called with no lock held.
class PluginList {
 public:
  PluginList() = default;

  std::shared_ptr<const PluginList> with(std::uint64_t id, std::shared_ptr<FrameworkPlugin> plugin) const;
  std::shared_ptr<const PluginList> without(std::uint64_t id) const;
  bool empty() const noexcept { return entries_.empty(); }

  ParallelInfo collect_parallel_info(const PluginFaultHandler& on_fault) const;
  RecomputeStatus recompute_status(const PluginFaultHandler& on_fault) const;
  /// The name after every plugin had its turn.
  std::string transform_model_param_name(const ModelInfo& model, std::string name,
                                         const PluginFaultHandler& on_fault) const;
  /// The first answer, else the number in the path's first `layers.N`.
  std::optional<std::int64_t> layer_id_of(std::string_view module_path, const PluginFaultHandler& on_fault) const;

 private:
  enum Question : unsigned { parallel_info = 1, recompute = 2, param_name = 4, layer_id = 8 };
  struct Entry {
    std::uint64_t id;
    std::shared_ptr<FrameworkPlugin> plugin;
    std::shared_ptr<std::atomic<unsigned>> warned;  // Question bits: a line was spent on these
  };

  template <class Ask>
  static void ask(const Entry& entry, Question question, const PluginFaultHandler& on_fault, Ask&& ask);

  std::vector<Entry> entries_;
};

}  // namespace dbg
