// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A monitor around two lists.
#include "broadcast/bucket_exchange.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace dbg::broadcast {
namespace {

// The signal is raised by a thread that does not know of the exchange.
constexpr std::chrono::milliseconds kLook{20};

}  // namespace

at::Tensor BucketMemory::take(std::uint64_t size) {
  const auto wanted = static_cast<std::int64_t>(std::max<std::uint64_t>(size, 1));
  const auto found =
      std::find_if(idle_.begin(), idle_.end(), [&](const at::Tensor& memory) { return memory.numel() >= wanted; });
  if (found == idle_.end()) return at::empty({wanted}, at::kByte);
  at::Tensor memory = *found;
  idle_.erase(found);
  return memory;
}

void BucketMemory::give_back(at::Tensor memory) {
  idle_.push_back(std::move(memory));
}

void BucketMemory::clear() {
  idle_.clear();
}

std::uint64_t BucketMemory::size_bytes() const {
  std::uint64_t sum = 0;
  for (const at::Tensor& memory : idle_) sum += memory.nbytes();
  return sum;
}

BucketExchange::BucketExchange(std::vector<at::Tensor> memory, std::shared_ptr<distributed::AbortSignal> signal)
    : free_(std::move(memory)), total_(free_.size()), signal_(std::move(signal)) {}

template <class Ready>
void BucketExchange::wait_until(std::unique_lock<std::mutex>& lock, const Ready& is_ready) {
  while (!is_ready()) {
    if (signal_->cause()) throw Interrupted();
    changed_.wait_for(lock, kLook);
  }
  if (signal_->cause()) throw Interrupted();
}

at::Tensor BucketExchange::acquire() {
  std::unique_lock lock(mutex_);
  ++num_waiting_;
  changed_.notify_all();
  try {
    wait_until(lock, [&] { return !free_.empty(); });
  } catch (...) {
    --num_waiting_;
    throw;
  }
  --num_waiting_;
  at::Tensor memory = std::move(free_.back());
  free_.pop_back();
  most_in_use_ = std::max(most_in_use_, total_ - free_.size());
  return memory;
}

std::optional<at::Tensor> BucketExchange::try_acquire() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) return std::nullopt;
  at::Tensor memory = std::move(free_.back());
  free_.pop_back();
  most_in_use_ = std::max(most_in_use_, total_ - free_.size());
  return memory;
}

void BucketExchange::release(at::Tensor memory) {
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(memory));
  changed_.notify_all();
}

void BucketExchange::push(BucketItem item) {
  const std::lock_guard lock(mutex_);
  items_.push_back(std::move(item));
  changed_.notify_all();
}

void BucketExchange::push_below(std::size_t most, BucketItem item) {
  std::unique_lock lock(mutex_);
  wait_until(lock, [&] { return items_.size() < most; });
  items_.push_back(std::move(item));
  changed_.notify_all();
}

void BucketExchange::close() {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  changed_.notify_all();
}

void BucketExchange::await_closed() {
  std::unique_lock lock(mutex_);
  wait_until(lock, [&] { return is_closed_; });
}

BucketItem BucketExchange::pop() {
  std::unique_lock lock(mutex_);
  wait_until(lock, [&] { return !items_.empty(); });
  BucketItem item = std::move(items_.front());
  items_.pop_front();
  changed_.notify_all();
  return item;
}

std::optional<BucketItem> BucketExchange::pop_unless_memory_is_wanted() {
  std::unique_lock lock(mutex_);
  wait_until(lock, [&] { return !items_.empty() || (num_waiting_ > 0 && free_.empty()); });
  if (items_.empty()) return std::nullopt;
  BucketItem item = std::move(items_.front());
  items_.pop_front();
  changed_.notify_all();
  return item;
}

void BucketExchange::wake() {
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

std::vector<at::Tensor> BucketExchange::take_back() {
  const std::lock_guard lock(mutex_);
  return std::exchange(free_, {});
}

std::size_t BucketExchange::most_in_use() const {
  const std::lock_guard lock(mutex_);
  return most_in_use_;
}

}  // namespace dbg::broadcast
