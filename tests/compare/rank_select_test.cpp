// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Selection against sorting.
#include "compare/rank_select.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace dbg::compare {
namespace {

template <class Key>
void expect_as_sorted(const std::vector<Key>& values, const std::vector<std::uint64_t>& ranks) {
  std::vector<Key> sorted = values;
  std::sort(sorted.begin(), sorted.end());
  std::vector<Key> wanted;
  for (const std::uint64_t rank : ranks) wanted.push_back(sorted[static_cast<std::size_t>(rank)]);
  EXPECT_EQ(select_ranks(values, ranks), wanted) << values.size() << " values";
}

// From 512 values on, not all are sorted.
constexpr std::size_t kSizes[] = {1, 2, 500, 511, 512, 513, 514, 1000, 40001};

template <class Key>
void find_what_sorting_finds() {
  std::mt19937_64 random(5);
  for (const std::size_t size : kSizes) {
    // Spread over all bits, and close together: within one bin, and within a few.
    for (const int bits : {64, 20, 12, 3}) {
      std::vector<Key> values(size);
      for (Key& value : values) value = static_cast<Key>(random() >> (64 - bits));
      const std::uint64_t last = size - 1;
      expect_as_sorted(values, {0, 0, last / 100, last / 4, last / 4, last / 2, last - last / 4, last, last});
      for (Key& value : values) value = static_cast<Key>(~value);
      expect_as_sorted(values, {last / 2});
      std::vector<std::uint64_t> all;
      for (std::uint64_t rank = 0; rank < std::min<std::uint64_t>(size, 255); ++rank) all.push_back(rank);
      expect_as_sorted(values, all);
    }
  }
}

TEST(RankSelectTest, FindsWhatSortingFinds) {
  find_what_sorting_finds<std::uint32_t>();
  find_what_sorting_finds<std::uint64_t>();
}

TEST(RankSelectTest, OfEqualValues) {
  std::vector<std::uint32_t> values(3000, 7);
  expect_as_sorted(values, {0, 1500, 2999});
  values.resize(3500, static_cast<std::uint32_t>(-1));
  expect_as_sorted(values, {0, 2999, 3000, 3499});
}

TEST(RankSelectTest, NoneIsWanted) {
  EXPECT_THAT(select_ranks(std::vector<std::uint32_t>(3000, 7), {}), testing::IsEmpty());
  EXPECT_THAT(select_ranks(std::vector<std::uint32_t>{}, {}), testing::IsEmpty());
}

}  // namespace
}  // namespace dbg::compare
