// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// One sync as an actor and as a consumer.
#include <ATen/core/grad_mode.h>
#include <cxxabi.h>

#include <algorithm>
#include <utility>

#include "base/fence.h"
#include "base/formatted.h"
#include "broadcast/broadcaster_impl.h"
#include "broadcast/scope_time.h"
#include "broadcast/sync_wire.h"
#include "broadcast/weight_assembly.h"
#include "broadcast/weight_packing.h"

namespace dbg {

using broadcast::ForeignFailure;
using broadcast::Interrupted;
using broadcast::ScopeTime;

namespace {

// How long actors wait for each other's counts after a failure.
constexpr std::chrono::milliseconds kPulledLimit{500};

// Drives a source, in step with what the other actors do when the sync fails.
class SourceDriver {
 public:
  SourceDriver(WeightSource& source, broadcast::SyncWatch& watch, double& seconds)
      : source_(source), watch_(watch), seconds_(seconds) {}

  // Throws: ForeignFailure.
  void begin() {
    if (const auto refusal = base::run_fenced([&] { source_.begin(); })) {
      throw ForeignFailure{formatted("its source failed to begin: {}", *refusal)};
    }
  }

  // Throws: ForeignFailure.
  const std::optional<std::vector<WeightInfo>>& manifest() {
    if (const auto refusal = base::run_fenced([&] { manifest_ = source_.manifest(); })) {
      throw ForeignFailure{formatted("its source failed to list its weights: {}", *refusal)};
    }
    return manifest_;
  }

  // The next weight, compared with what was said of it. Throws: ForeignFailure, Interrupted.
  std::optional<Weight> next() {
    if (!watch_.pulls().begin()) throw Interrupted();
    return pull();
  }

  // After a failure: takes as many as the actor that had begun the most, so that nobody waits in a collective of the
  // source for one that stopped earlier. What the source throws now says nothing new.
  void catch_up(std::int64_t most) {
    base::run_fenced([&] {
      while (!has_ended_ && watch_.pulls().count() < most) {
        watch_.pulls().begin_frozen();
        static_cast<void>(pull());
      }
    });
  }

 private:
  std::optional<Weight> pull() {
    std::string what = formatted("takes weight {} from its source", number_);
    if (manifest_ && number_ < manifest_->size()) what += formatted(" ('{}')", (*manifest_)[number_].name);
    watch_.activity().set(what, /*is_foreign=*/true);
    std::optional<Weight> weight;
    const auto refusal = base::run_fenced([&] {
      const ScopeTime timed(seconds_);
      weight = source_.next();
    });
    watch_.activity().set("packs weights");
    if (refusal) {
      has_ended_ = true;
      const std::string due = manifest_ && number_ < manifest_->size()
                                  ? formatted(" '{}'", (*manifest_)[number_].name)
                                  : (last_.empty() ? std::string() : formatted(", which follows '{}'", last_));
      throw ForeignFailure{formatted("its source failed at weight {}{}: {}", number_, due, *refusal)};
    }
    has_ended_ = !weight;
    if (manifest_ && !weight && number_ != manifest_->size()) {
      throw ForeignFailure{
          formatted("its source ended after {} weights, and had listed {}", number_, manifest_->size())};
    }
    if (weight) {
      last_ = weight->name;
      ++number_;
    }
    return weight;
  }

 public:
  // Throws: ForeignFailure unless the weight is what was listed.
  void compare(const WeightInfo& info) const {
    if (!manifest_) return;
    const std::size_t number = number_ - 1;
    if (number >= manifest_->size()) {
      throw ForeignFailure{formatted("its source hands out {} after the {} weights it had listed",
                                     broadcast::text_of(info), manifest_->size())};
    }
    const WeightInfo& said = (*manifest_)[number];
    if (said.name == info.name && said.dtype == info.dtype && said.shape == info.shape) return;
    throw ForeignFailure{formatted("its source listed weight {} as {} and hands out {}", number,
                                   broadcast::text_of(said), broadcast::text_of(info))};
  }

