// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A tensor in a few numbers.
#include "dbg/tensor_info.h"
#include "support/special_numbers.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace dbg {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using test::kInf;
using test::kNan;

TEST(TensorInfoTest, PlainTensor) {
  const TensorInfo info = describe(at::tensor({-1.5F, 0.0F, 2.0F, 0.1F, 3.0F, 0.0F}).view({2, 3}));
  EXPECT_TRUE(info.has_values);
  EXPECT_EQ(info.note, "");
  EXPECT_EQ(info.dtype, "float32");
  EXPECT_EQ(info.device, "cpu");
  EXPECT_THAT(info.shape, ElementsAre(2, 3));
  EXPECT_THAT(info.strides, ElementsAre(3, 1));
  EXPECT_EQ(info.elements, 6);
  EXPECT_EQ(info.bytes, 24);
  EXPECT_EQ(info.min, -1.5);
  EXPECT_EQ(info.max, 3.0);
  EXPECT_EQ(info.abs_max, 3.0);
  EXPECT_NEAR(info.mean, 3.6 / 6, 1e-9);
  EXPECT_EQ(info.nan_count, 0);
  EXPECT_EQ(info.inf_count, 0);
  EXPECT_EQ(info.zero_count, 2);
  EXPECT_EQ(info.sample, "[-1.5, 0, 2, 0.1, 3, 0]");
  EXPECT_EQ(to_text(info), "float32[2, 3] cpu min=-1.5 max=3 mean=0.6 abs_max=3 nan=0 inf=0 zero=2 " + info.sample);
}

TEST(TensorInfoTest, NonFiniteValuesAreCountedAndLeftOut) {
  const TensorInfo info = describe(at::tensor(std::vector<double>{1, kNan, -kInf, 3, kInf, -0.0}));
  EXPECT_EQ(info.nan_count, 1);
  EXPECT_EQ(info.inf_count, 2);
  EXPECT_EQ(info.zero_count, 1);
  EXPECT_EQ(info.min, 0);
  EXPECT_EQ(info.max, 3);
  EXPECT_NEAR(info.mean, 4.0 / 3, 1e-15);
}

TEST(TensorInfoTest, WithoutAFiniteValueTheNumbersAreNan) {
  const TensorInfo info = describe(at::full({5}, kNan));
  EXPECT_TRUE(info.has_values);
  EXPECT_EQ(info.nan_count, 5);
  EXPECT_TRUE(std::isnan(info.min) && std::isnan(info.max) && std::isnan(info.mean) && std::isnan(info.abs_max));
  EXPECT_THAT(to_text(info), HasSubstr("min=nan max=nan"));
}

TEST(TensorInfoTest, EmptyAndZeroDim) {
  const TensorInfo empty = describe(at::empty({0, 4}));
  EXPECT_TRUE(empty.has_values);
  EXPECT_THAT(empty.shape, ElementsAre(0, 4));
  EXPECT_EQ(empty.elements, 0);
  EXPECT_EQ(empty.sample, "[]");
  EXPECT_TRUE(std::isnan(empty.mean));

  const TensorInfo scalar = describe(at::scalar_tensor(7, at::kInt));
  EXPECT_THAT(scalar.shape, ElementsAre());
  EXPECT_EQ(scalar.elements, 1);
  EXPECT_EQ(scalar.mean, 7);
  EXPECT_EQ(scalar.sample, "[7]");
}

TEST(TensorInfoTest, ALongTensorsSampleShowsItsEnds) {
  EXPECT_EQ(describe(at::arange(7, at::kInt)).sample, "[0, 1, 2, ..., 4, 5, 6]");
  EXPECT_EQ(describe(at::arange(6, at::kInt)).sample, "[0, 1, 2, 3, 4, 5]");
  EXPECT_EQ(describe(at::arange(1000000, at::kInt).view({1000, 1000}).t()).sample,
            "[0, 1000, 2000, ..., 997999, 998999, 999999]");
}

TEST(TensorInfoTest, IntegersOf64BitsKeepTheirDigits) {
  const TensorInfo info = describe(at::tensor({(std::int64_t{1} << 53) + 1, std::int64_t{-3}}));
  EXPECT_EQ(info.max_text, "9007199254740993");
  EXPECT_EQ(info.min_text, "-3");
  const std::int64_t lowest = std::numeric_limits<std::int64_t>::min();
  EXPECT_EQ(describe(at::full({1}, lowest, at::kLong)).min_text, "-9223372036854775808");
  // As int64 -1, the largest uint64.
  EXPECT_EQ(describe(at::full({1}, -1, at::kLong).view(at::kUInt64)).max_text, "18446744073709551615");
}

TEST(TensorInfoTest, BoolsCountAsZeroAndOne) {
  const TensorInfo info = describe(at::tensor({1, 0, 1, 1}).to(at::kBool));
  EXPECT_EQ(info.dtype, "bool");
  EXPECT_EQ(info.mean, 0.75);
  EXPECT_EQ(info.zero_count, 1);
  EXPECT_EQ(info.min_text, "False");
  EXPECT_EQ(info.sample, "[True, False, True, True]");
}

