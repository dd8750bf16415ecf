// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What tests of syncs share: workers as threads or as processes over real gloo groups, weights of all kinds, sources
// and sinks that can be told to misbehave.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <utility>
#include <vector>

#include "base/formatted.h"
#include "dbg/model_weights.h"
#include "dbg/weight_broadcaster.h"
#include "support/rank_processes.h"
#include "support/rank_threads.h"
#include "support/temp_folder.h"

namespace dbg::test {

/// Options of small buckets, so that a few kilobytes are many, over loopback, with deadlines that a busy machine keeps.
inline BroadcastOptions quick_options() {
  BroadcastOptions options;
  options.bucket_bytes = 4096;
  options.chunk_bytes = 1000;
  options.timeout = std::chrono::seconds(20);
  options.interface = "lo";
  return options;
}

/// The workers by the node that they pretend to be on.
struct SyncSetup {
  std::vector<std::string> actor_nodes{"a"};
  std::vector<std::string> rollout_nodes{"b"};
  BroadcastOptions options = quick_options();

  int num_actors() const { return static_cast<int>(actor_nodes.size()); }
  int size() const { return static_cast<int>(actor_nodes.size() + rollout_nodes.size()); }
  WorkerRole role_of(int worker) const { return worker < num_actors() ? WorkerRole::actor : WorkerRole::rollout; }
  int index_of(int worker) const { return worker < num_actors() ? worker : worker - num_actors(); }
  BroadcastOptions options_of(int worker) const {
    BroadcastOptions own = options;
    own.node_id = worker < num_actors() ? actor_nodes[static_cast<std::size_t>(worker)]
                                        : rollout_nodes[static_cast<std::size_t>(index_of(worker))];
    return own;
  }
  BroadcastRole broadcast_role(int worker) const {
    return {role_of(worker), index_of(worker), num_actors(), static_cast<int>(rollout_nodes.size())};
  }
};

/// One worker's part of a test.
struct Worker {
  int id = 0;  ///< actors first
  WorkerRole role = WorkerRole::actor;
  int index = 0;
  c10::intrusive_ptr<c10d::Store> store;
  SyncSetup setup;

  std::unique_ptr<WeightBroadcaster> make() const {
    return WeightBroadcaster::create(store, setup.broadcast_role(id), setup.options_of(id));
  }
  bool is_actor() const { return role == WorkerRole::actor; }
};

using WorkerBody = std::function<void(const Worker&)>;

inline void run_workers_as_threads(const SyncSetup& setup, const WorkerBody& body,
                                   std::chrono::milliseconds limit = std::chrono::seconds(60)) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  run_ranks_as_threads(
      setup.size(),
      [&](int id) {
        body({id, setup.role_of(id), setup.index_of(id), store, setup});
      },
      limit);
}

/// In a rank process.
inline void run_worker_in_process(const RankContext& context, const SyncSetup& setup, const std::string& path,
                                  const WorkerBody& body) {
  const auto store = c10::make_intrusive<c10d::FileStore>(path, context.world_size);
  body({context.rank, setup.role_of(context.rank), setup.index_of(context.rank), store, setup});
}

/// Weights whose values depend on `version`: every kind of dtype, odd sizes beside wide elements, no elements, no
/// dimension, more than three buckets, strides, expanded ones, conjugate views, a parameter.
inline std::vector<NamedParameter> sample_weights(std::int64_t version) {
  const auto v = static_cast<double>(version);
  std::vector<NamedParameter> all;
  const auto add = [&](const std::string& name, const at::Tensor& tensor) { all.push_back({name, tensor}); };
  add("flags", (at::arange(3) % 2 == version % 2));
  add("after.flags", at::arange(5, at::kFloat) + v);
  add("large", at::arange(5000, at::kFloat).reshape({50, 100}) * (v + 1));
  add("scalar", at::full({}, 3.25 + v, at::kDouble));
  add("empty", at::empty({0, 7}, at::kHalf));
  add("half", (at::arange(33, at::kFloat) + v).to(at::kHalf));
  add("bfloat16", (at::arange(300, at::kFloat) + v).to(at::kBFloat16));
  add("fp8", (at::arange(77, at::kFloat) / 8 + v).to(at::kFloat8_e4m3fn));
  add("int8", (at::arange(10) + version).to(at::kChar));
  add("int64", at::arange(10, at::kLong) * 1000000007 + version);
  add("transposed", (at::arange(60, at::kFloat) + v).reshape({6, 10}).t());
  add("sliced", (at::arange(400, at::kFloat) + v).reshape({20, 20}).slice(1, 3, 17, 2));
  add("expanded", (at::arange(4, at::kFloat) + v).reshape({4, 1}).expand({4, 50}));
  add("conjugate", at::complex(at::arange(9, at::kFloat) + v, at::arange(9, at::kFloat)).conj());
  add("negative", at::imag(at::complex(at::arange(9, at::kFloat), at::arange(9, at::kFloat) + v).conj()));
  add("parameter", (at::ones({1025}, at::kFloat) * v).requires_grad_());
  const at::Tensor tied = at::arange(100, at::kInt) + version;
  add("tied.one", tied);
  add("tied.two", tied);
  add("last", at::full({1}, v, at::kFloat));
  return all;
}

