// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Sources and sinks over tensors and files.
#include "dbg/model_weights.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <utility>

#include "base/fence.h"
#include "base/formatted.h"
#include "broadcast/bucket_plan.h"
#include "broadcast/weight_packing.h"
#include "dbg/error.h"
#include "dbg/safetensors.h"

namespace dbg {

TensorListSource::TensorListSource(std::vector<NamedParameter> tensors) : tensors_(std::move(tensors)) {}
TensorListSource::~TensorListSource() = default;

void TensorListSource::begin() {
  next_ = 0;
}

std::optional<Weight> TensorListSource::next() {
  if (next_ == tensors_.size()) return std::nullopt;
  const NamedParameter& item = tensors_[next_++];
  return Weight{item.name, item.tensor};
}

std::optional<std::vector<WeightInfo>> TensorListSource::manifest() const {
  std::vector<WeightInfo> infos;
  const auto refusal = base::run_fenced([&] {
    for (const NamedParameter& item : tensors_) infos.push_back(broadcast::info_of({item.name, item.tensor}));
  });
  if (refusal) return std::nullopt;
  return infos;
}

TensorListSink::TensorListSink(std::vector<NamedParameter> tensors, Mode mode) : mode_(mode) {
  for (NamedParameter& item : tensors) {
    if (!item.tensor.defined())
      throw ConfigError(formatted("the sink's place '{}' is an undefined tensor.", item.name));
    if (!places_.emplace(item.name, item.tensor).second) {
      throw ConfigError(formatted("the sink has two places of the name '{}'; names are unique.", item.name));
    }
  }
}
TensorListSink::~TensorListSink() = default;

void TensorListSink::begin(std::int64_t) {
  staged_.clear();
}

const at::Tensor& TensorListSink::place_of(const WeightInfo& weight) const {
  const auto found = places_.find(weight.name);
  if (found == places_.end()) {
    throw ConfigError(formatted("there is no place for {}; the model has {} other parameters.",
                                broadcast::text_of(weight), places_.size()));
  }
  const at::Tensor& place = found->second;
  if (place.scalar_type() != weight.dtype || place.sizes() != at::IntArrayRef(weight.shape)) {
    const WeightInfo own{weight.name, place.sizes().vec(), place.scalar_type()};
    throw ConfigError(formatted("{} came, and its place is {}.", broadcast::text_of(weight), broadcast::text_of(own)));
  }
  return place;
}

at::Tensor TensorListSink::storage_for(const WeightInfo& weight) {
  const at::Tensor& place = place_of(weight);
  if (mode_ == Mode::in_place && place.is_cpu() && place.is_contiguous()) return place;
  return {};
}

void TensorListSink::take(const WeightInfo& weight, const at::Tensor& tensor, bool is_view) {
  const at::Tensor& place = place_of(weight);
  if (mode_ == Mode::staged) {
    staged_[weight.name] = is_view ? tensor.clone() : tensor;
    return;
  }
  const c10::InferenceMode may_write_inference_tensors;
  if (tensor.const_data_ptr() != place.const_data_ptr()) place.detach().copy_(tensor);
  staged_[weight.name] = place;
}

void TensorListSink::check_complete() {
  for (const auto& [name, place] : places_) {
    if (staged_.count(name) == 0) throw ConfigError(formatted("the parameter '{}' got no values.", name));
  }
}

void TensorListSink::commit(std::int64_t) {
  if (mode_ == Mode::staged) {
    const c10::InferenceMode may_write_inference_tensors;
    for (const auto& [name, values] : staged_) places_.at(name).detach().copy_(values);
  }
  staged_.clear();
}

void TensorListSink::roll_back(std::string_view) noexcept {
  staged_.clear();
}

TensorMapSink::TensorMapSink() = default;
TensorMapSink::~TensorMapSink() = default;

void TensorMapSink::begin(std::int64_t) {
  staged_.clear();
  staged_names_.clear();
}

void TensorMapSink::take(const WeightInfo& weight, const at::Tensor& tensor, bool is_view) {
  staged_[weight.name] = is_view ? tensor.clone() : tensor;
  staged_names_.push_back(weight.name);
}

void TensorMapSink::commit(std::int64_t) {
  tensors_.swap(staged_);
  names_.swap(staged_names_);
  staged_.clear();
  staged_names_.clear();
}

void TensorMapSink::roll_back(std::string_view) noexcept {
  staged_.clear();
  staged_names_.clear();
}

struct SafetensorsSource::State {
  SafetensorsFile file;
  std::size_t next = 0;
};

SafetensorsSource::SafetensorsSource(const std::string& path) : state_(new State{SafetensorsFile::open(path)}) {}
SafetensorsSource::~SafetensorsSource() = default;

void SafetensorsSource::begin() {
  state_->next = 0;
}

std::optional<Weight> SafetensorsSource::next() {
  const auto& all = state_->file.tensors();
  if (state_->next == all.size()) return std::nullopt;
  const std::string& name = all[state_->next++].name;
  return Weight{name, state_->file.tensor(name)};
}

std::optional<std::vector<WeightInfo>> SafetensorsSource::manifest() const {
  std::vector<WeightInfo> infos;
  for (const SafetensorsInfo& info : state_->file.tensors()) {
    if (info.dtype == at::ScalarType::Undefined) return std::nullopt;
    infos.push_back({info.name, info.shape, info.dtype});
  }
  return infos;
}

namespace detail {

void throw_null_model() {
  throw ConfigError("parameters_of: the model is a null pointer.");
}

}  // namespace detail
}  // namespace dbg
