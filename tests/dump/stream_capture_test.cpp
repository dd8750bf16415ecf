// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The probe for CUDA streams that are capturing: the real one on a machine that captures nothing, and the seam.
#include "dump/stream_capture.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <thread>

namespace dbg {
namespace {

static_assert(noexcept(is_stream_capturing()), "asked inside models: it must not throw");

TEST(StreamCaptureTest, TheRealProbeSaysNoWhereNothingCaptures) {
  EXPECT_FALSE(is_stream_capturing());
  for (int i = 0; i < 1000; ++i) ASSERT_FALSE(is_stream_capturing());
}

TEST(StreamCaptureTest, TheRealProbeMayBeAskedFromAnyThread) {
  std::thread([] { EXPECT_FALSE(is_stream_capturing()); }).join();
}

TEST(StreamCaptureTest, AskingInitialisesNoDevice) {
  ASSERT_FALSE(is_stream_capturing());
  if (!at::hasCUDA()) GTEST_SKIP() << "no device here that could be initialised";
  const auto& hooks = at::globalContext().getAcceleratorHooksInterface(c10::DeviceType::CUDA);
  EXPECT_FALSE(hooks.hasPrimaryContext(0));
}

TEST(StreamCaptureTest, AProbeCanBeFakedAndTheRealOneComesBack) {
  set_stream_capture_probe([]() noexcept { return true; });
  EXPECT_TRUE(is_stream_capturing());
  set_stream_capture_probe(nullptr);
  EXPECT_FALSE(is_stream_capturing());
}

}  // namespace
}  // namespace dbg
