// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Trainers change a real model a little each step; inference ranks get its weights and check an embedding.
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <dbg/error.h>
#include <dbg/model_weights.h>
#include <dbg/participant.h>
#include <dbg/weight_broadcaster.h>
#include <dbg/world.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bert.h"
#include "model_config.h"
#include "wordpiece.h"

namespace {

struct Options {
  std::string model = "build/models/all-MiniLM-L6-v2";
  std::string sentence = "The new weights are in every inference rank.";
  int actors = 2;
  int rollouts = 2;
  int steps = 3;
  int fail_at = -1;
  std::string interface = "lo";
};

// What the trainers' model says of the sentence after each step, for the rollouts to compare with.
class Answers {
 public:
  void put(int step, const at::Tensor& embedding) {
    const std::lock_guard lock(mutex_);
    by_step_[step] = embedding;
  }
  at::Tensor of(int step) const {
    const std::lock_guard lock(mutex_);
    return by_step_.at(step);
  }

 private:
  mutable std::mutex mutex_;
  std::map<int, at::Tensor> by_step_;
};

// One writer at a time, so that lines of several ranks do not mix.
void say(const std::string& text) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  std::cout << text << std::endl;
}

void show_progress(int step, int steps) {
  if (::isatty(STDERR_FILENO) == 0) return;
  std::cerr << "\rstep " << step + 1 << " of " << steps << " ..." << (step + 1 == steps ? "\n" : "") << std::flush;
}

minilm::Batch batch_of(const Options& options, const minilm::ModelConfig& config) {
  const auto tokenizer = minilm::WordPiece::from_vocab_file(options.model + "/vocab.txt");
  const auto ids = tokenizer.encode(options.sentence, static_cast<std::size_t>(config.max_length));
  const at::Tensor row = at::tensor(ids, at::kLong).reshape({1, -1});
  return {row, at::ones_like(row)};
}

// Stands for an optimizer: equal on all trainers.
void train(minilm::Bert& model, int step) {
  at::NoGradGuard no_grad;
  int number = 0;
  for (auto& parameter : model->parameters()) parameter.mul_(1.0 + 1e-3 * ((step + number++) % 3 - 1));
}

void run_actor(const Options& options, dbg::WeightBroadcaster& broadcaster, int index, Answers& answers) {
  const auto config = minilm::read_model_config(options.model);
  const minilm::Batch batch = batch_of(options, config);
  minilm::Bert model(config);
  model->load_weights(options.model + "/model.safetensors");
  for (int step = 0; step < options.steps; ++step) {
    train(model, step);
    if (index == 0) {
      show_progress(step, options.steps);
      at::NoGradGuard no_grad;
      answers.put(step, model(batch).clone());
    }
    dbg::TensorListSource source(dbg::parameters_of(model));
    try {
      const dbg::SyncReport report = broadcaster.send(source, step);
      if (index == 0) say(report.describe());
    } catch (const dbg::SyncError& error) {
      if (index == 0) say("step " + std::to_string(step) + " was not synced: " + error.failure().cause);
    }
  }
}

// Fails half-way when it is told to.
class FragileSink : public dbg::TensorListSink {
 public:
  FragileSink(std::vector<dbg::NamedParameter> places, bool fails)
      : TensorListSink(std::move(places), Mode::staged), fails_(fails) {}
  void take(const dbg::WeightInfo& weight, const at::Tensor& tensor, bool is_view) override {
    if (fails_ && ++taken_ == 20)
      throw std::runtime_error("no memory for " + weight.name + " (asked for by --fail-at)");
    TensorListSink::take(weight, tensor, is_view);
  }

 private:
  bool fails_;
  int taken_ = 0;
};

void run_rollout(const Options& options, dbg::WeightBroadcaster& broadcaster, int index, const Answers& answers) {
  const auto config = minilm::read_model_config(options.model);
  const minilm::Batch batch = batch_of(options, config);
  minilm::Bert model(config);  // random weights: what comes out is worth nothing before the first sync
  for (int step = 0; step < options.steps; ++step) {
    FragileSink sink(dbg::parameters_of(model), index == 0 && step == options.fail_at);
    try {
      broadcaster.receive(sink);
    } catch (const dbg::SyncError&) {
      // The old model is whole, and the next step tries again.
    }
    if (broadcaster.version() < 0) continue;
    at::NoGradGuard no_grad;
    const at::Tensor expected = answers.of(static_cast<int>(broadcaster.version()));
    const at::Tensor embedding = model(batch);
    if (!at::equal(embedding, expected)) {
      throw std::runtime_error("rollout " + std::to_string(index) + " embeds the sentence differently after step " +
                               std::to_string(step));
    }
    say("rollout " + std::to_string(index) + " has version " + std::to_string(broadcaster.version()) +
        ", and its embedding is the trainers' (first value " + std::to_string(embedding[0][0].item<float>()) + ")");
  }
}

void run(const Options& options) {
  const int size = options.actors + options.rollouts;
  const std::vector<dbg::World> worlds = dbg::World::for_threads(size);
  Answers answers;
  std::atomic<bool> has_failed{false};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const dbg::ParticipantScope bound(std::make_shared<const dbg::Participant>(rank, size));
        const bool is_actor = rank < options.actors;
        const int index = is_actor ? rank : rank - options.actors;
        dbg::BroadcastOptions sync;
        sync.bucket_bytes = 16 << 20;
        sync.interface = options.interface;
        sync.timeout = std::chrono::seconds(60);
        const auto role = is_actor ? dbg::BroadcastRole::actor(index, options.actors, options.rollouts)
                                   : dbg::BroadcastRole::rollout(index, options.actors, options.rollouts);
        const auto broadcaster =
            dbg::WeightBroadcaster::create(worlds[static_cast<std::size_t>(rank)].store(), role, sync);
        if (is_actor) {
          run_actor(options, *broadcaster, index, answers);
        } else {
          run_rollout(options, *broadcaster, index, answers);
        }
      } catch (const std::exception& error) {
        has_failed = true;
        std::cerr << "rank " << rank << ": " << error.what() << "\n";
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (has_failed) throw std::runtime_error("not all ranks came through");
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Syncs a sentence-embedding model's weights from trainers to inference ranks, threads of this process.",
               "sync_weights");
  app.add_option("--model", options.model, "Folder with config.json, vocab.txt and model.safetensors")
      ->capture_default_str();
  app.add_option("--sentence", options.sentence, "What is embedded after each sync")->capture_default_str();
  app.add_option("--actors", options.actors, "Trainers")->capture_default_str()->check(CLI::Range(1, 64));
  app.add_option("--rollouts", options.rollouts, "Inference ranks")->capture_default_str()->check(CLI::Range(1, 64));
  app.add_option("--steps", options.steps, "Training steps")->capture_default_str()->check(CLI::Range(1, 100000));
  app.add_option("--fail-at", options.fail_at, "The step in which rollout 0's sink fails on purpose");
  app.add_option("--interface", options.interface, "Network interface of gloo")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    // Each rank computes alone; equal sums need equal numbers of threads.
    at::set_num_threads(1);
    run(options);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "sync_weights: " << error.what() << '\n';
    return 2;
  }
}