TEST(TensorInfoTest, ComplexCountsByElementAndMeasuresByPart) {
  const at::Tensor real = at::tensor({3.0, 0.0, kNan, kInf, 0.0});
  const at::Tensor imaginary = at::tensor({-4.0, 0.0, 1.0, 0.0, 2.0});
  const TensorInfo info = describe(at::complex(real, imaginary));
  EXPECT_EQ(info.nan_count, 1);
  EXPECT_EQ(info.inf_count, 1);
  EXPECT_EQ(info.zero_count, 1);
  EXPECT_EQ(info.min, -4);
  EXPECT_EQ(info.max, 3);
  EXPECT_EQ(info.abs_max, 5);
  EXPECT_EQ(info.sample, "[3-4j, 0+0j, nan+1j, inf+0j, 0+2j]");
}

TEST(TensorInfoTest, AbsMaxIsNanWhereNoComplexValueIsFinite) {
  const TensorInfo info = describe(at::complex(at::tensor({kNan, kInf}), at::tensor({1.0, -2.0})));
  EXPECT_EQ(info.max, 1) << "the parts are numbers of their own";
  EXPECT_EQ(info.min, -2);
  EXPECT_TRUE(std::isnan(info.abs_max)) << info.abs_max;
  EXPECT_EQ(describe(at::complex(at::zeros({1}), at::zeros({1}))).abs_max, 0);
}

TEST(TensorInfoTest, SmallFloatsAreRead) {
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16, at::kFloat8_e4m3fn, at::kFloat8_e5m2}) {
    const TensorInfo info = describe(at::tensor({-2.0F, 0.5F, 0.0F}).to(dtype));
    EXPECT_EQ(info.min, -2) << info.dtype;
    EXPECT_EQ(info.max, 0.5) << info.dtype;
    EXPECT_EQ(info.mean, -0.5) << info.dtype;
    EXPECT_EQ(info.bytes, 3 * static_cast<std::int64_t>(c10::elementSize(dtype)));
  }
}

TEST(TensorInfoTest, LargeTensorsAgreeWithTorch) {
  at::manual_seed(7);
  const at::Tensor tensor = at::randn({1003, 1001}, at::kFloat);
  for (const at::Tensor& view : {tensor, tensor.t(), tensor.slice(1, 3, 1000, 7)}) {
    const TensorInfo info = describe(view);
    EXPECT_EQ(info.min, view.min().item<double>());
    EXPECT_EQ(info.max, view.max().item<double>());
    EXPECT_EQ(info.abs_max, view.abs().max().item<double>());
    EXPECT_NEAR(info.mean, view.to(at::kDouble).mean().item<double>(), 1e-12);
    EXPECT_EQ(info.bytes, view.numel() * 4);
  }
}

TEST(TensorInfoTest, ASumBeyondADoubleStillHasItsMean) {
  EXPECT_EQ(describe(at::full({1000}, 1e308, at::kDouble)).mean, 1e308);
}

TEST(TensorInfoTest, WeirdTensorsAreDescribedAsFarAsTheyGo) {
  const TensorInfo undefined = describe(at::Tensor());
  EXPECT_FALSE(undefined.has_values);
  EXPECT_EQ(to_text(undefined), "(undefined tensor)");

  const TensorInfo meta = describe(at::empty({2, 3}, at::kMeta));
  EXPECT_FALSE(meta.has_values);
  EXPECT_EQ(to_text(meta), "float32[2, 3] meta (meta tensor: it has no values)");

  const TensorInfo sparse = describe(at::eye(3).to_sparse());
  EXPECT_FALSE(sparse.has_values);
  EXPECT_THAT(sparse.shape, ElementsAre(3, 3));
  EXPECT_THAT(sparse.note, HasSubstr("Sparse"));

  const TensorInfo quantized = describe(at::quantize_per_tensor(at::ones({2}), 0.1, 0, at::kQInt8));
  EXPECT_FALSE(quantized.has_values);
  EXPECT_EQ(quantized.dtype, "qint8");

  const at::Tensor list[] = {at::ones({2, 3}), at::ones({4, 3})};
  const TensorInfo nested = describe(at::_nested_tensor_from_tensor_list(list));
  EXPECT_FALSE(nested.has_values);
  EXPECT_THAT(nested.note, HasSubstr("nested"));

  const TensorInfo bits = describe(at::zeros({2}, at::kByte).view(at::kBits8));
  EXPECT_FALSE(bits.has_values);
  EXPECT_THAT(bits.note, HasSubstr("bits8"));
}

TEST(TensorInfoTest, LeavesAutogradAndTheTensorAlone) {
  const at::Tensor leaf = at::ones({3}).requires_grad_();
  const at::Tensor tensor = leaf * 2;
  const auto version = tensor._version();
  const auto node = tensor.grad_fn();
  describe(tensor);
  describe(at::imag(at::complex(tensor, tensor).conj()));
  EXPECT_EQ(tensor._version(), version);
  EXPECT_EQ(tensor.grad_fn(), node);
  EXPECT_TRUE(c10::GradMode::is_enabled());
}

}  // namespace
}  // namespace dbg
