// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Grafts of a device's tensors, by way of the host, on both wires. Needs a GPU: nothing here runs without one.
#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "graft/sides.h"

namespace dbg {
namespace {

using test::run_sides;
using test::same_bits;
using test::SideRank;

class GraftCudaTest : public test::BothWiresTest {
 protected:
  void SetUp() override {
    if (!at::hasCUDA()) GTEST_SKIP() << "there is no GPU";
  }
};

INSTANTIATE_TEST_SUITE_P(Wires, GraftCudaTest, testing::Bool(),
                         [](const auto& wire) { return wire.param ? "Python" : "Framed"; });

std::vector<std::pair<std::string, at::Tensor>> tensors_on(c10::Device device) {
  const at::Tensor numbers = at::arange(24, at::kFloat).to(device);
  return {{"plain", numbers.clone()},
          {"transposed", numbers.clone().view({4, 6}).t()},
          {"view", numbers.clone().view({4, 6}).slice(1, 1, 4)},
          {"bf16", numbers.to(at::kBFloat16)},
          {"fp8 transposed", numbers.to(at::kFloat8_e4m3fn).view({4, 6}).t()},
          {"scalar", numbers[5].clone()},
          {"empty", numbers.slice(0, 0, 0).clone()}};
}

TEST_P(GraftCudaTest, TensorsGoFromAndToADevice) {
  for (const auto& [sender, target] :
       {std::pair{at::kCUDA, at::kCPU}, std::pair{at::kCPU, at::kCUDA}, std::pair{at::kCUDA, at::kCUDA}}) {
    run_sides(config(1, 1), [sender = sender, target = target](SideRank& side) {
      for (const auto& [form, value] : tensors_on(c10::Device(side.is_baseline ? sender : target))) {
        const at::Tensor expected = value.cpu().clone();
        if (!side.is_baseline) value.view_as(value).zero_();
        side.dumper.dump("x", value, {{"form", form}});
        EXPECT_TRUE(same_bits(value.cpu(), expected)) << form;
      }
      EXPECT_EQ(side.is_baseline ? side.counters().sent : side.counters().grafted, 7u);
    });
  }
  EXPECT_GE(log_.count("before={float32[24] cuda:0 "), 2u);
  EXPECT_GE(log_.count("tensor={float32[24] cuda:0 "), 2u);
}

// What a stream has not done yet is waited for, on either side.
TEST_P(GraftCudaTest, TheDumpingThreadsStreamIsFollowed) {
  run_sides(config(1, 1), [](SideRank& side) {
    const c10::impl::VirtualGuardImpl cuda(c10::DeviceType::CUDA);
    const c10::StreamGuard on_own_stream(cuda.getStreamFromGlobalPool(c10::Device(c10::DeviceType::CUDA, 0)));
    at::Tensor work = at::ones({2048, 2048}, at::TensorOptions().device(at::kCUDA));
    for (int i = 0; i < 20; ++i) work = at::matmul(work, work).div_(2048);
    const at::Tensor value = side.is_baseline ? work.sum() : work.sum() * -1;
    side.dumper.dump("x", value);
    EXPECT_EQ((value * 1).item<double>(), 2048.0 * 2048.0);
  });
}

TEST_P(GraftCudaTest, ADumpInsideACaptureLeavesTheGraphWholeAndKeepsNobodyWaiting) {
  run_sides(config(1, 1), [](SideRank& side) {
    const at::Tensor x = at::full({4}, side.is_baseline ? 1.0 : -1.0, at::TensorOptions().device(at::kCUDA));
    at::Tensor y = x * 2;  // the kernel is loaded before the capture
    const c10::impl::VirtualGuardImpl cuda(c10::DeviceType::CUDA);
    if (side.is_baseline) {
      side.dumper.dump("x", y);
    } else {
      const c10::StreamGuard on_own_stream(cuda.getStreamFromGlobalPool(x.device()));
      at::cuda::CUDAGraph graph;
      graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);  // the other side is a thread beside this one
      y = x * 2;
      side.dumper.dump("x", y);
      graph.capture_end();
      graph.replay();
      EXPECT_EQ(y.sum().item<double>(), -8.0);
    }
    const at::Tensor next = at::full({4}, side.is_baseline ? 3.0 : -1.0, at::TensorOptions().device(at::kCUDA));
    side.dumper.dump("x", next);
    EXPECT_EQ(next.sum().item<double>(), 12.0);
  });
}

}  // namespace
}  // namespace dbg
