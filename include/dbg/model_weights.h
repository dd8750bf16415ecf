// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Ready-made sources and sinks: a model's parameters, tensors by name, a safetensors file.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dbg/export.h"
#include "dbg/model_walk.h"
#include "dbg/weight_source.h"

namespace dbg {

/// Hands out named tensors in order. They are not to change until `send` returns.
class DBG_API TensorListSource : public WeightSource {
 public:
  explicit TensorListSource(std::vector<NamedParameter> tensors);
  ~TensorListSource() override;

  void begin() override;
  std::optional<Weight> next() override;
  /// nullopt when a tensor can't be sent; the error comes when it is its turn.
  std::optional<std::vector<WeightInfo>> manifest() const override;
  bool has_stable_storage() const override { return true; }

 private:
  std::vector<NamedParameter> tensors_;
  std::size_t next_ = 0;
};

/// Fills tensors that are there already, by name. Every weight that comes needs its place, every place its weight.
///
/// `staged`: the values lie beside the old ones and are copied at the commit. `in_place`: they are written as they
/// come; a sync that fails leaves a mixture.
class DBG_API TensorListSink : public WeightSink {
 public:
  /// Throws: ConfigError for a name that is there twice, and an undefined tensor.
  TensorListSink(std::vector<NamedParameter> tensors, Mode mode);
  ~TensorListSink() override;

  Mode mode() const override { return mode_; }
  void begin(std::int64_t version) override;
  at::Tensor storage_for(const WeightInfo& weight) override;
  void take(const WeightInfo& weight, const at::Tensor& tensor, bool is_view) override;
  /// Throws: ConfigError when a place got nothing.
  void check_complete() override;
  void commit(std::int64_t version) override;
  void roll_back(std::string_view cause) noexcept override;

 private:
  const at::Tensor& place_of(const WeightInfo& weight) const;

  const Mode mode_;
  std::map<std::string, at::Tensor> places_;
  std::map<std::string, at::Tensor> staged_;  // of in_place: places that were filled
};

/// Keeps what came as tensors of its own. Staged: `tensors()` are those of the last commit.
class DBG_API TensorMapSink : public WeightSink {
 public:
  TensorMapSink();
  ~TensorMapSink() override;

  Mode mode() const override { return Mode::staged; }
  void begin(std::int64_t version) override;
  void take(const WeightInfo& weight, const at::Tensor& tensor, bool is_view) override;
  void commit(std::int64_t version) override;
  void roll_back(std::string_view cause) noexcept override;

  const std::map<std::string, at::Tensor>& tensors() const noexcept { return tensors_; }
  /// In the order in which they came.
  const std::vector<std::string>& names() const noexcept { return names_; }

 private:
  std::map<std::string, at::Tensor> tensors_;
  std::vector<std::string> names_;
  std::map<std::string, at::Tensor> staged_;
  std::vector<std::string> staged_names_;
};

/// Hands out the tensors of a safetensors file, in the order of the file, one at a time in memory.
class DBG_API SafetensorsSource : public WeightSource {
 public:
  /// Throws: IoError as SafetensorsFile::open.
  explicit SafetensorsSource(const std::string& path);
  ~SafetensorsSource() override;

  void begin() override;
  std::optional<Weight> next() override;
  std::optional<std::vector<WeightInfo>> manifest() const override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The parameters of a `torch::nn::Module`, of any object with `named_parameters()`, or of a pointer to one.
/// Throws: ConfigError on a null pointer.
template <class Model>
std::vector<NamedParameter> parameters_of(Model& model);

namespace detail {
[[noreturn]] DBG_API void throw_null_model();
}  // namespace detail

template <class Model>
std::vector<NamedParameter> parameters_of(Model& model) {
  detail::WalkedModel walked = detail::ModelView::of(model).walk();
  if (walked.is_null) detail::throw_null_model();
  return std::move(walked.parameters);
}

}  // namespace dbg
