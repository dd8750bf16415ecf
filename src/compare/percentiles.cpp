// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Selection by digits, the highest first.
#include "compare/percentiles.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/vectorized.h"
#include "compare/rank_select.h"

namespace dbg::compare {

template <class Real>
PercentileFinder<Real>::PercentileFinder(std::int64_t values) : keeps_(values <= kMostKept) {
  if (keeps_) {
    kept_.reserve(static_cast<std::size_t>(values));
  } else {
    counts_.resize(2);
    for (Counts& counts : counts_) counts.fill(0);
  }
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

// Returns how many keys there are: NaN has none.
template <class Real>
std::size_t PercentileFinder<Real>::make_keys(const double* values, std::size_t count_of_values, Key* keys) noexcept {
  const std::size_t nans = base::vectorized([=]() DBG_INLINED {
    std::size_t found = 0;
    for (std::size_t i = 0; i < count_of_values; ++i) {
      keys[i] = key_of(static_cast<Real>(values[i]));
      found += values[i] != values[i];
    }
    return found;
  });
  if (nans == 0) return count_of_values;
  std::size_t made = 0;
  for (std::size_t i = 0; i < count_of_values; ++i) {
    if (values[i] == values[i]) keys[made++] = keys[i];
  }
  return made;
}

template <class Real>
void PercentileFinder<Real>::add(const double* values, std::size_t count_of_values) {
  if (keeps_) {
    const std::size_t before = kept_.size();
    kept_.resize(before + count_of_values);
    kept_.resize(before + make_keys(values, count_of_values, kept_.data() + before));
    return;
  }
  std::array<Key, kMostAtOnce> keys;
  count(keys.data(), make_keys(values, count_of_values, keys.data()));
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
  if (keeps_) {
    values_ = kept_.size();
  } else {
    for (std::size_t digit = 0; digit < kDigits; ++digit) counts_[0][digit] += counts_[1][digit];
    counts_.resize(1);
    for (const std::uint64_t count : counts_.front()) values_ += count;
  }
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
  counts_.resize(wants_pass() ? made : 0);
  for (Counts& counts : counts_) counts.fill(0);
}

template <class Real>
void PercentileFinder<Real>::select_among_kept() {
  std::vector<std::uint64_t> ranks;
  for (const std::size_t which : order_) ranks.push_back(wanted_[which].rank_in_table);
  const std::vector<Key> keys = select_ranks(kept_, ranks);
  for (std::size_t i = 0; i < keys.size(); ++i) wanted_[order_[i]].key = keys[i];
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
  if (keeps_) {
    select_among_kept();
  } else {
    follow_digit();
  }
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
