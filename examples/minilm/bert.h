// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The BERT encoder as torch modules, named as in the model's file, with a dump at every step of the computation.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <memory>
#include <string>

#include "fault.h"
#include "model_config.h"

namespace minilm {

/// Sentences as the model takes them. Shape: both `[batch, seq]`, int64.
struct Batch {
  at::Tensor input_ids;
  /// 1 for a token, 0 for padding at the end.
  at::Tensor attention_mask;
};

class EmbeddingsImpl : public torch::nn::Module {
 public:
  explicit EmbeddingsImpl(const ModelConfig& config);
  /// Shape: `[batch, seq]` -> `[batch, seq, hidden]`.
  at::Tensor forward(const at::Tensor& input_ids);

 private:
  torch::nn::Embedding word_embeddings_;
  torch::nn::Embedding position_embeddings_;
  torch::nn::Embedding token_type_embeddings_;
  torch::nn::LayerNorm norm_;
};
TORCH_MODULE(Embeddings);

class SelfAttentionImpl : public torch::nn::Module {
 public:
  SelfAttentionImpl(const ModelConfig& config, std::int64_t layer_id, const Fault& fault);
  /// `mask` is added to the scores and may be undefined. Shape: `[batch, seq, hidden]` -> the same; `mask` as in
  /// `additive_mask`.
  at::Tensor forward(const at::Tensor& hidden, const at::Tensor& mask);

 private:
  std::int64_t layer_id_;
  std::int64_t num_heads_;
  bool ignores_mask_;
  torch::nn::Linear query_;
  torch::nn::Linear key_;
  torch::nn::Linear value_;
};
TORCH_MODULE(SelfAttention);

/// A projection back to the hidden size, added to the residual and normalised: the second half of attention and of the
/// feed-forward. Its dumps are named `linear_name` and `norm_name`.
class ResidualImpl : public torch::nn::Module {
 public:
  ResidualImpl(const ModelConfig& config, std::int64_t in_size, std::int64_t layer_id, const Fault& fault,
               const char* linear_name, const char* norm_name);
  at::Tensor forward(const at::Tensor& hidden, const at::Tensor& residual);

 private:
  std::int64_t layer_id_;
  const char* linear_name_;
  const char* norm_name_;
  torch::nn::Linear dense_;
  torch::nn::LayerNorm norm_;
};
TORCH_MODULE(Residual);

class AttentionImpl : public torch::nn::Module {
 public:
  AttentionImpl(const ModelConfig& config, std::int64_t layer_id, const Fault& fault);
  at::Tensor forward(const at::Tensor& hidden, const at::Tensor& mask);

 private:
  SelfAttention self_;
  Residual output_;
};
TORCH_MODULE(Attention);

class IntermediateImpl : public torch::nn::Module {
 public:
  IntermediateImpl(const ModelConfig& config, std::int64_t layer_id, const Fault& fault);
  /// Shape: `[batch, seq, hidden]` -> `[batch, seq, intermediate]`.
  at::Tensor forward(const at::Tensor& hidden);

 private:
  std::int64_t layer_id_;
  const char* gelu_form_;
  torch::nn::Linear dense_;
};
TORCH_MODULE(Intermediate);

class LayerImpl : public torch::nn::Module {
 public:
  LayerImpl(const ModelConfig& config, std::int64_t layer_id, const Fault& fault);
  at::Tensor forward(const at::Tensor& hidden, const at::Tensor& mask);

 private:
  Attention attention_;
  Intermediate intermediate_;
  Residual output_;
};
TORCH_MODULE(Layer);

class EncoderImpl : public torch::nn::Module {
 public:
  EncoderImpl(const ModelConfig& config, const Fault& fault);
  at::Tensor forward(at::Tensor hidden, const at::Tensor& mask);

 private:
  torch::nn::ModuleList layers_;
};
TORCH_MODULE(Encoder);

/// A sentence-embedding BERT: encoder, mean over the tokens, length 1. The file's pooler is not part of it.
///
/// Each forward dumps, in this order: input_ids, embeddings_sum, embeddings; for each layer, with tag layer_id: attn_q,
/// attn_k, attn_v `[batch, seq, hidden]`, attn_scores (scaled, before the mask) and attn_probs `[batch, heads, seq,
/// seq]`, attn_context, attn_output, attn_norm, ffn_up, ffn_act (after GELU) `[batch, seq, intermediate]`, ffn_down,
/// ffn_norm; then pooled and embedding `[batch, hidden]`.
class BertImpl : public torch::nn::Module {
 public:
  explicit BertImpl(const ModelConfig& config, const Fault& fault = {});

  /// Copies the weights from the safetensors file; tensors of the file that the model has not are left.
  /// Throws: std::runtime_error, or dbg::Error, when a weight is missing or of another shape.
  void load_weights(const std::string& path);

  /// Shape: the result is `[batch, hidden]`, each row of length 1.
  at::Tensor forward(const Batch& batch);

 private:
  Fault fault_;
  Embeddings embeddings_;
  Encoder encoder_;
};
TORCH_MODULE(Bert);

}  // namespace minilm
