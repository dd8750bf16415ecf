// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Selection by digits against sorting.
#include "compare/percentiles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace dbg::compare {
namespace {

template <class Real>
Percentiles find(const std::vector<Real>& values, bool keeps = true) {
  constexpr std::size_t chunk = 100;
  // Told of many values, the finder keeps none.
  PercentileFinder<Real> finder(keeps ? static_cast<std::int64_t>(values.size())
                                      : PercentileFinder<Real>::kMostKept + 1);
  while (finder.wants_pass()) {
    for (std::size_t at = 0; at < values.size(); at += chunk) {
      const std::vector<double> part(values.begin() + static_cast<std::ptrdiff_t>(at),
                                     values.begin() + static_cast<std::ptrdiff_t>(std::min(at + chunk, values.size())));
      finder.add(part.data(), part.size());
    }
    finder.end_pass();
  }
  return finder.result();
}

template <class Real>
Percentiles sorted(std::vector<Real> values) {
  values.erase(std::remove_if(values.begin(), values.end(), [](Real value) { return value != value; }), values.end());
  std::sort(values.begin(), values.end());
  Percentiles found;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double place = static_cast<double>(values.size() - 1) * kPercentiles[i] / 100;
    const auto low = static_cast<double>(values[static_cast<std::size_t>(std::floor(place))]);
    const auto high = static_cast<double>(values[static_cast<std::size_t>(std::ceil(place))]);
    found[i] = low + (low == high ? 0 : (high - low) * (place - std::floor(place)));
  }
  return found;
}

template <class Real>
void expect_as_sorted(const std::vector<Real>& values, const char* what) {
  const Percentiles wanted = sorted(values);
  for (const bool keeps : {true, false}) {
    const Percentiles found = find(values, keeps);
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_DOUBLE_EQ(found[i], wanted[i]) << what << " p" << kPercentiles[i] << (keeps ? ", kept" : ", in passes");
    }
  }
}

TEST(PercentilesTest, AreThoseOfTheSortedValues) {
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  for (const std::size_t count : {1U, 2U, 3U, 7U, 99U, 1000U, 20000U}) {
    std::vector<double> doubles(count);
    std::vector<float> floats(count);
    for (std::size_t i = 0; i < count; ++i) {
      doubles[i] = normal(random) * std::pow(10.0, normal(random));
      floats[i] = static_cast<float>(doubles[i]);
    }
    expect_as_sorted(doubles, "double");
    expect_as_sorted(floats, "float");
  }
}

TEST(PercentilesTest, OfManyEqualValues) {
  std::vector<float> values(5000, 0.25F);
  values.resize(5100, -1.0F);
  values.resize(5200, -0.0F);
  expect_as_sorted(values, "equal");
}

TEST(PercentilesTest, NeighboursThatDifferInTheLastBitOnly) {
  std::vector<double> values;
  double value = 1.0;
  for (int i = 0; i < 500; ++i) values.push_back(value = std::nextafter(value, 2.0));
  expect_as_sorted(values, "neighbours");
}

TEST(PercentilesTest, NanIsLeftOutAndInfinityIsNot) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const Percentiles found = find<float>({nan, 1, -inf, inf, -nan});
  EXPECT_EQ(found.front(), -static_cast<double>(inf));
  EXPECT_EQ(found[3], 1.0);
  EXPECT_EQ(found.back(), static_cast<double>(inf));
  EXPECT_TRUE(std::isnan(find<float>({}).front()));
  EXPECT_TRUE(std::isnan(find<double>({std::nan("")}).back()));
}

}  // namespace
}  // namespace dbg::compare
