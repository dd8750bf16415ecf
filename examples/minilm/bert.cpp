// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The BERT encoder's computation, step by step as the reference does it, so that dumps can be compared bit by bit.
#include "bert.h"

#include <ATen/Functions.h>
#include <torch/utils.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "dbg/runtime.h"
#include "dbg/safetensors.h"

namespace minilm {
namespace {

constexpr double kFaultyEps = 1e-5;

torch::nn::LayerNorm make_norm(std::int64_t size, double eps) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({size}).eps(eps));
}

double norm_eps(const ModelConfig& config, std::int64_t layer_id, const Fault& fault) {
  return fault.in_layer(FaultKind::eps, layer_id) ? kFaultyEps : config.layer_norm_eps;
}

/// What is added to the scores: 0 for a token, the lowest float for padding; undefined where nothing is padded.
/// Shape: `[batch, seq]` -> `[batch, 1, 1, seq]`.
at::Tensor additive_mask(const at::Tensor& attention_mask) {
  if (attention_mask.all().item<bool>()) return {};
  const at::Tensor padding = attention_mask.eq(0).unsqueeze(1).unsqueeze(2);
  return at::zeros(padding.sizes(), at::kFloat).masked_fill(padding, std::numeric_limits<float>::lowest());
}

/// The mean over the tokens that are not padding. Shape: `[batch, seq, hidden]` -> `[batch, hidden]`.
at::Tensor mean_pool(const at::Tensor& hidden, const at::Tensor& attention_mask) {
  const at::Tensor weight = attention_mask.unsqueeze(-1).expand(hidden.sizes()).to(hidden.scalar_type());
  return (hidden * weight).sum(1) / weight.sum(1).clamp_min(1e-9);
}

}  // namespace

EmbeddingsImpl::EmbeddingsImpl(const ModelConfig& config)
    : word_embeddings_(register_module("word_embeddings", torch::nn::Embedding(config.vocab_size, config.hidden_size))),
      position_embeddings_(
          register_module("position_embeddings", torch::nn::Embedding(config.max_positions, config.hidden_size))),
      token_type_embeddings_(
          register_module("token_type_embeddings", torch::nn::Embedding(config.num_token_types, config.hidden_size))),
      norm_(register_module("LayerNorm", make_norm(config.hidden_size, config.layer_norm_eps))) {}

at::Tensor EmbeddingsImpl::forward(const at::Tensor& input_ids) {
  const at::Tensor positions = at::arange(input_ids.size(1), input_ids.options()).unsqueeze(0);
  at::Tensor sum = word_embeddings_(input_ids) + token_type_embeddings_(at::zeros_like(input_ids));
  sum = sum + position_embeddings_(positions);
  dbg::dump("embeddings_sum", sum);
  const at::Tensor out = norm_(sum);
  dbg::dump("embeddings", out);
  return out;
}

SelfAttentionImpl::SelfAttentionImpl(const ModelConfig& config, std::int64_t layer_id, const Fault& fault)
    : layer_id_(layer_id),
      num_heads_(config.num_heads),
      ignores_mask_(fault.in_layer(FaultKind::mask, layer_id)),
      query_(register_module("query", torch::nn::Linear(config.hidden_size, config.hidden_size))),
      key_(register_module("key", torch::nn::Linear(config.hidden_size, config.hidden_size))),
      value_(register_module("value", torch::nn::Linear(config.hidden_size, config.hidden_size))) {}

at::Tensor SelfAttentionImpl::forward(const at::Tensor& hidden, const at::Tensor& mask) {
  const std::int64_t batch = hidden.size(0);
  const std::int64_t seq = hidden.size(1);
  const std::int64_t head_size = hidden.size(2) / num_heads_;
  const auto by_head = [&](const at::Tensor& x) { return x.view({batch, seq, num_heads_, head_size}).transpose(1, 2); };

  const at::Tensor q = query_(hidden);
  dbg::dump("attn_q", q, {{"layer_id", layer_id_}});
  const at::Tensor k = key_(hidden);
  dbg::dump("attn_k", k, {{"layer_id", layer_id_}});
  const at::Tensor v = value_(hidden);
  dbg::dump("attn_v", v, {{"layer_id", layer_id_}});

  at::Tensor scores = at::matmul(by_head(q), by_head(k).transpose(2, 3)) * (1.0 / std::sqrt(double(head_size)));
  // Before the mask: its lowest floats would drown every other value of the record.
  dbg::dump("attn_scores", scores, {{"layer_id", layer_id_}});
  if (mask.defined() && !ignores_mask_) scores = scores + mask;
  const at::Tensor probs = at::softmax(scores, -1);
  dbg::dump("attn_probs", probs, {{"layer_id", layer_id_}});

  const at::Tensor context = at::matmul(probs, by_head(v)).transpose(1, 2).reshape({batch, seq, hidden.size(2)});
  dbg::dump("attn_context", context, {{"layer_id", layer_id_}});
  return context;
}

