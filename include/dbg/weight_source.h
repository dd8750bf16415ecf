// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Where weights come from and where they go: what a program implements, or takes ready-made, to sync its weights.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dbg/broadcast_topology.h"
#include "dbg/export.h"

namespace dbg {

/// A weight without its values.
struct WeightInfo {
  std::string name;
  std::vector<std::int64_t> shape;
  at::ScalarType dtype = at::ScalarType::Undefined;
};

/// A weight as a source hands it out.
struct Weight {
  std::string name;
  /// Dense, of any strides. The root's values are what is sent; of the other actors' only dtype and shape count.
  at::Tensor tensor;
};

/// Hands out a model's weights in order.
///
/// Every actor has one, also an actor that sends nothing: `next()` may itself be a collective among the actors, so it
/// is called equally often everywhere, in the same order, until it returns nullopt. All of it is called on the thread
/// that called `send`.
class DBG_API WeightSource {
 public:
  WeightSource() = default;
  WeightSource(const WeightSource&) = delete;
  WeightSource& operator=(const WeightSource&) = delete;
  virtual ~WeightSource();

  /// A sync begins: the next weight is the first one, also after a sync that failed in the middle.
  virtual void begin();

  /// The next weight; nullopt after the last. The tensor is read before the next call: a source may use one tensor for
  /// all. Throws: anything; every rank of the sync then gets its text.
  virtual std::optional<Weight> next() = 0;

  /// All weights in order, where they are known beforehand. Each weight is then compared with what was said of it.
  virtual std::optional<std::vector<WeightInfo>> manifest() const;

  /// Whether a tensor that was handed out keeps its values until `send` returns: large ones are then sent from where
  /// they lie.
  virtual bool has_stable_storage() const;

  virtual SourceKind kind() const;
};

/// Takes a model's weights in the order of the source. All of it is called on the thread that called `receive`.
class DBG_API WeightSink {
 public:
  /// What a failed sync leaves.
  enum class Mode {
    staged,    ///< the old weights, whole: the new ones lie beside them until `commit`
    in_place,  ///< a mixture: the model is torn until the next full sync
  };

  WeightSink() = default;
  WeightSink(const WeightSink&) = delete;
  WeightSink& operator=(const WeightSink&) = delete;
  virtual ~WeightSink();

  /// Asked once, before a sync begins.
  virtual Mode mode() const = 0;

  /// A sync begins; what an earlier one left staged is void.
  virtual void begin(std::int64_t version);

  /// Where the weight's values shall be put: a contiguous CPU tensor of its dtype and shape, no conjugate or negative
  /// view. Undefined, as by default:
  /// large weights get fresh memory, small ones stay in the bucket they came in.
  virtual at::Tensor storage_for(const WeightInfo& weight);

  /// A weight is there, whole. `is_view`: `tensor` lies in a bucket, is valid during this call only and must not be
  /// written to, since its bytes may be on their way to other consumers; copy what is to stay. Else it is the sink's to
  /// keep. Throws: anything; every rank of the sync then gets its text.
  virtual void take(const WeightInfo& weight, const at::Tensor& tensor, bool is_view) = 0;

  /// All weights came. Throws: anything, when something is missing; every rank of the sync then gets its text.
  virtual void check_complete();

  /// All weights of all consumers are there and verified: from now on this is the model.
  virtual void commit(std::int64_t version) = 0;

  /// The sync failed, for this reason. Not called after `commit`.
  virtual void roll_back(std::string_view cause) noexcept;
};

}  // namespace dbg
