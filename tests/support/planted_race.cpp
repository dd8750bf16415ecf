// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A data race on purpose: shows that the suppressions still let ThreadSanitizer report one of our own.
#include <ATen/ATen.h>

#include <atomic>
#include <thread>

int main() {
  // Through a tensor, so that frames of libtorch are around as they are in real use.
  at::Tensor shared = at::zeros({4});
  float* cell = shared.data_ptr<float>();
  std::atomic<int> ready{0};
  const auto race = [&] {
    ready.fetch_add(1, std::memory_order_relaxed);
    while (ready.load(std::memory_order_relaxed) != 2) {
    }
    *cell += 1.0F;
  };
  std::thread first(race);
  std::thread second(race);
  first.join();
  second.join();
  return 0;
}
