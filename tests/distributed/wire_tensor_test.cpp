// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What goes on the wire in place of a tensor, and what of it comes back.
#include "distributed/wire_tensor.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "distributed/gloo_halves.h"

namespace dbg::distributed {
namespace {

class WireTensorTest : public testing::Test {
 protected:
  std::unique_ptr<GroupHalf> half_ = test::make_gloo_half(c10::make_intrusive<c10d::HashStore>(), 0, 1);
  CollectiveCall call_{*half_, "x"};
};

TEST_F(WireTensorTest, ADenseTensorIsItsOwnWire) {
  const at::Tensor tensor = at::ones({2, 3});
  const WireTensor carried(call_, "x", tensor);
  EXPECT_EQ(carried.wire().const_data_ptr(), tensor.const_data_ptr());
  carried.copy_back();
  EXPECT_TRUE(at::equal(tensor, at::ones({2, 3})));
}

TEST_F(WireTensorTest, AStridedOneIsCopiedThereAndBack) {
  at::Tensor block = at::zeros({2, 6});
  const at::Tensor tensor = block.slice(1, 0, 6, 2);
  const WireTensor carried = WireTensor::for_writing(call_, "x", tensor);
  EXPECT_TRUE(carried.wire().is_contiguous());
  EXPECT_NE(carried.wire().const_data_ptr(), tensor.const_data_ptr());
  carried.dense().fill_(3);
  EXPECT_EQ(block.sum().item<float>(), 0);
  carried.copy_back();
  EXPECT_EQ(block.sum().item<float>(), 18);
  EXPECT_EQ(tensor.sum().item<float>(), 18);
}

TEST_F(WireTensorTest, DtypesThatBackendsDoNotKnowAreBytesOfTheSameMemory) {
  for (const at::ScalarType dtype : {at::kShort, at::kUInt16, at::kComplexDouble, at::kFloat8_e4m3fn}) {
    const at::Tensor tensor = at::zeros({2, 3}, dtype);
    const at::Tensor wire = as_carried(tensor);
    EXPECT_EQ(wire.scalar_type(), at::kByte);
    EXPECT_EQ(wire.nbytes(), tensor.nbytes());
    EXPECT_EQ(wire.const_data_ptr(), tensor.const_data_ptr());
    EXPECT_EQ(as_carried(at::zeros({}, dtype)).numel(), tensor.element_size());
  }
  EXPECT_EQ(as_carried(at::zeros({2}, at::kBFloat16)).scalar_type(), at::kBFloat16);
}

TEST_F(WireTensorTest, ViewsOfMathAreResolved) {
  const at::Tensor numbers = at::complex(at::ones({2}), at::ones({2}));
  const WireTensor conjugate(call_, "x", numbers.conj());
  EXPECT_FALSE(conjugate.dense().is_conj());
  EXPECT_TRUE(at::equal(conjugate.dense(), numbers.conj().resolve_conj()));
  const WireTensor negative(call_, "x", at::imag(numbers.conj()));
  EXPECT_FALSE(negative.dense().is_neg());
  EXPECT_EQ(negative.dense()[0].item<float>(), -1);
}

TEST_F(WireTensorTest, ReductionsThatNoBackendHasHaveNoWire) {
  for (const at::ScalarType dtype : {at::kShort, at::kUInt16, at::kFloat8_e4m3fn, at::kComplexHalf}) {
    EXPECT_FALSE(wire_reduction(*half_, "x", at::zeros({2}, dtype), ReduceOp::sum).wire.defined()) << dtype;
  }
}

TEST_F(WireTensorTest, AnAverageIsASumForTheBackend) {
  EXPECT_EQ(wire_reduction(*half_, "x", at::zeros({2}), ReduceOp::average).op, ReduceOp::sum);
}

}  // namespace
}  // namespace dbg::distributed