/// The bytes are those of the source, and the names and their order too.
inline void expect_version(const TensorMapSink& sink, const std::vector<NamedParameter>& sent) {
  ASSERT_EQ(sink.names().size(), sent.size());
  for (std::size_t i = 0; i < sent.size(); ++i) {
    EXPECT_EQ(sink.names()[i], sent[i].name);
    const at::Tensor& got = sink.tensors().at(sent[i].name);
    const at::Tensor expected = sent[i].tensor.detach().resolve_conj().resolve_neg().contiguous();
    ASSERT_EQ(got.scalar_type(), expected.scalar_type()) << sent[i].name;
    ASSERT_EQ(got.sizes(), expected.sizes()) << sent[i].name;
    if (got.numel() == 0) continue;
    EXPECT_TRUE(at::equal(got.contiguous().view(-1).view(at::kByte), expected.view(-1).view(at::kByte)))
        << sent[i].name;
  }
}

/// Hands out a list through one scratch tensor that is overwritten by the next, and calls a hook before each.
class ScratchSource : public WeightSource {
 public:
  using Hook = std::function<void(std::size_t number)>;
  explicit ScratchSource(std::vector<NamedParameter> weights, Hook hook = {})
      : weights_(std::move(weights)), hook_(std::move(hook)) {}

  void begin() override { next_ = 0; }
  std::optional<Weight> next() override {
    if (hook_) hook_(next_);
    if (scratch_.defined() && scratch_.numel() > 0) scratch_.view(-1).view(at::kByte).fill_(0x5a);
    ++pulls_;
    if (next_ == weights_.size()) return std::nullopt;
    const NamedParameter& item = weights_[next_++];
    scratch_ = item.tensor.detach().resolve_conj().resolve_neg().contiguous().clone();
    return Weight{item.name, scratch_};
  }
  int pulls() const { return pulls_; }

 private:
  std::vector<NamedParameter> weights_;
  Hook hook_;
  std::size_t next_ = 0;
  int pulls_ = 0;
  at::Tensor scratch_;
};

/// A map of tensors that calls a hook with each weight before it takes it.
class HookedSink : public TensorMapSink {
 public:
  using Hook = std::function<void(const WeightInfo&)>;
  explicit HookedSink(Hook hook) : hook_(std::move(hook)) {}
  void take(const WeightInfo& weight, const at::Tensor& tensor, bool is_view) override {
    hook_(weight);
    TensorMapSink::take(weight, tensor, is_view);
  }

 private:
  Hook hook_;
};

/// One sync of version `version` on this worker, checked.
inline SyncReport sync_sample(WeightBroadcaster& broadcaster, const Worker& worker, TensorMapSink& sink,
                              std::int64_t version) {
  const auto weights = sample_weights(version);
  if (worker.is_actor()) {
    ScratchSource source(weights);
    SyncReport report = broadcaster.send(source, version);
    EXPECT_EQ(source.pulls(), static_cast<int>(weights.size()) + 1);  // to its end, exactly once
    EXPECT_EQ(broadcaster.version(), version);
    return report;
  }
  SyncReport report = broadcaster.receive(sink);
  EXPECT_EQ(broadcaster.version(), version);
  EXPECT_FALSE(broadcaster.is_torn());
  expect_version(sink, weights);
  return report;
}

/// What a sync that fails threw; it must come within `limit`.
inline CommFailure failure_of_sync(const std::function<void()>& sync, std::chrono::milliseconds limit) {
  const auto began = std::chrono::steady_clock::now();
  try {
    sync();
  } catch (const SyncError& error) {
    EXPECT_LT(std::chrono::steady_clock::now() - began, limit) << error.what();
    return error.failure();
  }
  ADD_FAILURE() << "the sync did not fail";
  return {};
}

}  // namespace dbg::test
