// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Tells a Dumper the parallel ranks of a ModelParallel.
#include <memory>
#include <string>
#include <utility>

#include "dbg/model_parallel.h"
#include "dbg/participant.h"
#include "dbg/runtime.h"

namespace dbg {
namespace {

// Keeps no group alive: those end when their owner says so.
class ParallelPlugin final : public FrameworkPlugin {
 public:
  ParallelPlugin(int rank, ParallelState state) : rank_(rank), state_(std::move(state)) {}

  std::string name() const override { return "model_parallel"; }

  ParallelState collect_parallel_info() override {
    // Ranks may be threads that share a Dumper, each with a plugin of its own.
    return current_participant()->rank() == rank_ ? state_ : ParallelState();
  }

 private:
  int rank_;
  ParallelState state_;
};

}  // namespace

std::shared_ptr<FrameworkPlugin> make_parallel_plugin(const ModelParallel& model_parallel) {
  return std::make_shared<ParallelPlugin>(model_parallel.rank(), model_parallel.parallel_state());
}

}  // namespace dbg