 private:
  WeightSource& source_;
  broadcast::SyncWatch& watch_;
  double& seconds_;
  std::optional<std::vector<WeightInfo>> manifest_;
  std::size_t number_ = 0;  // of the next weight
  std::string last_;
  bool has_ended_ = false;
};

}  // namespace

SyncReport WeightBroadcaster::Impl::send(WeightSource& source, std::optional<std::int64_t> wanted_version) {
  const auto began = Clock::now();
  const at::NoGradGuard no_grad;
  SyncReport report;
  SourceDriver driver(source, *context->watch, report.produce_seconds);

  broadcast::SyncHello hello;
  if (group && !options.rebuild_group) hello.group = group->generation;
  hello.version = version;
  // What goes wrong here is told to the others once they are there.
  std::exception_ptr early;
  try {
    if (source.kind() != options.source_kind) {
      throw ForeignFailure{formatted("its source is {}, and the options' source_kind is {}",
                                     source.kind() == SourceKind::delta ? "delta" : "full_weights",
                                     options.source_kind == SourceKind::delta ? "delta" : "full_weights")};
    }
    driver.begin();
    if (const auto& manifest = driver.manifest()) {
      hello.manifest = broadcast::manifest_hash(*manifest);
      hello.num_weights = manifest->size();
    }
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    early = std::current_exception();
    hello.fails = true;
  }

  std::shared_ptr<SyncRun> run = meet(hello, began, report);
  std::unique_ptr<broadcast::WireThread> wire;
  std::map<std::string, std::uint64_t> new_digests;
  try {
    if (early) std::rethrow_exception(early);
    if (!is_root() && hello.manifest) {
      const auto roots = broadcast::SyncHello::from_json(meeting->values_of("hello", 0, 1).front());
      // Lists of one length are compared weight by weight as they come, which names the first that differs.
      if (roots.manifest && roots.num_weights != hello.num_weights) {
        broadcast::throw_plan_mismatch(
            formatted("the root lists {} weights (hash {:016x}), this actor {} (hash {:016x})", roots.num_weights,
                      *roots.manifest, hello.num_weights, *hello.manifest));
      }
    }
    begin(*run, wanted_version, report);

    const auto agreement = std::make_shared<broadcast::PlanAgreement>(context->own());
    if (is_root()) wire = broadcast::start_root_wire(run);
    if (is_in_group() && !is_root()) wire = broadcast::start_relay_wire(run, agreement);

    broadcast::PackingOutput output;
    output.acquire = [&] {
      context->watch->activity().set("waits for the wire to take a bucket");
      at::Tensor slot = run->exchange->acquire();
      context->watch->activity().set("packs weights");
      return slot;
    };
    // No actor runs far ahead of the root: after a failure the others would have to take as many weights.
    const auto depth = static_cast<std::int64_t>(options.depth);
    const std::vector<int>& ranks = context->topology.actor_ranks;
    const bool has_idle_actors = std::find(ranks.begin(), ranks.end(), -1) != ranks.end();
    std::int64_t pushed = 0;
    std::int64_t pushed_by_root = 0;
    output.push = [&](broadcast::BucketItem item) {
      ++pushed;
      if (is_root()) {
        run->exchange->push(std::move(item));
        if (has_idle_actors) meeting->put_pushed(run->id, pushed);
      } else if (is_in_group()) {
        context->watch->activity().set("waits for the root's buckets");
        run->exchange->push_below(static_cast<std::size_t>(depth), std::move(item));
      } else if (pushed > pushed_by_root + depth) {
        context->watch->activity().set("waits for the root to take its weights");
        pushed_by_root = meeting->await_pushed(run->id, pushed - depth, *run->signal);
      }
    };
    broadcast::WeightPacking packing(cut_rules(), options.integrity, is_root(), source.has_stable_storage(),
                                     std::move(output));
    packing.set_sync(static_cast<std::uint64_t>(run->id.generation), run->version);
    while (const auto weight = driver.next()) {
      if (run->signal->cause()) throw Interrupted();
      const WeightInfo info = broadcast::info_of(*weight);
      driver.compare(info);
      if (is_in_group() && !is_root()) agreement->add_own(info);
      packing.add(info, weight->tensor);
    }
    if (packing.num_weights() == 0 && options.refuse_empty) {
      throw ForeignFailure{"its source has no weights, and the options refuse that"};
    }
    packing.finish();
    report.total_bytes = packing.total_bytes();
    report.num_weights = packing.num_weights();
    report.pack_seconds = packing.pack_seconds();
    report.wait_seconds = packing.wait_seconds();
    new_digests = packing.take_digests();

    const ScopeTime timed(report.wait_seconds);
    if (is_in_group() && !is_root()) {
      // Not before the root's commit record is what the own source came to.
      context->watch->activity().set("waits for the root's last bucket");
      run->exchange->await_closed();
    }
    agree_on_commit(*run);
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    const broadcast::SyncCause cause = fail(*run, wire.get());
    const std::int64_t most = context->watch->most_pulled(run->id, context->num_actors(), kPulledLimit);
    if (!early) driver.catch_up(most);  // what did not begin is not driven
    end_failed(std::move(run), std::move(wire), cause, began);
  }
  conclude(*run, wire.get(), began, "", std::move(new_digests), report);
  // The root has heard of all consumers; the other actors know only that it was decided.
  const bool have_all = std::all_of(report.consumers.begin(), report.consumers.end(),
                                    [](const ConsumerCommit& said) { return said.has_committed; });
  if (have_all && (!is_root() || !report.consumers.empty())) version = run->version;
  return report;
}

SyncReport WeightBroadcaster::Impl::receive(WeightSink& sink) {
  const auto began = Clock::now();
  const at::NoGradGuard no_grad;
  SyncReport report;
  broadcast::SyncHello hello;
  if (group && !options.rebuild_group) hello.group = group->generation;
  hello.version = version;

  // Asked once, before anything depends on it; what it throws is told to the others once they are there.
  WeightSink::Mode mode = WeightSink::Mode::staged;
  const auto modeless = base::run_fenced([&] { mode = sink.mode(); });
  hello.fails = modeless.has_value();

  std::shared_ptr<SyncRun> run = meet(hello, began, report);
  std::unique_ptr<broadcast::WireThread> wire;
  broadcast::WeightAssembly assembly(cut_rules(), options.integrity, sink);
  // Torn while it is, not only once it is known that it stays so.
  assembly.on_first_touch([&] {
    if (mode == WeightSink::Mode::in_place) is_torn = true;
  });
  broadcast::Activity& activity = context->watch->activity();
  bool has_begun = false;
  try {
    if (modeless) throw ForeignFailure{formatted("its sink does not say its mode: {}", *modeless)};
    begin(*run, std::nullopt, report);
    assembly.set_version(run->version);
    wire = broadcast::start_consumer_wire(run);
    activity.set("begins with its sink", /*is_foreign=*/true);
    has_begun = true;
    if (const auto refusal = base::run_fenced([&] { sink.begin(run->version); })) {
      throw ForeignFailure{formatted("its sink failed to begin: {}", *refusal)};
    }
    for (;;) {
      activity.set("waits for the next bucket");
      broadcast::BucketItem item;
      {
        const ScopeTime timed(report.wait_seconds);
        item = run->exchange->pop();
      }
      if (item.message.header.kind == broadcast::MessageKind::commit) {
        assembly.finish(item.message.header);
        break;
      }
      activity.set(formatted("hands bucket {} to its sink, {}", item.message.header.bucket, assembly.current_weight()),
                   /*is_foreign=*/true);
      assembly.take(item.message, item.memory);
      item.memory = at::Tensor();
      run->exchange->release(std::move(item.slot));
    }
    if (assembly.num_weights() == 0 && options.refuse_empty) {
      throw ForeignFailure{"not a single weight came, and the options refuse that"};
    }
    if (const auto refusal = base::run_fenced([&] { sink.check_complete(); })) {
      throw ForeignFailure{formatted("its sink misses something: {}", *refusal)};
    }
    const ScopeTime timed(report.wait_seconds);
    agree_on_commit(*run);
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    const broadcast::SyncCause cause = fail(*run, wire.get());
    if (has_begun) sink.roll_back(cause.text);
    end_failed(std::move(run), std::move(wire), cause, began);
  }

  activity.set("commits to its sink", /*is_foreign=*/true);
  std::optional<std::string> refusal;
  {
    const ScopeTime timed(report.produce_seconds);
    is_torn = true;  // the swap itself need not be one step
    refusal = base::run_fenced([&] { sink.commit(run->version); });
  }
  if (!refusal) {
    version = run->version;
    is_torn = false;
  }
  report.total_bytes = assembly.total_bytes();
  report.num_weights = assembly.num_weights();
  report.pack_seconds = assembly.pack_seconds();
  report.produce_seconds += assembly.sink_seconds();
  conclude(*run, wire.get(), began, refusal.value_or(""), assembly.take_digests(), report);
  if (refusal) {
    broadcast::SyncCause cause;
    cause.text = formatted("{}: its sink failed to commit version {}: {}", context->own(), run->version, *refusal);
    cause.advice = "the other consumers have committed; sync again";
    cause.workers = {context->worker};
    throw_failure(cause, began);
  }
  return report;
}

}  // namespace dbg
