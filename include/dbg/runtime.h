// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The process's own Dumper, configured from the environment, and free functions that forward to it.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <atomic>
#include <memory>
#include <string_view>
#include <utility>

#include "dbg/dumper.h"
#include "dbg/export.h"
#include "dbg/plugin.h"

namespace dbg {

class Grafter;
class ModelParallel;
class World;

namespace detail {
/// 0: off, 1: on, 2: nobody asked yet, so the first call reads the environment out of line.
extern DBG_API std::atomic<unsigned char> global_enabled;

/// `&Dumper::global()`, or null when there is no memory to make it: a program that only dumps goes on.
DBG_API Dumper* global_or_none();
}  // namespace detail

/// `Dumper::global().dump(...)`; one relaxed load and a branch while off.
///
/// The global Dumper reads `DUMPER_*` at its first use. A wrong value there never stops the program: it runs on with
/// dumping off, and one line at level `error` says which variable, its value and what is accepted.
/// Threads: safe to call from any thread.
template <class Value>
DBG_ALWAYS_INLINE void dump(std::string_view name, const Value& value, TagList tags = {}) {
  if (detail::global_enabled.load(std::memory_order_relaxed) == 0) return;
  if (Dumper* dumper = detail::global_or_none()) dumper->dump(name, value, tags);
}
template <class Value>
DBG_ALWAYS_INLINE void dump(std::string_view name, const Value& value, TagList tags, const DumpOptions& options) {
  if (detail::global_enabled.load(std::memory_order_relaxed) == 0) return;
  if (Dumper* dumper = detail::global_or_none()) dumper->dump(name, value, tags, options);
}

/// `Dumper::global().dump_dict(...)`.
template <class Dict>
void dump_dict(std::string_view prefix, const Dict& dict, TagList tags = {}, const DumpOptions& options = {}) {
  if (detail::global_enabled.load(std::memory_order_relaxed) == 0) return;
  if (Dumper* dumper = detail::global_or_none()) dumper->dump_dict(prefix, dict, tags, options);
}

/// `Dumper::global().dump_model(...)`.
template <class Model>
DumpModelReport dump_model(Model&& model, const DumpModelOptions& options = {}) {
  if (detail::global_enabled.load(std::memory_order_relaxed) == 0) return {};
  Dumper* dumper = detail::global_or_none();
  return dumper != nullptr ? dumper->dump_model(std::forward<Model>(model), options) : DumpModelReport();
}

/// `Dumper::global().step()`.
inline void step() {
  if (detail::global_enabled.load(std::memory_order_relaxed) == 0) return;
  if (Dumper* dumper = detail::global_or_none()) dumper->step();
}

/// `Dumper::global().attach(world)`: one exp_name for all ranks of a launch, on all its nodes. To be called once a rank
/// has its World, before its first dump.
DBG_API void attach(const World& world);

/// Lets the `grafter_*` knobs of `dumper` take effect, now and whenever it is configured anew: while `grafter_enable`
/// is on it has a Grafter as its interceptor (which replaces one that was set by hand), else none. New grafter knobs
/// make a new Grafter, which meets the other side anew: give both sides a new `grafter_master_port` with them, as a
/// second meeting in the old one's store is refused. Knobs that can't be followed make `configure` throw, with nothing
/// changed. `Dumper::global()` has this from the start. Throws: ConfigError or IoError when the knobs that are there
/// can't be followed; others are followed later.
DBG_API void graft_by_knobs(Dumper& dumper);

/// The Grafter that the knobs of `dumper` made; null while there is none. To be asked for its `state()`, or closed.
DBG_API std::shared_ptr<Grafter> grafter_of(const Dumper& dumper);

/// A plugin that writes the parallel ranks of `model_parallel` into the records of its rank; where the calling
/// participant is another, it knows nothing. Ranks that share a Dumper as threads register one each. Needs the groups
/// only while it is made.
DBG_API std::shared_ptr<FrameworkPlugin> make_parallel_plugin(const ModelParallel& model_parallel);

}  // namespace dbg
