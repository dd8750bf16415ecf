// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The program: embeds sentences with all-MiniLM-L6-v2, dumping every step, if asked with one mistake in one layer.
#include <ATen/Functions.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "bert.h"
#include "dbg/runtime.h"
#include "fault.h"
#include "model_config.h"
#include "wordpiece.h"

namespace {

using Ids = std::vector<std::int64_t>;

struct Options {
  std::string model = "build/models/all-MiniLM-L6-v2";
  std::string sentences = "examples/minilm/sentences.txt";
  std::optional<std::string> fault;
  std::optional<std::int64_t> fault_layer;
  std::size_t batch_size = 8;
  bool prints_token_ids = false;
};

std::vector<std::string> read_lines(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read the sentences in '" + path + "'; --sentences names another file");
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    lines.push_back(line);
  }
  if (lines.empty()) throw std::runtime_error("'" + path + "' holds no line; it needs one sentence a line");
  return lines;
}

minilm::Batch make_batch(const Ids* first, std::size_t count, std::int64_t pad_id) {
  std::size_t longest = 0;
  for (std::size_t i = 0; i < count; ++i) longest = std::max(longest, first[i].size());
  const auto options = at::TensorOptions().dtype(at::kLong);
  const std::vector<std::int64_t> shape{static_cast<std::int64_t>(count), static_cast<std::int64_t>(longest)};
  minilm::Batch batch{at::full(shape, pad_id, options), at::zeros(shape, options)};
  for (std::size_t i = 0; i < count; ++i) {
    auto* ids = batch.input_ids.data_ptr<std::int64_t>() + i * longest;
    auto* mask = batch.attention_mask.data_ptr<std::int64_t>() + i * longest;
    std::copy(first[i].begin(), first[i].end(), ids);
    std::fill_n(mask, first[i].size(), 1);
  }
  return batch;
}

std::vector<minilm::Batch> make_batches(const std::vector<Ids>& ids, std::size_t batch_size, std::int64_t pad_id) {
  std::vector<minilm::Batch> batches;
  for (std::size_t begin = 0; begin < ids.size(); begin += batch_size) {
    batches.push_back(make_batch(&ids[begin], std::min(batch_size, ids.size() - begin), pad_id));
  }
  return batches;
}

void refuse_fault_without_effect(const minilm::Fault& fault, const std::vector<minilm::Batch>& batches) {
  if (fault.kind != minilm::FaultKind::mask) return;
  for (const auto& batch : batches) {
    if (!batch.attention_mask.all().item<bool>()) return;
  }
  throw std::runtime_error(
      "--fault mask needs padding, and no batch here has any, so nothing would differ; give sentences of unlike length "
      "and a --batch above 1");
}

// The start of a sentence, cut between characters.
std::string shortened(const std::string& text, std::size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  std::size_t end = max_bytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

// What an embedding is for: each sentence with the one nearest to it.
void print_nearest(const std::vector<std::string>& sentences, const std::vector<Ids>& ids, const at::Tensor& all) {
  const at::Tensor similarity = at::matmul(all, all.t()).fill_diagonal_(-1.0);
  const auto [best, index] = similarity.max(1);
  for (std::size_t i = 0; i < sentences.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i);
    std::cout << std::setw(4) << i + 1 << "  " << std::setw(3) << ids[i].size() << " tokens  ";
    if (sentences.size() > 1) {
      std::cout << "nearest " << std::setw(3) << index[row].item<std::int64_t>() + 1 << " (" << std::fixed
                << std::setprecision(4) << best[row].item<float>() << ")  ";
    }
    std::cout << shortened(sentences[i], 60) << '\n';
  }
}

void run(const Options& options) {
  const auto config = minilm::read_model_config(options.model);
  const auto fault = minilm::parse_fault(options.fault, options.fault_layer, config.num_layers);
  const auto tokenizer = minilm::WordPiece::from_vocab_file(options.model + "/vocab.txt");
  const auto sentences = read_lines(options.sentences);
  std::vector<Ids> ids;
  for (const auto& sentence : sentences) {
    ids.push_back(tokenizer.encode(sentence, static_cast<std::size_t>(config.max_length)));
  }
  if (options.prints_token_ids) {
    for (const auto& line : ids) {
      for (std::size_t i = 0; i < line.size(); ++i) std::cout << (i == 0 ? "" : " ") << line[i];
      std::cout << '\n';
    }
    return;
  }

  const auto batches = make_batches(ids, options.batch_size, tokenizer.pad_id());
  refuse_fault_without_effect(fault, batches);
  minilm::Bert model(config, fault);
  model->load_weights(options.model + "/model.safetensors");
  std::vector<at::Tensor> embeddings;
  for (const auto& batch : batches) {
    embeddings.push_back(model(batch));
    dbg::step();
  }

  std::cout << "all-MiniLM-L6-v2: " << sentences.size() << " sentences in " << batches.size() << " batches, "
            << config.num_layers << " layers of hidden size " << config.hidden_size << '\n';
  if (fault.kind != minilm::FaultKind::none) {
    std::cout << "fault " << minilm::name_of(fault.kind) << " in layer " << fault.layer
              << ": the first dump it changes is " << minilm::first_changed_dump(fault.kind)
              << " layer_id=" << fault.layer << '\n';
  }
  print_nearest(sentences, ids, at::cat(embeddings));
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Embeds sentences with all-MiniLM-L6-v2. DUMPER_ENABLE=1 dumps every step of the computation.",
               "minilm");
  app.add_option("--model", options.model, "Folder with config.json, vocab.txt and model.safetensors")
      ->capture_default_str();
  app.add_option("--sentences", options.sentences, "Text file, one sentence a line")->capture_default_str();
  app.add_option("--batch", options.batch_size, "Sentences in one forward pass, which is one step of the dumps")
      ->capture_default_str()
      ->check(CLI::Range(std::size_t{1}, std::size_t{4096}));
  app.add_option("--fault", options.fault, "One mistake on purpose: gelu-tanh, eps, mask or layer-order");
  app.add_option("--fault-layer", options.fault_layer, "The layer it goes into, from 0");
  app.add_flag("--token-ids", options.prints_token_ids, "Print the token ids of each line, and stop");
  CLI11_PARSE(app, argc, argv);
  try {
    run(options);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "minilm: " << error.what() << '\n';
    return 2;
  }
}
