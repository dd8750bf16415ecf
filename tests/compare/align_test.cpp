// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Which tensors are brought into one shape, and how.
#include "compare/align.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dbg::compare {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

at::Tensor numbers(std::vector<std::int64_t> shape) {
  std::int64_t elements = 1;
  for (const std::int64_t size : shape) elements *= size;
  return at::arange(elements, at::kFloat).reshape(shape);
}

TEST(AlignTest, PermutedDimensionsComeIntoTheFirstsOrder) {
  const at::Tensor a = numbers({2, 3, 4});
  const Aligned aligned = align(a, Dims::parse("b s h"), a.permute({1, 0, 2}), Dims::parse("s b h"));
  EXPECT_TRUE(at::equal(aligned.a, aligned.b));
  EXPECT_THAT(aligned.labels, ElementsAre("b", "s", "h"));
  EXPECT_NE(aligned.note, "");
}

TEST(AlignTest, SquareTensorsArePermutedToo) {
  const at::Tensor a = numbers({3, 3});
  EXPECT_TRUE(at::equal(align(a, Dims::parse("s h"), a.t(), Dims::parse("h s")).b, a));
}

TEST(AlignTest, FusedDimensionsMeetSeparateOnes) {
  const at::Tensor a = numbers({5, 2, 3});
  const Aligned one = align(a, Dims::parse("s heads d"), a.reshape({5, 6}), Dims::parse("t (heads*d)"));
  EXPECT_THAT(one.a.sizes(), ElementsAre(5, 6));
  EXPECT_TRUE(at::equal(one.a, one.b));
  const Aligned other =
      align(a.reshape({5, 6}), Dims::parse("t (heads*d)"), a.permute({2, 0, 1}), Dims::parse("d s heads"));
  EXPECT_TRUE(at::equal(other.a, other.b));
}

TEST(AlignTest, DimensionsThatMeanNothingAreDropped) {
  const at::Tensor a = numbers({4, 1, 3});
  EXPECT_THAT(align(a, Dims::parse("s 1 h"), a.reshape({4, 3}), Dims::parse("s h")).a.sizes(), ElementsAre(4, 3));
}

TEST(AlignTest, LeadingOnesAreDroppedWithoutDims) {
  EXPECT_THAT(align(numbers({1, 1, 4}), std::nullopt, numbers({4}), std::nullopt).a.sizes(), ElementsAre(4));
  EXPECT_THAT(align(numbers({4}), std::nullopt, numbers({1, 4}), std::nullopt).b.sizes(), ElementsAre(4));
}

TEST(AlignTest, WhatCanNotBeAlignedStays) {
  const Aligned shapes = align(numbers({4, 1}), std::nullopt, numbers({4}), std::nullopt);
  EXPECT_THAT(shapes.a.sizes(), ElementsAre(4, 1));
  EXPECT_THAT(shapes.b.sizes(), ElementsAre(4));
  EXPECT_THAT(shapes.note, IsEmpty());
  const Aligned names = align(numbers({2, 3}), Dims::parse("s h"), numbers({3, 2}), Dims::parse("h x"));
  EXPECT_THAT(names.b.sizes(), ElementsAre(3, 2));
  const Aligned wrong = align(numbers({2, 3}), Dims::parse("s"), numbers({2, 3}), Dims::parse("s"));
  EXPECT_THAT(wrong.labels, IsEmpty());
}

}  // namespace
}  // namespace dbg::compare
