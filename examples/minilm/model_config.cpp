// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Reads the model's JSON files and refuses what this program would compute wrongly.
#include "model_config.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace minilm {
namespace {

using Json = nlohmann::json;

Json read_json(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  try {
    return Json::parse(file);
  } catch (const Json::exception& error) {
    throw std::runtime_error(path + " is not JSON: " + error.what());
  }
}

template <class T>
T get(const Json& json, const char* key, const std::string& path) {
  const auto found = json.find(key);
  if (found == json.end()) throw std::runtime_error(path + " has no '" + key + "'");
  try {
    return found->get<T>();
  } catch (const Json::exception&) {
    throw std::runtime_error(path + ": '" + key + "' is " + found->dump() + ", which is of the wrong type");
  }
}

std::int64_t get_size(const Json& json, const char* key, const std::string& path) {
  const auto value = get<std::int64_t>(json, key, path);
  if (value <= 0) throw std::runtime_error(path + ": '" + key + "' is " + std::to_string(value) + ", not positive");
  return value;
}

// A value this program does not compute would give a wrong embedding without a word.
void require(const Json& json, const char* key, const Json& wanted, const std::string& path) {
  const auto found = json.find(key);
  if (found != json.end() && *found != wanted) {
    throw std::runtime_error(path + ": '" + key + "' is " + found->dump() + "; this program computes only " +
                             wanted.dump());
  }
}

}  // namespace

ModelConfig read_model_config(const std::string& folder) {
  namespace fs = std::filesystem;
  const std::string path = folder + "/config.json";
  if (!fs::exists(path)) {
    throw std::runtime_error("no model in '" + folder +
                             "' (it has no config.json); `cmake/bootstrap.sh --model` fetches one into "
                             "build/models/all-MiniLM-L6-v2, --model DIR names another");
  }
  const Json json = read_json(path);
  require(json, "model_type", "bert", path);
  require(json, "hidden_act", "gelu", path);
  require(json, "position_embedding_type", "absolute", path);
  ModelConfig config;
  config.vocab_size = get_size(json, "vocab_size", path);
  config.hidden_size = get_size(json, "hidden_size", path);
  config.intermediate_size = get_size(json, "intermediate_size", path);
  config.num_heads = get_size(json, "num_attention_heads", path);
  config.num_layers = get_size(json, "num_hidden_layers", path);
  config.max_positions = get_size(json, "max_position_embeddings", path);
  config.num_token_types = get_size(json, "type_vocab_size", path);
  config.layer_norm_eps = get<double>(json, "layer_norm_eps", path);
  if (config.hidden_size % config.num_heads != 0) {
    throw std::runtime_error(path + ": hidden_size " + std::to_string(config.hidden_size) +
                             " is no multiple of num_attention_heads " + std::to_string(config.num_heads));
  }

  config.max_length = config.max_positions;
  if (const std::string sentence = folder + "/sentence_bert_config.json"; fs::exists(sentence)) {
    config.max_length = std::min(config.max_length, get_size(read_json(sentence), "max_seq_length", sentence));
  }
  if (const std::string pooling = folder + "/1_Pooling/config.json"; fs::exists(pooling)) {
    const Json modes = read_json(pooling);
    require(modes, "pooling_mode_mean_tokens", true, pooling);
    for (const char* other :
         {"pooling_mode_cls_token", "pooling_mode_max_tokens", "pooling_mode_mean_sqrt_len_tokens"}) {
      require(modes, other, false, pooling);
    }
  }
  return config;
}

}  // namespace minilm
