// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Counts by the highest bits; only what shares them with a wanted value is looked at more closely.
#include "compare/rank_select.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace dbg::compare {
namespace {

constexpr std::size_t kFew = 512;  // sorting them is quicker than a walk over the bins
constexpr int kBinBits = 13;
constexpr std::size_t kBins = std::size_t{1} << kBinBits;

template <class Key>
std::size_t bin_of(Key value) noexcept {
  return static_cast<std::size_t>(value >> (static_cast<int>(sizeof(Key)) * 8 - kBinBits));
}

template <class Key>
std::vector<std::uint32_t> counts_of(const std::vector<Key>& values) {
  // In turn into two tables: a count that was just written is slow to read again, and neighbours are often alike.
  std::vector<std::uint32_t> counts(2 * kBins, 0);
  std::uint32_t* const even = counts.data();
  std::uint32_t* const odd = counts.data() + kBins;
  std::size_t i = 0;
  for (; i + 2 <= values.size(); i += 2) {
    ++even[bin_of(values[i])];
    ++odd[bin_of(values[i + 1])];
  }
  if (i < values.size()) ++even[bin_of(values[i])];
  for (std::size_t bin = 0; bin < kBins; ++bin) even[bin] += odd[bin];
  counts.resize(kBins);
  return counts;
}

// The values of the bins that hold wanted ones, bin after bin.
struct Groups {
  std::array<std::uint8_t, kBins> of_bin{};  // from 1; 0: nothing in that bin is wanted
  std::vector<std::size_t> ends{0};          // where a group ends and the next one begins; the first ends at ends[1]
  std::vector<std::size_t> places;           // of the wanted values, in the row of all groups
  std::vector<std::size_t> groups;           // of the wanted values

  Groups(const std::vector<std::uint32_t>& counts, const std::vector<std::uint64_t>& ranks) {
    std::size_t bin = 0;
    std::uint64_t below = 0;
    for (const std::uint64_t rank : ranks) {
      while (below + counts[bin] <= rank) below += counts[bin++];
      if (of_bin[bin] == 0) {
        of_bin[bin] = static_cast<std::uint8_t>(ends.size());
        ends.push_back(ends.back() + counts[bin]);
      }
      groups.push_back(of_bin[bin]);
      places.push_back(ends[of_bin[bin] - 1U] + static_cast<std::size_t>(rank - below));
    }
  }
};

template <class Key>
std::vector<Key> grouped(const std::vector<Key>& values, const Groups& groups) {
  // Without a branch: which of the values are wanted follows no pattern. What is not is overwritten by the next.
  std::vector<Key> found(groups.ends.back() + 1);
  std::size_t count = 0;
  for (const Key value : values) {
    found[count] = value;
    count += groups.of_bin[bin_of(value)] != 0;
  }
  std::vector<Key> row(count);
  std::vector<std::size_t> next(groups.ends.begin(), groups.ends.end() - 1);
  for (std::size_t i = 0; i < count; ++i) row[next[groups.of_bin[bin_of(found[i])] - 1U]++] = found[i];
  return row;
}

}  // namespace

template <class Key>
std::vector<Key> select_ranks(const std::vector<Key>& values, const std::vector<std::uint64_t>& ranks) {
  std::vector<Key> selected;
  selected.reserve(ranks.size());
  if (values.size() <= kFew) {
    std::vector<Key> sorted = values;
    std::sort(sorted.begin(), sorted.end());
    for (const std::uint64_t rank : ranks) selected.push_back(sorted[static_cast<std::size_t>(rank)]);
    return selected;
  }
  const Groups groups(counts_of(values), ranks);
  std::vector<Key> row = grouped(values, groups);
  const auto at = [&row](std::size_t place) { return row.begin() + static_cast<std::ptrdiff_t>(place); };
  std::size_t settled = 0;  // values that are in their place, with all that are smaller before them
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const std::size_t place = groups.places[i];
    if (place >= settled) {
      const auto begin = at(std::max(settled, groups.ends[groups.groups[i] - 1]));
      std::nth_element(begin, at(place), at(groups.ends[groups.groups[i]]));
      settled = place + 1;
    }
    selected.push_back(row[place]);
  }
  return selected;
}

template std::vector<std::uint32_t> select_ranks(const std::vector<std::uint32_t>&, const std::vector<std::uint64_t>&);
template std::vector<std::uint64_t> select_ranks(const std::vector<std::uint64_t>&, const std::vector<std::uint64_t>&);

}  // namespace dbg::compare
