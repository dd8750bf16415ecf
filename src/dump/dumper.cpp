// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The Dumper's interface: thin, over dumper_impl.
#include "dbg/dumper.h"

#include <cxxabi.h>

#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"
#include "dbg/error.h"
#include "dump/capture_sink.h"
#include "dump/dumper_impl.h"
#include "dump/fork_generation.h"

namespace dbg {

void PluginHandle::remove() noexcept {
  if (!remove_) return;
  try {
    std::exchange(remove_, nullptr)();
  } catch (...) {
    // Only memory can fail here; the plugin then stays, which is what the caller had.
  }
}

Dumper::Dumper(DumperConfig config) : Dumper(std::move(config), nullptr) {}

Dumper::Dumper(DumperConfig config, std::atomic<unsigned char>* mirror)
    : impl_(std::make_shared<detail::DumperImpl>(std::move(config), &enabled_, mirror)) {}

Dumper::~Dumper() {
  impl_->detach();
}

void Dumper::dump_enabled(std::string_view name, const detail::LazyValue& value, TagList tags,
                          const DumpOptions* options) {
  if (options != nullptr) {
    impl_->dump(name, value, tags, *options);  // a copy could want memory outside the fence
  } else {
    impl_->dump(name, value, tags, DumpOptions());
  }
}

void Dumper::dump_dict_enabled(std::string_view prefix, const detail::DictView& dict, TagList tags,
                               const DumpOptions& options) {
  impl_->dump_dict(prefix, dict, tags, options);
}

void Dumper::dump_ivalue_dict_enabled(std::string_view prefix, const c10::IValue& dict, TagList tags,
                                      const DumpOptions& options) {
  impl_->dump_dict(prefix, dict, tags, options);
}

DumpModelReport Dumper::dump_model_enabled(const detail::ModelView& model, const DumpModelOptions& options) {
  return impl_->dump_model(model, options);
}

void Dumper::step_enabled() {
  impl_->step();
}

void Dumper::set_ctx(TagList tags) {
  impl_->set_context(tags);
}

CaptureScope Dumper::capture_output() {
  auto state = std::make_shared<CaptureScope::State>();
  state->participant = impl_->participant_state();
  state->sink = std::make_shared<CaptureSink>();
  state->participant->push_capture(state->sink);
  return CaptureScope(std::move(state));
}

void Dumper::configure(DumperConfig config) {
  impl_->configure(std::move(config));
}

void Dumper::configure(const std::vector<std::string>& key_values) {
  impl_->configure(key_values);
}

void Dumper::reset() {
  impl_->reset();
}

DumperState Dumper::state() const {
  return impl_->state();
}

PluginHandle Dumper::add_plugin(std::shared_ptr<FrameworkPlugin> plugin) {
  const std::uint64_t id = impl_->add_plugin(std::move(plugin));
  PluginHandle handle;
  handle.remove_ = [weak = std::weak_ptr<detail::DumperImpl>(impl_), id] {
    if (const auto impl = weak.lock()) impl->remove_plugin(id);
  };
  return handle;
}

std::optional<std::int64_t> Dumper::layer_id_of(std::string_view module_path) {
  return impl_->layer_id_of(module_path);
}

void Dumper::set_interceptor(ValueInterceptor interceptor) {
  impl_->set_interceptor(std::move(interceptor));
}

void Dumper::set_config_listener(ConfigListener listener) {
  impl_->set_config_listener(std::move(listener));
}

// What a scope owns: it may outlive its Dumper, and the thread may be bound to another participant by its end.
struct ContextScope::State {
  std::shared_ptr<ParticipantState> participant;
  ContextChange change;
  unsigned generation = fork_generation();  // in a forked child a thread of the parent may hold the locks
};

ContextScope::State& ContextScope::state() noexcept {
  return *std::launder(reinterpret_cast<State*>(state_));
}

ContextScope::ContextScope(Dumper& dumper, TagList tags) {
  static_assert(sizeof(State) <= sizeof(state_) && alignof(State) <= alignof(ContextScope));
  if (dumper.impl_->refuse_in_forked_child()) return;
  try {
    auto participant = dumper.impl_->participant_state();
    ContextChange change = participant->enter_context(tags);
    ::new (static_cast<void*>(state_)) State{std::move(participant), std::move(change)};
    is_entered_ = true;
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    dumper.impl_->context_fault();  // the block's dumps go without its tags
  }
}

ContextScope::~ContextScope() {
  if (!is_entered_) return;
  try {  // nothing in it is a cancellation point
    if (state().generation == fork_generation()) state().participant->leave_context(std::move(state().change));
  } catch (...) {
    base::log(LogLevel::error, "Dumper", "a ContextScope could not restore the outer context: out of memory");
  }
  std::destroy_at(&state());
}

}  // namespace dbg
