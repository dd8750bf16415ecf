// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Selection by digits, the highest first.
#include "compare/percentiles.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

namespace dbg::compare {

template <class Real>
PercentileFinder<Real>::PercentileFinder(std::int64_t values) : keeps_(values <= kMostKept), counts_(2) {
  for (Counts& counts : counts_) counts.fill(0);
  if (keeps_) kept_.reserve(static_cast<std::size_t>(values));
}

// Order of keys is order of values.
template <class Real>
typename PercentileFinder<Real>::Key PercentileFinder<Real>::key_of(Real value) noexcept {
  Key bits;
  std::memcpy(&bits, &value, sizeof bits);
  constexpr Key kSign = Key{1} << (kKeyBits - 1);
  const Key mask = static_cast<Key>(Key{0} - (bits >> (kKeyBits - 1))) | kSign;
  return bits ^ mask;
}

template <class Real>
Real PercentileFinder<Real>::value_of(Key key) noexcept {
  constexpr Key kSign = Key{1} << (kKeyBits - 1);
  const Key bits = (key & kSign) != 0 ? key ^ kSign : static_cast<Key>(~key);
  Real value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// The last digit may be a short one.
template <class Real>
int PercentileFinder<Real>::bits_of(int level) noexcept {
  return level + 1 == kLevels ? kKeyBits - level * kDigitBits : kDigitBits;
}

// How far a key is moved to the right so that the level's digit stands lowest.
template <class Real>
int PercentileFinder<Real>::shift_of(int level) noexcept {
  return std::max(kKeyBits - (level + 1) * kDigitBits, 0);
}

template <class Real>
void PercentileFinder<Real>::add(const Real* values, std::size_t count_of_values) {
  std::array<Key, kMostAtOnce> keys;
  std::size_t nans = 0;
  for (std::size_t i = 0; i < count_of_values; ++i) {
    keys[i] = key_of(values[i]);
    nans += values[i] != values[i];
  }
  std::size_t keys_count = count_of_values;
  if (nans > 0) {
    keys_count = 0;
    for (std::size_t i = 0; i < count_of_values; ++i) {
      if (values[i] == values[i]) keys[keys_count++] = key_of(values[i]);
    }
  }
  count(keys.data(), keys_count);
  if (keeps_) kept_.insert(kept_.end(), keys.data(), keys.data() + keys_count);
}

template <class Real>
void PercentileFinder<Real>::count(const Key* keys, std::size_t keys_count) noexcept {
  if (level_ == 0) {
    // In turn into two tables: a count that was just written is slow to read again, and neighbours are often alike.
    Counts& even = counts_[0];
    Counts& odd = counts_[1];
    std::size_t i = 0;
    for (; i + 2 <= keys_count; i += 2) {
      ++even[keys[i] >> shift_of(0)];
      ++odd[keys[i + 1] >> shift_of(0)];
    }
    if (i < keys_count) ++even[keys[i] >> shift_of(0)];
    return;
  }
  constexpr Key kMask = kDigits - 1;
  const Next& first = tables_.front().front();
  const int shift = shift_of(level_);
  const Key mask = (Key{1} << bits_of(level_)) - 1;
  for (std::size_t i = 0; i < keys_count; ++i) {
    std::size_t table = first[keys[i] >> shift_of(0)];
    for (int level = 1; level < level_ && table != 0; ++level) {
      table = tables_[static_cast<std::size_t>(level)][table - 1][(keys[i] >> shift_of(level)) & kMask];
    }
    if (table != 0) ++counts_[table - 1][(keys[i] >> shift) & mask];
  }
}

template <class Real>
void PercentileFinder<Real>::want_percentiles() {
  for (std::size_t digit = 0; digit < kDigits; ++digit) counts_[0][digit] += counts_[1][digit];
  counts_.resize(1);
  for (const std::uint64_t count : counts_.front()) values_ += count;
  if (values_ == 0) return;
  for (const int percent : kPercentiles) {
    const double place = static_cast<double>(values_ - 1) * percent / 100;
    for (const double rank : {std::floor(place), std::ceil(place)}) {
      wanted_.push_back({std::min(static_cast<std::uint64_t>(rank), values_ - 1), 0, 0});
    }
  }
  // Of few values, one percentile's upper neighbour may stand behind the next one's lower neighbour.
  order_.resize(wanted_.size());
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  std::sort(order_.begin(), order_.end(),
            [this](std::size_t a, std::size_t b) { return wanted_[a].rank_in_table < wanted_[b].rank_in_table; });
}

// Finds the wanted values' digit of this level, and gives each pair of table and digit a table of the next level.
// Wanted values stand in order, and so do their tables: one walk over the counts of each table finds all digits.
template <class Real>
void PercentileFinder<Real>::follow_digit() {
  std::vector<Next> next(counts_.size());
  for (Next& table : next) table.fill(0);
  std::size_t made = 0;
  std::size_t table = 0;
  std::size_t digit = 0;
  std::uint64_t below = 0;  // values of the table with a smaller digit
  for (const std::size_t which : order_) {
    Wanted& wanted = wanted_[which];
    if (wanted.table != table) {
      table = wanted.table;
      digit = 0;
      below = 0;
    }
    const Counts& counts = counts_[table];
    while (digit + 1 < kDigits && wanted.rank_in_table - below >= counts[digit]) below += counts[digit++];
    if (next[table][digit] == 0) next[table][digit] = static_cast<std::uint8_t>(++made);
    wanted.rank_in_table -= below;
    wanted.key = static_cast<Key>(static_cast<Key>(wanted.key << bits_of(level_)) | digit);
    wanted.table = made - 1;
  }
  tables_.push_back(std::move(next));
  ++level_;
  if (keeps_) return;
  counts_.resize(wants_pass() ? made : 0);
  for (Counts& counts : counts_) counts.fill(0);
}

// What shares its first digit with a wanted value is sorted as far as needed.
template <class Real>
void PercentileFinder<Real>::select_among_kept() {
  const Next& first = tables_.front().front();
  const Counts& counts = counts_.front();
  std::vector<std::size_t> ends(wanted_.size() + 1, 0);  // of the groups by first digit, one behind the other
  for (std::size_t digit = 0; digit < kDigits; ++digit) {
    if (first[digit] != 0) ends[first[digit]] = static_cast<std::size_t>(counts[digit]);
  }
  std::partial_sum(ends.begin(), ends.end(), ends.begin());
  // Without a branch: which of the values are wanted follows no pattern. What is not is overwritten by the next.
  std::vector<Key> found(ends.back() + 1);
  std::size_t candidates = 0;
  for (const Key key : kept_) {
    found[candidates] = key;
    candidates += first[key >> shift_of(0)] != 0;
  }
  std::vector<Key> sorted(candidates);
  std::vector<std::size_t> places(ends.begin(), ends.end() - 1);
  for (std::size_t i = 0; i < candidates; ++i) sorted[places[first[found[i] >> shift_of(0)] - 1u]++] = found[i];
  std::size_t settled = 0;  // values that are in their place, with all that are smaller before them
  for (const std::size_t which : order_) {
    Wanted& wanted = wanted_[which];
    const std::size_t at = ends[wanted.table] + static_cast<std::size_t>(wanted.rank_in_table);
    if (at >= settled) {
      const auto place = sorted.begin() + static_cast<std::ptrdiff_t>(at);
      const auto begin = sorted.begin() + static_cast<std::ptrdiff_t>(std::max(settled, ends[wanted.table]));
      const auto end = sorted.begin() + static_cast<std::ptrdiff_t>(ends[wanted.table + 1]);
      if (place == begin) {
        std::iter_swap(place, std::min_element(begin, end));
      } else if (place == end - 1) {
        std::iter_swap(place, std::max_element(begin, end));
      } else {
        std::nth_element(begin, place, end);
      }
      settled = at + 1;
    }
    wanted.key = sorted[at];
  }
  kept_ = {};
  level_ = kLevels;
}

template <class Real>
void PercentileFinder<Real>::end_pass() {
  if (level_ == 0) want_percentiles();
  if (values_ == 0) {
    level_ = kLevels;
    return;
  }
  follow_digit();
  if (keeps_) select_among_kept();
}

template <class Real>
Percentiles PercentileFinder<Real>::result() const {
  Percentiles found;
  found.fill(std::numeric_limits<double>::quiet_NaN());
  if (values_ == 0) return found;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double place = static_cast<double>(values_ - 1) * kPercentiles[i] / 100;
    const auto low = static_cast<double>(value_of(wanted_[2 * i].key));
    const auto high = static_cast<double>(value_of(wanted_[2 * i + 1].key));
    const double part = place - std::floor(place);
    // Equal infinities would make a NaN.
    found[i] = low == high || part == 0 ? low : low + (high - low) * part;
  }
  return found;
}

template class PercentileFinder<float>;
template class PercentileFinder<double>;

}  // namespace dbg::compare
