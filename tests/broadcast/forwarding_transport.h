// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Stands before a rank's transport and passes all on; what derives from it does something else somewhere.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "broadcast/transport.h"

namespace dbg::test {

class ForwardingTransport : public broadcast::Transport {
 public:
  explicit ForwardingTransport(std::shared_ptr<broadcast::Transport> inner) : inner_(std::move(inner)) {}
  void control(broadcast::ControlMessage& message) override { inner_->control(message); }
  std::uint64_t memory_for(std::uint64_t length) const override { return inner_->memory_for(length); }
  std::uint64_t payload(const at::Tensor& memory, std::uint64_t length) override {
    return inner_->payload(memory, length);
  }
  bool advance() override { return inner_->advance(); }
  std::uint64_t finished_below() const override { return inner_->finished_below(); }
  void finish(std::uint64_t number) override { inner_->finish(number); }
  std::uint64_t sent_bytes() const override { return inner_->sent_bytes(); }

 protected:
  std::shared_ptr<broadcast::Transport> inner_;
};

}  // namespace dbg::test
