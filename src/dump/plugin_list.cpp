// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Asks plugins one by one, each behind the fence.
#include "dump/plugin_list.h"

#include <optional>

#include "base/fence.h"
#include "dump/foreign_call.h"

namespace dbg {

template <class Ask>
void PluginList::ask(const Entry& entry, Question question, const PluginFaultHandler& on_fault, Ask&& ask) {
  using Inside = detail::ForeignCall<detail::Foreign::plugin>;
  if (Inside::is_inside()) return;
  const Inside plugin;
  const std::optional<std::string> cause = base::run_fenced([&] { ask(*entry.plugin); });
  if (!cause) return;
  const bool first = (entry.warned->fetch_or(question, std::memory_order_relaxed) & question) == 0;
  std::string name = "(its name() throws)";
  (void)base::run_fenced([&] { name = entry.plugin->name(); });
  std::string_view what = "collect_parallel_info";
  if (question == recompute) what = "recompute_status";
  if (question == param_name) what = "transform_model_param_name";
  if (question == layer_id) what = "layer_id_of";
  on_fault(name, what, *cause, first);
}

std::shared_ptr<const PluginList> PluginList::with(std::uint64_t id, std::shared_ptr<FrameworkPlugin> plugin) const {
  auto longer = std::make_shared<PluginList>(*this);
  longer->entries_.push_back({id, std::move(plugin), std::make_shared<std::atomic<unsigned>>(0)});
  return longer;
}

std::shared_ptr<const PluginList> PluginList::without(std::uint64_t id) const {
  auto shorter = std::make_shared<PluginList>();
  for (const Entry& entry : entries_) {
    if (entry.id != id) shorter->entries_.push_back(entry);
  }
  return shorter;
}

ParallelInfo PluginList::collect_parallel_info(const PluginFaultHandler& on_fault) const {
  ParallelInfo info;
  const auto add_missing = [](ParallelState& into, const ParallelState& from) {
    for (const ParallelAxis& axis : from.axes()) {
      if (!into.find(axis.name)) into.set(axis.name, axis.rank, axis.size);
    }
  };
  for (const Entry& entry : entries_) {
    ask(entry, parallel_info, on_fault, [&](FrameworkPlugin& plugin) {
      const ParallelState state = plugin.collect_parallel_info();
      if (state.empty()) return;
      const std::string meta_name = plugin.parallel_info_name();
      add_missing(info.merged, state);
      for (auto& [name, known] : info.by_meta_name) {
        if (name == meta_name) {
          add_missing(known, state);
          return;
        }
      }
      info.by_meta_name.emplace_back(meta_name, state);
    });
  }
  return info;
}

RecomputeStatus PluginList::recompute_status(const PluginFaultHandler& on_fault) const {
  std::optional<RecomputeStatus> answer;
  for (const Entry& entry : entries_) {
    ask(entry, recompute, on_fault, [&](FrameworkPlugin& plugin) { answer = plugin.recompute_status(); });
    if (answer) return *answer;
  }
  return RecomputeStatus::disabled;
}

std::string PluginList::transform_model_param_name(const ModelInfo& model, std::string name,
                                                   const PluginFaultHandler& on_fault) const {
  for (const Entry& entry : entries_) {
    ask(entry, param_name, on_fault, [&](FrameworkPlugin& plugin) {
      if (auto renamed = plugin.transform_model_param_name(model, name)) name = std::move(*renamed);
    });
  }
  return name;
}

std::optional<std::int64_t> PluginList::layer_id_of(std::string_view module_path,
                                                    const PluginFaultHandler& on_fault) const {
  std::optional<std::int64_t> answer;
  for (const Entry& entry : entries_) {
    ask(entry, layer_id, on_fault, [&](FrameworkPlugin& plugin) { answer = plugin.layer_id_of(module_path); });
    if (answer) return answer;
  }
  return layer_id_in_path(module_path);
}

}  // namespace dbg
