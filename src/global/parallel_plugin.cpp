// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Tells a Dumper the parallel ranks of a ModelParallel.
#include <memory>
#include <string>
#include <utility>

#include "dbg/error.h"
#include "dbg/model_parallel.h"
#include "dbg/participant.h"
#include "dbg/runtime.h"

namespace dbg {
namespace {

class ParallelPlugin final : public FrameworkPlugin {
 public:
  explicit ParallelPlugin(std::shared_ptr<const ModelParallel> model_parallel)
      : model_parallel_(std::move(model_parallel)) {}

  std::string name() const override { return "model_parallel"; }

  ParallelState collect_parallel_info() override {
    // Ranks may be threads that share a Dumper, each with a plugin of its own.
    if (current_participant()->rank() != model_parallel_->rank()) return {};
    return model_parallel_->parallel_state();
  }

 private:
  std::shared_ptr<const ModelParallel> model_parallel_;
};

}  // namespace

std::shared_ptr<FrameworkPlugin> make_parallel_plugin(std::shared_ptr<const ModelParallel> model_parallel) {
  if (!model_parallel) throw ConfigError("make_parallel_plugin of a null ModelParallel; make that first");
  return std::make_shared<ParallelPlugin>(std::move(model_parallel));
}

}  // namespace dbg
