// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What a framework tells the Dumper about itself: parallel ranks, parameter names, layer ids, recomputation.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dbg/export.h"
#include "dbg/parallel_state.h"

namespace dbg {

/// What `dump_model` knows of a model while it names the parameters. Holds no torch type.
struct ModelInfo {
  std::string type_name;                     ///< the model's C++ type, `engine::LlamaModel`
  std::string prefix;                        ///< "" for the model itself, else the name an extra module was given
  std::vector<std::string> parameter_names;  ///< as the model names them, in its order
  int model_chunk = 0;                       ///< which virtual-pipeline chunk of this rank
};

/// Whether the current forward runs inside activation checkpointing, and which time.
enum class RecomputeStatus { disabled, original, recompute };

/// One framework's answers. Every member has a default that says "I don't know", and every call is fenced: a plugin
/// that throws costs one warning, and what it was asked for is left out.
///
/// Several plugins may be registered; they are asked in order of registration, and the first answer wins (per key,
/// where there are keys; names of parameters pass through all of them in turn).
/// Threads: called from every thread that dumps; look ranks up by `current_participant()`.
class DBG_API FrameworkPlugin {
 public:
  FrameworkPlugin() = default;
  FrameworkPlugin(const FrameworkPlugin&) = delete;
  FrameworkPlugin& operator=(const FrameworkPlugin&) = delete;
  virtual ~FrameworkPlugin();

  /// Names the plugin in messages.
  virtual std::string name() const = 0;

  /// The meta key `<this>_parallel_info` under which the parallel ranks are written. SGLang's comparator reads
  /// `megatron` and `sglang` only, and refuses records that carry both; plugins that share one are merged.
  virtual std::string parallel_info_name() const { return "megatron"; }

  /// The calling participant's place per axis; empty while it isn't known (yet): asked anew for every record.
  virtual ParallelState collect_parallel_info() { return {}; }

  /// The name to write for a parameter, or nullopt to keep `name`.
  virtual std::optional<std::string> transform_model_param_name(const ModelInfo& model, const std::string& name);

  /// The layer that a module path such as `model.layers.3.mlp` lies in, counted from 0 over the whole model; nullopt:
  /// ask the next plugin. Asked by `Dumper::layer_id_of`.
  virtual std::optional<std::int64_t> layer_id_of(std::string_view module_path);

  /// nullopt: ask the next plugin.
  virtual std::optional<RecomputeStatus> recompute_status() { return std::nullopt; }
};

/// Gives pipeline stages the layer numbers of the whole model: `layers.N` becomes `layers.(N + offset)`.
///
/// Rewritten is the first path segment that is exactly `layers` and is followed by a number. `sublayers.2` stays, and
/// so does what lies below a segment of `Options::excluded` (`mtp.layers.0`: multi-token prediction counts its own).
class DBG_API PipelineLayerOffsetPlugin : public FrameworkPlugin {
 public:
  /// The first global layer of a model chunk (virtual pipeline) of the calling participant. nullopt or 0 keeps names.
  using OffsetOf = std::function<std::optional<std::int64_t>(int model_chunk)>;

  struct Options {
    std::string prefix;                        ///< only names below this path (`decoder`); "" for all
    std::vector<std::string> excluded{"mtp"};  ///< segments below which nothing is rewritten
  };

  explicit PipelineLayerOffsetPlugin(OffsetOf offset_of);
  /// Throws: ConfigError when `offset_of` is empty.
  PipelineLayerOffsetPlugin(OffsetOf offset_of, Options options);
  ~PipelineLayerOffsetPlugin() override;

  std::string name() const override { return "pipeline_layer_offset"; }
  std::optional<std::string> transform_model_param_name(const ModelInfo& model, const std::string& name) override;
  /// The number after `layers`, plus the offset of chunk 0.
  std::optional<std::int64_t> layer_id_of(std::string_view module_path) override;

 private:
  OffsetOf offset_of_;
  Options options_;
};

/// The number in the first `layers.N` of a module path: the answer when no plugin has one.
DBG_API std::optional<std::int64_t> layer_id_in_path(std::string_view module_path);

}  // namespace dbg
