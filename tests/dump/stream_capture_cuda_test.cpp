// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A dump inside a real CUDA graph's capture. Needs a GPU: nothing here runs without one.
#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "dump/dumper_fixture.h"
#include "dump/stream_capture.h"

namespace dbg {
namespace {

class StreamCaptureCudaTest : public test::DumperFixture {
 protected:
  void SetUp() override {
    if (!at::hasCUDA()) GTEST_SKIP() << "there is no GPU";
  }
};

TEST_F(StreamCaptureCudaTest, ADumpInsideACaptureIsCountedAndLeavesTheGraphWhole) {
  Dumper dumper(config());
  const at::Tensor x = at::ones({4}, at::TensorOptions().device(at::kCUDA));
  at::Tensor y = x * 2;  // the kernel is loaded before the capture
  const c10::impl::VirtualGuardImpl cuda(c10::DeviceType::CUDA);
  const c10::StreamGuard on_own_stream(cuda.getStreamFromGlobalPool(x.device()));
  at::cuda::CUDAGraph graph;
  EXPECT_FALSE(is_stream_capturing());
  graph.capture_begin();
  y = x * 2;
  EXPECT_TRUE(is_stream_capturing());
  dumper.dump("y", y);
  graph.capture_end();
  EXPECT_FALSE(is_stream_capturing());

  EXPECT_THAT(paths(), testing::IsEmpty());
  EXPECT_EQ(dumper.state().counters.dropped, 1u);
  EXPECT_EQ(log_.count("captured"), 1u);

  x.fill_(5);
  graph.replay();
  EXPECT_EQ(y.sum().item<double>(), 40.0);
  dumper.dump("y", y);
  ASSERT_EQ(paths().size(), 1u);
  EXPECT_EQ(test::read_file(paths().front()).value.toTensor().sum().item<double>(), 40.0);
}

}  // namespace
}  // namespace dbg
