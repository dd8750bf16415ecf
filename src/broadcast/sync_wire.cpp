// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The wire's side of root, relay and consumer.
#include "broadcast/sync_wire.h"

#include <cxxabi.h>

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/fence.h"
#include "broadcast/scope_time.h"

namespace dbg::broadcast {
namespace {

// Memory whose bytes may still be on their way out, oldest first.
class InFlight {
 public:
  explicit InFlight(SyncRun& run) : run_(run) {}

  void add(std::uint64_t payload, at::Tensor memory, at::Tensor slot) {
    waiting_.push_back({payload, std::move(memory), std::move(slot)});
  }

  // Gives back what is out.
  void reap() {
    while (!waiting_.empty() && waiting_.front().payload < run_.transport->finished_below()) {
      run_.exchange->release(std::move(waiting_.front().slot));
      waiting_.pop_front();
    }
  }

 private:
  struct Entry {
    std::uint64_t payload;
    at::Tensor memory;  // a weight that is sent from where it lies is kept alive
    at::Tensor slot;
  };
  SyncRun& run_;
  std::deque<Entry> waiting_;
};

void drain(SyncRun& run) {
  const ScopeTime timed(run.wire_seconds);
  while (run.transport->advance()) {
  }
}

void root_loop(SyncRun& run) {
  InFlight in_flight(run);
  for (;;) {
    auto item = run.exchange->pop_unless_memory_is_wanted();
    const ScopeTime timed(run.wire_seconds);
    if (!item) {
      // One message at a time, so that the next bucket goes out as soon as it is full.
      run.transport->advance();
      in_flight.reap();
      continue;
    }
    run.transport->control(item->message);
    if (item->message.header.kind == MessageKind::commit) break;
    const std::uint64_t number = run.transport->payload(item->memory, item->message.header.length);
    in_flight.add(number, std::move(item->memory), std::move(item->slot));
    in_flight.reap();
    run.watch().activity().set_buckets(static_cast<std::int64_t>(++run.num_buckets));
  }
  drain(run);
}

void relay_loop(SyncRun& run, PlanAgreement& agreement) {
  InFlight in_flight(run);
  for (;;) {
    ControlMessage message;
    {
      const ScopeTime timed(run.wire_seconds);
      run.transport->control(message);
    }
    if (message.header.kind == MessageKind::bucket) {
      agreement.add_root(infos_of(message.header, message.infos));
    }
    // Before a byte of the payload moves, and never waiting on the wire for it: the own source comes to this bucket by
    // itself.
    const BucketItem own = run.exchange->pop();
    if (const auto difference = difference_of(message.header, own.message.header)) {
      const std::string leftover = agreement.leftover();
      throw_plan_mismatch(leftover.empty() ? *difference : leftover + "; " + *difference);
    }
    if (message.header.kind == MessageKind::commit) {
      run.exchange->close();
      break;
    }
    auto slot = run.exchange->try_acquire();
    const ScopeTime timed(run.wire_seconds);
    while (!slot) {
      run.transport->advance();
      in_flight.reap();
      slot = run.exchange->try_acquire();
    }
    const std::uint64_t number = run.transport->payload(*slot, message.header.length);
    in_flight.add(number, *slot, *slot);
    in_flight.reap();
    run.watch().activity().set_buckets(static_cast<std::int64_t>(++run.num_buckets));
  }
  drain(run);
}

void consumer_loop(SyncRun& run) {
  std::map<const void*, std::uint64_t> last_payload;  // by memory: what was received into it last
  for (;;) {
    BucketItem item;
    {
      const ScopeTime timed(run.wire_seconds);
      run.transport->control(item.message);
    }
    if (item.message.header.kind == MessageKind::commit) {
      run.exchange->push(std::move(item));
      break;
    }
    // The sink has done with it; others may still be waiting for its bytes.
    item.slot = item.memory = run.exchange->acquire();
    const ScopeTime timed(run.wire_seconds);
    if (const auto found = last_payload.find(item.memory.const_data_ptr()); found != last_payload.end()) {
      run.transport->finish(found->second);
    }
    last_payload[item.memory.const_data_ptr()] = run.transport->payload(item.memory, item.message.header.length);
    run.exchange->push(std::move(item));
    run.watch().activity().set_buckets(static_cast<std::int64_t>(++run.num_buckets));
  }
  drain(run);
}

template <class Loop>
std::unique_ptr<WireThread> start(const std::shared_ptr<SyncRun>& run, Loop loop) {
  return std::make_unique<WireThread>([run, loop = std::move(loop)] {
    try {
      loop(*run);
      run->sent_bytes = run->transport->sent_bytes();
    } catch (const abi::__forced_unwind&) {
      throw;
    } catch (...) {
      run->has_wire_failed = true;
      // At once, not when the caller's thread comes back from its source or sink: the others wait. And in any case,
      // unless the root has decided to commit: nobody but this thread would end the caller's wait.
      std::optional<SyncCause> cause;
      const auto wordless = base::run_fenced([&] { cause = run->watch().fail(run->id, cause_of_failure(*run)); });
      if (wordless || cause) run->signal->raise(cause ? cause->text : *wordless);
    }
    run->exchange->wake();
  });
}

}  // namespace

std::unique_ptr<WireThread> start_root_wire(const std::shared_ptr<SyncRun>& run) {
  return start(run, [](SyncRun& its) { root_loop(its); });
}

std::unique_ptr<WireThread> start_relay_wire(const std::shared_ptr<SyncRun>& run,
                                             const std::shared_ptr<PlanAgreement>& agreement) {
  return start(run, [agreement](SyncRun& its) { relay_loop(its, *agreement); });
}

std::unique_ptr<WireThread> start_consumer_wire(const std::shared_ptr<SyncRun>& run) {
  return start(run, [](SyncRun& its) { consumer_loop(its); });
}

}  // namespace dbg::broadcast
