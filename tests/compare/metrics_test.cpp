// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Cosine, fractions, percentiles, casts and pictures of two tensors.
#include "compare/metrics.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "compare/cast_difference.h"
#include "compare/picture.h"
#include "support/special_numbers.h"

namespace dbg::compare {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

using test::kNan;
using test::kInf;

TensorMetrics measured(const at::Tensor& a, const at::Tensor& b) {
  return measure(a, b, diff(a, b));
}

TEST(MetricsTest, CosineIsThatOfTheWholeTensors) {
  at::manual_seed(3);
  const at::Tensor a = at::randn({50, 70});
  const at::Tensor b = at::randn({50, 70}) + a;
  const double wanted = (a.to(at::kDouble) * b.to(at::kDouble)).sum().item<double>() /
                        (a.to(at::kDouble).norm().item<double>() * b.to(at::kDouble).norm().item<double>());
  EXPECT_NEAR(measured(a, b).cosine, wanted, 1e-12);
  EXPECT_EQ(measured(a, a.clone()).cosine, 1);
  EXPECT_NEAR(measured(a, -a).cosine, -1, 1e-12);
  EXPECT_EQ(measured(at::zeros({3}), at::ones({3})).cosine, 0);
}

TEST(MetricsTest, OutsideCountsElementsBeyondTheDtypesTolerance) {
  const at::Tensor a = at::tensor({1.0F, 1.0F, 1.0F, 0.0F});
  const at::Tensor b = at::tensor({1.0F, 1.000001F, 1.1F, 0.000005F});
  EXPECT_DOUBLE_EQ(measured(a, b).outside_fraction, 0.25);
}

TEST(MetricsTest, EqualOddValuesAreInsideAndUnequalOnesOutside) {
  const at::Tensor a = at::tensor({kNan, kInf, -kInf, kNan, 1.0});
  const at::Tensor b = at::tensor({kNan, kInf, kInf, 1.0, 1.0});
  const TensorMetrics metrics = measured(a, b);
  EXPECT_DOUBLE_EQ(metrics.outside_fraction, 0.4);
  EXPECT_NEAR(metrics.cosine, 1, 1e-12);
  EXPECT_EQ(metrics.low, 1);
  EXPECT_EQ(metrics.high, 1);
}

TEST(MetricsTest, PercentilesAreOfBothSidesAndOfTheDifference) {
  const at::Tensor a = at::arange(101, at::kFloat);
  const TensorMetrics metrics = measured(a, a * 2);
  EXPECT_THAT(*metrics.a_percentiles, ElementsAre(0, 1, 5, 50, 95, 99, 100));
  EXPECT_THAT(*metrics.b_percentiles, ElementsAre(0, 2, 10, 100, 190, 198, 200));
  EXPECT_THAT(*metrics.difference_percentiles, ElementsAre(0, 1, 5, 50, 95, 99, 100));
}

TEST(MetricsTest, OfComplexNumbersAbsoluteValuesAreTaken) {
  const at::Tensor a = at::complex(at::tensor({3.0}), at::tensor({4.0}));
  const at::Tensor b = at::complex(at::tensor({3.0}), at::tensor({-4.0}));
  const TensorMetrics metrics = measured(a, b);
  EXPECT_EQ(metrics.b_percentiles->back(), 5);
  EXPECT_EQ(metrics.difference_percentiles->back(), 8);
  EXPECT_NEAR(metrics.cosine, (9.0 - 16.0) / 25.0, 1e-12);
}

TEST(MetricsTest, StridedTensorsAreMeasuredByPlace) {
  const at::Tensor a = at::arange(12, at::kFloat).reshape({3, 4});
  EXPECT_EQ(measured(a, a.t().contiguous().t()).difference_percentiles->back(), 0);
}

TEST(CastDifferenceTest, ComparesInTheCoarserDtype) {
  const at::Tensor fine = at::tensor({1.0F, 1.001F, 2.0F});
  const auto cast = cast_difference(fine, at::tensor({1.0F, 1.0F, 4.0F}).to(at::kBFloat16));
  ASSERT_TRUE(cast);
  EXPECT_EQ(cast->dtype, "bfloat16");
  EXPECT_EQ(cast->differing, 1);
  EXPECT_EQ(cast->max_abs, 2);
  EXPECT_FALSE(cast_difference(fine, fine));
  EXPECT_FALSE(cast_difference(fine, at::tensor({1, 2, 3})));
}

TEST(CastDifferenceTest, NaNOnOneSideIsNotLost) {
  const auto cast = cast_difference(at::tensor({1.0F, 2.0F}), at::tensor({kNan, 3.0}));
  ASSERT_TRUE(cast);
  EXPECT_EQ(cast->differing, 2);
  EXPECT_EQ(cast->rel_diff, kInf);
}

TEST(PictureTest, TheCellOfTheDifferenceIsLit) {
  at::Tensor a = at::zeros({480, 960});
  at::Tensor b = a.clone();
  b[479][0] = 3;
  b[0][959] = static_cast<float>(kNan);
  const auto picture = draw(a, b, 0, 3, {"s", "h"});
  ASSERT_NE(picture, nullptr);
  EXPECT_EQ(picture->heat_rows, 48);
  EXPECT_EQ(picture->heat_columns, 96);
  EXPECT_EQ(picture->heat[47 * 96], 3);
  EXPECT_TRUE(std::isinf(picture->heat[95]));
  EXPECT_EQ(std::count_if(picture->heat.begin(), picture->heat.end(), [](float cell) { return cell != 0; }), 2);
  EXPECT_EQ(picture->row_label, "s (480)");
  EXPECT_EQ(picture->column_label, "h (960)");
  EXPECT_EQ(picture->baseline_histogram.front(), 480 * 960);
  EXPECT_EQ(picture->target_histogram.back(), 1);
}

TEST(PictureTest, CornersAreTheFirstValues) {
  const at::Tensor a = at::arange(20, at::kLong).reshape({2, 10});
  const auto picture = draw(a, a, 0, 19, {});
  ASSERT_THAT(picture->baseline_corner, SizeIs(2));
  EXPECT_THAT(picture->baseline_corner[1], ElementsAre("10", "11", "12", "13", "14", "15"));
  EXPECT_EQ(picture->row_label, "dim 0 (2)");
  EXPECT_EQ(draw(at::zeros({0}), at::zeros({0}), 0, 0, {}), nullptr);
  EXPECT_THAT(draw(at::scalar_tensor(1.5), at::scalar_tensor(2.5), 1.5, 2.5, {})->heat, ElementsAre(1.0F));
}

}  // namespace
}  // namespace dbg::compare
