// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// How two tensors differ: the numbers, and what counts as equal.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "dbg/tensor_info.h"
#include "support/special_numbers.h"

namespace dbg {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using test::kInf;
using test::kNan;

at::Tensor doubles(const std::vector<double>& values) {
  return at::tensor(values, at::kDouble);
}

TEST(TensorDiffTest, ATensorAgainstItself) {
  const at::Tensor tensor = at::randn({100, 3});
  const TensorDiff result = diff(tensor, tensor.clone());
  EXPECT_TRUE(result.compared && result.same_shape && result.same_dtype && result.same_bits && result.same_values());
  EXPECT_EQ(result.rel_diff, 0);
  EXPECT_EQ(result.max_abs, 0);
  EXPECT_EQ(result.mean_abs, 0);
  EXPECT_EQ(result.differing, 0);
  EXPECT_THAT(result.max_at, ElementsAre());
  EXPECT_EQ(to_text(result), "same bits");
}

TEST(TensorDiffTest, MeasuresOfASmallExample) {
  const TensorDiff result = diff(doubles({1, 2, 3, 4}).view({2, 2}), doubles({1, 2, 5, 3}).view({2, 2}));
  // xx + yy = 30 + 39, 2xy = 2 * 32
  EXPECT_NEAR(result.rel_diff, 1.0 - 64.0 / 69.0, 1e-15);
  EXPECT_EQ(result.max_abs, 2);
  EXPECT_EQ(result.mean_abs, 0.75);
  EXPECT_EQ(result.differing, 2);
  EXPECT_EQ(result.elements, 4);
  EXPECT_THAT(result.max_at, ElementsAre(1, 0));
  EXPECT_EQ(result.a_at_max, "3");
  EXPECT_EQ(result.b_at_max, "5");
  EXPECT_FALSE(result.same_bits);
  EXPECT_THAT(to_text(result),
              HasSubstr("2 of 4 elements differ, rel_diff=0.0724638 max_abs=2 at [1, 0] (3 against 5)"));
}

TEST(TensorDiffTest, OppositeTensorsAreTwoApartAndZerosNone) {
  EXPECT_EQ(diff(doubles({1, -2}), doubles({-1, 2})).rel_diff, 2);
  EXPECT_EQ(diff(at::zeros({3}), at::zeros({3})).rel_diff, 0);
  EXPECT_EQ(diff(at::zeros({3}), at::ones({3})).rel_diff, 1);
}

TEST(TensorDiffTest, ATinyDifferenceIsNotLostInCancellation) {
  const TensorDiff result = diff(doubles({1.0}), doubles({1.0 + 1e-10}));
  EXPECT_NEAR(result.rel_diff / 5e-21, 1.0, 1e-5);
}

TEST(TensorDiffTest, OneFlippedBitIsFoundWhereverItIs) {
  std::mt19937 random(11);
  const at::Tensor tensor = at::rand({700, 999}) + 1;
  for (int round = 0; round < 20; ++round) {
    const std::int64_t row = static_cast<std::int64_t>(random() % 700);
    const std::int64_t column = static_cast<std::int64_t>(random() % 999);
    const at::Tensor other = tensor.clone();
    other.mutable_data_ptr<float>();
    auto* bits = reinterpret_cast<std::uint32_t*>(other.mutable_data_ptr<float>());
    bits[row * 999 + column] ^= 1;
    for (const bool transposed : {false, true}) {
      const TensorDiff result = transposed ? diff(tensor.t(), other.t().contiguous()) : diff(tensor, other);
      EXPECT_EQ(result.differing, 1);
      const std::vector<std::int64_t> place = transposed ? std::vector{column, row} : std::vector{row, column};
      EXPECT_EQ(result.max_at, place);
      EXPECT_EQ(result.first_bits_at, place);
      EXPECT_GT(result.max_abs, 0);
      EXPECT_LT(result.max_abs, 1e-6);
      EXPECT_NE(result.a_at_max, result.b_at_max);
    }
  }
}

TEST(TensorDiffTest, NegativeZeroIsEqualAndNotTheSameBits) {
  const TensorDiff result = diff(doubles({1, 0.0}), doubles({1, -0.0}));
  EXPECT_TRUE(result.same_values());
  EXPECT_FALSE(result.same_bits);
  EXPECT_THAT(result.first_bits_at, ElementsAre(1));
  EXPECT_EQ(result.max_abs, 0);
  EXPECT_EQ(to_text(result), "equal values");
}

TEST(TensorDiffTest, NanAtEqualPlacesIsEqual) {
  const TensorDiff result = diff(doubles({1, kNan, 3}), doubles({1, kNan, 5}));
  EXPECT_EQ(result.nan_in_both, 1);
  EXPECT_EQ(result.differing, 1);
  EXPECT_EQ(result.max_abs, 2);
  EXPECT_EQ(result.mean_abs, 1);
  EXPECT_NEAR(result.rel_diff, 4.0 / 36.0, 1e-15);
  EXPECT_TRUE(diff(doubles({kNan}), doubles({kNan})).same_values());
  EXPECT_EQ(diff(doubles({kNan}), doubles({kNan})).rel_diff, 0);
  EXPECT_TRUE(diff(doubles({kNan}), at::tensor({std::nanf("2")})).same_values());
}

TEST(TensorDiffTest, NanOnOneSideFailsAnyTolerance) {
  const TensorDiff in_b = diff(doubles({1, 2, 3}), doubles({1, kNan, 30}));
  EXPECT_EQ(in_b.nan_only_in_b, 1);
  EXPECT_EQ(in_b.differing, 2);
  EXPECT_EQ(in_b.rel_diff, kInf);
  EXPECT_EQ(in_b.max_abs, kInf);
  EXPECT_EQ(in_b.mean_abs, kInf);
  EXPECT_THAT(in_b.max_at, ElementsAre(1));
  EXPECT_EQ(in_b.a_at_max, "2");
  EXPECT_EQ(in_b.b_at_max, "nan");
  EXPECT_FALSE(in_b.same_values());
  EXPECT_THAT(to_text(in_b), HasSubstr("NaN on one side only: 0 in a, 1 in b"));
  EXPECT_EQ(diff(doubles({1, kNan}), doubles({1, 2})).nan_only_in_a, 1);
}

TEST(TensorDiffTest, InfinitiesAreComparedBySign) {
  const TensorDiff same = diff(doubles({kInf, -kInf, 1}), doubles({kInf, -kInf, 1}));
  EXPECT_TRUE(same.same_values());
  EXPECT_EQ(same.inf_in_both, 2);
  EXPECT_EQ(same.rel_diff, 0);
  for (const double other : {-kInf, 1.0}) {
    const TensorDiff result = diff(doubles({1, kInf}), doubles({1, other}));
    EXPECT_EQ(result.inf_unequal, 1);
    EXPECT_EQ(result.differing, 1);
    EXPECT_EQ(result.max_abs, kInf);
    EXPECT_THAT(result.max_at, ElementsAre(1));
  }
  const TensorDiff against_nan = diff(doubles({kInf}), doubles({kNan}));
  EXPECT_EQ(against_nan.nan_only_in_b, 1);
  EXPECT_EQ(against_nan.inf_unequal, 0);
}

TEST(TensorDiffTest, IntegersOf64BitsAreExact) {
  const std::int64_t edge = std::int64_t{1} << 53;
  const TensorDiff result = diff(at::tensor({std::int64_t{7}, edge + 1}), at::tensor({std::int64_t{7}, edge}));
  EXPECT_EQ(result.differing, 1);
  EXPECT_EQ(result.max_abs, 1);
  EXPECT_THAT(result.max_at, ElementsAre(1));
  EXPECT_EQ(result.a_at_max, "9007199254740993");
  EXPECT_EQ(result.b_at_max, "9007199254740992");

  const at::Tensor all_ones = at::full({1}, -1, at::kLong);
  const TensorDiff large = diff(all_ones.view(at::kUInt64), all_ones.sub(1).view(at::kUInt64));
  EXPECT_EQ(large.max_abs, 1);
  EXPECT_EQ(large.a_at_max, "18446744073709551615");
  // The same bits of another dtype are another value.
  EXPECT_FALSE(diff(all_ones, all_ones.view(at::kUInt64)).same_values());
  // An int64 that a double can't hold is not equal to the double next to it.
  EXPECT_EQ(diff(at::full({1}, edge + 1, at::kLong), doubles({static_cast<double>(edge)})).max_abs, 1);
}

TEST(TensorDiffTest, BoolsAndSmallIntegers) {
  const TensorDiff result = diff(at::tensor({1, 0, 1}).to(at::kBool), at::tensor({1, 1, 1}).to(at::kBool));
  EXPECT_EQ(result.differing, 1);
  EXPECT_EQ(result.a_at_max, "False");
  EXPECT_EQ(result.b_at_max, "True");
  EXPECT_EQ(diff(at::full({1}, -128, at::kChar), at::full({1}, 127, at::kChar)).max_abs, 255);
}

TEST(TensorDiffTest, ComplexNumbersAreComparedByBothParts) {
  const at::Tensor a = at::complex(doubles({1, 1}), doubles({2, 2}));
  const at::Tensor b = at::complex(doubles({1, 4}), doubles({2, -2}));
  const TensorDiff result = diff(a, b);
  EXPECT_EQ(result.differing, 1);
  EXPECT_EQ(result.max_abs, 5);
  EXPECT_EQ(result.mean_abs, 2.5);
  EXPECT_NEAR(result.rel_diff, 25.0 / 35.0, 1e-15);
  EXPECT_EQ(result.a_at_max, "1+2j");
  EXPECT_EQ(result.b_at_max, "4-2j");
  EXPECT_FALSE(diff(a, a.conj()).same_values());  // only the imaginary parts differ
  EXPECT_TRUE(diff(a.conj().conj(), a).same_bits);
  const at::Tensor with_nan = at::complex(doubles({kNan}), doubles({1}));
  EXPECT_TRUE(diff(with_nan, with_nan.clone()).same_values());
  EXPECT_FALSE(diff(with_nan, at::complex(doubles({kNan}), doubles({2}))).same_values());
}

TEST(TensorDiffTest, DifferentDtypesAreComparedByValue) {
  const at::Tensor coarse = at::tensor({1.0F, 0.5F, -3.0F}).to(at::kBFloat16);
  const TensorDiff equal = diff(coarse, coarse.to(at::kFloat));
  EXPECT_TRUE(equal.same_values());
  EXPECT_FALSE(equal.same_dtype);
  EXPECT_FALSE(equal.same_bits);
  EXPECT_THAT(equal.first_bits_at, ElementsAre());
  EXPECT_EQ(to_text(equal), "bfloat16 against float32: equal values");

  const TensorDiff rounded = diff(at::tensor({0.1F}), at::tensor({0.1F}).to(at::kFloat8_e4m3fn));
  EXPECT_EQ(rounded.differing, 1);
  EXPECT_EQ(rounded.b_at_max, "0.1015625");
  EXPECT_NEAR(rounded.max_abs, 0.0015625, 1e-8);
  // A real tensor is a complex one without imaginary parts.
  EXPECT_TRUE(diff(doubles({1, 2, 3}), at::complex(doubles({1, 2, 3}), doubles({0, 0, 0}))).same_values());
  EXPECT_FALSE(diff(doubles({1, 2, 3}), at::complex(doubles({1, 2, 3}), doubles({0, 1, 0}))).same_values());
  EXPECT_TRUE(diff(at::ones({3}, at::kBool), at::ones({3}, at::kInt)).same_values());
}

TEST(TensorDiffTest, ShapesThatDifferAreNamed) {
  const TensorDiff result = diff(at::ones({2, 3}), at::ones({3, 2}, at::kDouble));
  EXPECT_FALSE(result.compared);
  EXPECT_FALSE(result.same_shape);
  EXPECT_FALSE(result.same_values());
  EXPECT_EQ(result.rel_diff, kInf);
  EXPECT_EQ(to_text(result), "not compared: shapes differ: [2, 3] against [3, 2]");
  EXPECT_FALSE(diff(at::ones({1}), at::scalar_tensor(1)).compared);
}

TEST(TensorDiffTest, EmptyAndZeroDim) {
  const TensorDiff empty = diff(at::empty({0, 3}), at::empty({0, 3}));
  EXPECT_TRUE(empty.same_bits);
  EXPECT_EQ(empty.rel_diff, 0);
  EXPECT_EQ(empty.mean_abs, 0);
  const TensorDiff scalar = diff(at::scalar_tensor(2.0), at::scalar_tensor(3.0));
  EXPECT_EQ(scalar.differing, 1);
  EXPECT_EQ(scalar.max_abs, 1);
  EXPECT_THAT(scalar.max_at, ElementsAre());
  EXPECT_EQ(scalar.a_at_max, "2");
}

TEST(TensorDiffTest, HugeAndTinyDoublesAreMeasured) {
  for (const double scale : {1e300, 1e-300}) {
    const TensorDiff result = diff(doubles({3 * scale, 0}), doubles({4 * scale, 0}));
    EXPECT_NEAR(result.rel_diff, 1.0 / 25.0, 1e-12) << scale;
    EXPECT_NEAR(result.max_abs / scale, 1, 1e-12) << scale;
    EXPECT_EQ(result.a_at_max, scale > 1 ? "3e+300" : "3e-300");
  }
}

TEST(TensorDiffTest, WeirdTensorsAreNotComparedAndNeverPass) {
  const at::Tensor plain = at::ones({2, 2});
  const at::Tensor list[] = {at::ones({2, 3}), at::ones({4, 3})};
  for (const at::Tensor& weird :
       {at::Tensor(), at::empty({2, 2}, at::kMeta), plain.to_sparse(), at::_nested_tensor_from_tensor_list(list),
        at::quantize_per_tensor(plain, 0.1, 0, at::kQInt8)}) {
    for (const TensorDiff& result : {diff(plain, weird), diff(weird, plain), diff(weird, weird)}) {
      EXPECT_FALSE(result.compared);
      EXPECT_FALSE(result.same_bits);
      EXPECT_FALSE(result.same_values());
      EXPECT_EQ(result.max_abs, kInf);
      EXPECT_NE(result.note, "");
    }
  }
}

TEST(TensorDiffTest, OpaqueElementsAreComparedAsBytes) {
  const at::Tensor bytes = at::tensor({1, 2, 3}, at::kByte);
  const at::Tensor other = at::tensor({1, 5, 3}, at::kByte);
  EXPECT_TRUE(diff(bytes.view(at::kBits8), bytes.clone().view(at::kBits8)).same_bits);
  const TensorDiff result = diff(bytes.view(at::kBits8), other.view(at::kBits8));
  EXPECT_TRUE(result.compared);
  EXPECT_EQ(result.differing, 1);
  EXPECT_EQ(result.max_abs, kInf);
  EXPECT_THAT(result.first_bits_at, ElementsAre(1));
  EXPECT_FALSE(diff(bytes.view(at::kBits8), bytes).compared);
}

TEST(TensorDiffTest, LargeTensorsAgreeWithAPlainLoop) {
  at::manual_seed(3);
  const at::Tensor a = at::randn({517, 1031}, at::kDouble);
  const at::Tensor b = a + 1e-3 * at::randn({517, 1031}, at::kDouble);
  const at::Tensor distance = (a - b).abs();
  for (const bool transposed : {false, true}) {
    const TensorDiff result = transposed ? diff(a.t(), b.t()) : diff(a, b);
    const double dot = (a * b).sum().item<double>();
    const double squares = (a * a + b * b).sum().item<double>();
    EXPECT_NEAR(result.rel_diff, 1 - 2 * dot / squares, 1e-13);
    EXPECT_EQ(result.max_abs, distance.max().item<double>());
    EXPECT_NEAR(result.mean_abs, distance.mean().item<double>(), 1e-15);
    EXPECT_EQ(result.differing, (a != b).sum().item<std::int64_t>());
  }
}

TEST(TensorDiffTest, LeavesAutogradAlone) {
  const at::Tensor tensor = at::ones({3}).requires_grad_() * 2;
  const auto version = tensor._version();
  EXPECT_TRUE(diff(tensor, at::full({3}, 2.0)).same_bits);
  EXPECT_EQ(tensor._version(), version);
  EXPECT_TRUE(c10::GradMode::is_enabled());
}

}  // namespace
}  // namespace dbg
