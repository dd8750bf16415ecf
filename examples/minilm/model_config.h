// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What the files of the model's folder say about its sizes.
#pragma once

#include <cstdint>
#include <string>

namespace minilm {

/// The sizes of a BERT encoder and what is needed around it to embed sentences.
struct ModelConfig {
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t num_heads = 0;
  std::int64_t num_layers = 0;
  std::int64_t max_positions = 0;
  std::int64_t num_token_types = 0;
  double layer_norm_eps = 0;
  /// The longest sentence in tokens, [CLS] and [SEP] included; the rest is cut off.
  std::int64_t max_length = 0;
};

/// Reads config.json, and sentence_bert_config.json and 1_Pooling/config.json where the folder has them.
/// Throws: std::runtime_error naming file, key and value when the model is of a kind this program does not compute.
ModelConfig read_model_config(const std::string& folder);

}  // namespace minilm