ResidualImpl::ResidualImpl(const ModelConfig& config, std::int64_t in_size, std::int64_t layer_id, const Fault& fault,
                           const char* linear_name, const char* norm_name)
    : layer_id_(layer_id),
      linear_name_(linear_name),
      norm_name_(norm_name),
      dense_(register_module("dense", torch::nn::Linear(in_size, config.hidden_size))),
      norm_(register_module("LayerNorm", make_norm(config.hidden_size, norm_eps(config, layer_id, fault)))) {}

at::Tensor ResidualImpl::forward(const at::Tensor& hidden, const at::Tensor& residual) {
  const at::Tensor projected = dense_(hidden);
  dbg::dump(linear_name_, projected, {{"layer_id", layer_id_}});
  const at::Tensor out = norm_(projected + residual);
  dbg::dump(norm_name_, out, {{"layer_id", layer_id_}});
  return out;
}

AttentionImpl::AttentionImpl(const ModelConfig& config, std::int64_t layer_id, const Fault& fault)
    : self_(register_module("self", SelfAttention(config, layer_id, fault))),
      output_(register_module("output",
                              Residual(config, config.hidden_size, layer_id, fault, "attn_output", "attn_norm"))) {}

at::Tensor AttentionImpl::forward(const at::Tensor& hidden, const at::Tensor& mask) {
  return output_(self_(hidden, mask), hidden);
}

IntermediateImpl::IntermediateImpl(const ModelConfig& config, std::int64_t layer_id, const Fault& fault)
    : layer_id_(layer_id),
      gelu_form_(fault.in_layer(FaultKind::gelu_tanh, layer_id) ? "tanh" : "none"),
      dense_(register_module("dense", torch::nn::Linear(config.hidden_size, config.intermediate_size))) {}

at::Tensor IntermediateImpl::forward(const at::Tensor& hidden) {
  const at::Tensor up = dense_(hidden);
  dbg::dump("ffn_up", up, {{"layer_id", layer_id_}});
  const at::Tensor act = at::gelu(up, gelu_form_);
  dbg::dump("ffn_act", act, {{"layer_id", layer_id_}});
  return act;
}

LayerImpl::LayerImpl(const ModelConfig& config, std::int64_t layer_id, const Fault& fault)
    : attention_(register_module("attention", Attention(config, layer_id, fault))),
      intermediate_(register_module("intermediate", Intermediate(config, layer_id, fault))),
      output_(register_module("output",
                              Residual(config, config.intermediate_size, layer_id, fault, "ffn_down", "ffn_norm"))) {}

at::Tensor LayerImpl::forward(const at::Tensor& hidden, const at::Tensor& mask) {
  const at::Tensor attended = attention_(hidden, mask);
  return output_(intermediate_(attended), attended);
}

EncoderImpl::EncoderImpl(const ModelConfig& config, const Fault& fault)
    : layers_(register_module("layer", torch::nn::ModuleList())) {
  for (std::int64_t i = 0; i < config.num_layers; ++i) layers_->push_back(Layer(config, i, fault));
}

at::Tensor EncoderImpl::forward(at::Tensor hidden, const at::Tensor& mask) {
  for (const auto& layer : *layers_) hidden = layer->as<Layer>()->forward(hidden, mask);
  return hidden;
}

BertImpl::BertImpl(const ModelConfig& config, const Fault& fault)
    : fault_(fault),
      embeddings_(register_module("embeddings", Embeddings(config))),
      encoder_(register_module("encoder", Encoder(config, fault))) {
  eval();
}

void BertImpl::load_weights(const std::string& path) {
  const auto file = dbg::SafetensorsFile::open(path);
  const auto layer_prefix = [](std::int64_t layer) { return "encoder.layer." + std::to_string(layer) + "."; };
  const std::string here = layer_prefix(fault_.layer);
  const std::string next = layer_prefix(fault_.layer + 1);
  const torch::NoGradGuard no_grad;
  for (auto& item : named_parameters()) {
    std::string name = item.key();
    if (fault_.kind == FaultKind::layer_order) {
      if (name.compare(0, here.size(), here) == 0) {
        name.replace(0, here.size(), next);
      } else if (name.compare(0, next.size(), next) == 0) {
        name.replace(0, next.size(), here);
      }
    }
    if (!file.contains(name)) throw std::runtime_error(path + " lacks the weight " + name);
    const at::Tensor value = file.tensor(name);
    if (value.sizes() != item.value().sizes()) {
      throw std::runtime_error(path + ": " + name + " is " + c10::str(value.sizes()) + ", config.json makes it " +
                               c10::str(item.value().sizes()));
    }
    item.value().copy_(value);
    item.value().set_requires_grad(false);
  }
}

at::Tensor BertImpl::forward(const Batch& batch) {
  const torch::NoGradGuard no_grad;
  dbg::dump("input_ids", batch.input_ids);
  const at::Tensor hidden = encoder_(embeddings_(batch.input_ids), additive_mask(batch.attention_mask));
  const at::Tensor pooled = mean_pool(hidden, batch.attention_mask);
  dbg::dump("pooled", pooled);
  const at::Tensor embedding = pooled / pooled.norm(2, {1}, /*keepdim=*/true).clamp_min(1e-12);
  dbg::dump("embedding", embedding);
  return embedding;
}

}  // namespace minilm
