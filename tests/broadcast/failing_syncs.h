// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What tests of failing syncs share: a sync before, the one that fails with one cause on all, a sync after.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <mutex>

#include "broadcast/syncing.h"

namespace dbg::test {

// What each worker's second sync threw.
class Causes {
 public:
  void add(int worker, const CommFailure& failure) {
    const std::lock_guard lock(mutex_);
    failures_.emplace(worker, failure);
  }
  // All workers failed, for one cause. Returns it.
  CommFailure only(int num_workers) const {
    EXPECT_EQ(failures_.size(), static_cast<std::size_t>(num_workers));
    if (failures_.empty()) return {};
    for (const auto& [worker, failure] : failures_) {
      EXPECT_EQ(failure.cause, failures_.begin()->second.cause) << "worker " << worker;
      EXPECT_EQ(failure.kind, failures_.begin()->second.kind) << "worker " << worker;
    }
    return failures_.begin()->second;
  }

 private:
  std::mutex mutex_;
  std::map<int, CommFailure> failures_;
};

// What a worker does in the sync that is to fail; `sink` is the consumer's own.
using BadSync = std::function<void(WeightBroadcaster&, const Worker&, TensorMapSink& sink)>;

inline void sync_well(WeightBroadcaster& broadcaster, const Worker& worker, TensorMapSink& sink, std::int64_t version) {
  if (worker.is_actor()) {
    ScratchSource source(sample_weights(version));
    broadcaster.send(source, version);
  } else {
    broadcaster.receive(sink);
  }
}

// Version 1 is synced, then the bad sync fails on all, then version 3 is synced by the same objects.
inline CommFailure one_cause(const SyncSetup& setup, const BadSync& bad,
                             std::chrono::milliseconds limit = std::chrono::milliseconds(5000)) {
  Causes causes;
  run_workers_as_threads(setup, [&](const Worker& worker) {
    const auto broadcaster = worker.make();
    TensorMapSink sink;
    sync_sample(*broadcaster, worker, sink, 1);
    causes.add(worker.id, test::failure_of_sync([&] { bad(*broadcaster, worker, sink); }, limit));
    EXPECT_EQ(broadcaster->version(), 1);
    EXPECT_FALSE(broadcaster->is_torn());
    if (!worker.is_actor()) test::expect_version(sink, sample_weights(1));  // the old model, whole
    sync_sample(*broadcaster, worker, sink, 3);
  });
  return causes.only(setup.size());
}

inline SyncSetup three_actors_two_consumers() {
  return {{"a", "a", "c"}, {"b", "b"}, quick_options()};
}

}  // namespace dbg::test
