// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Selection by digits, the highest first.
#include "compare/percentiles.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

namespace dbg::compare {

template <class Real>
PercentileFinder<Real>::PercentileFinder() : counts_(1) {
  counts_.front().fill(0);
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

// How far a key is moved to the right so that the level's digit stands lowest. The last digit may be a short one.
template <class Real>
int PercentileFinder<Real>::shift_of(int level) noexcept {
  return std::max(kKeyBits - (level + 1) * kDigitBits, 0);
}

template <class Real>
void PercentileFinder<Real>::add(const Real* values, std::size_t count) noexcept {
  constexpr Key kMask = kDigits - 1;
  if (level_ == 0) {
    Counts& counts = counts_.front();
    for (std::size_t i = 0; i < count; ++i) {
      if (values[i] == values[i]) ++counts[key_of(values[i]) >> shift_of(0)];
    }
    return;
  }
  const auto* first = tables_.front().data();
  const int last_bits = level_ + 1 == kLevels ? kKeyBits - level_ * kDigitBits : kDigitBits;
  const Key last_mask = (Key{1} << last_bits) - 1;
  for (std::size_t i = 0; i < count; ++i) {
    const Key key = key_of(values[i]);
    std::size_t table = (*first)[key >> shift_of(0)];
    if (table == 0 || values[i] != values[i]) continue;
    for (int level = 1; level < level_ && table != 0; ++level) {
      table = tables_[static_cast<std::size_t>(level)][table - 1][(key >> shift_of(level)) & kMask];
    }
    if (table != 0) ++counts_[table - 1][(key >> shift_of(level_)) & last_mask];
  }
}

template <class Real>
void PercentileFinder<Real>::end_pass() {
  if (level_ == 0) {
    for (const std::uint64_t count : counts_.front()) values_ += count;
    if (values_ == 0) {
      level_ = kLevels;
      return;
    }
    for (const int percent : kPercentiles) {
      const double place = static_cast<double>(values_ - 1) * percent / 100;
      for (const double rank : {std::floor(place), std::ceil(place)}) {
        const std::uint64_t at = std::min(static_cast<std::uint64_t>(rank), values_ - 1);
        wanted_.push_back({at, at, 0, 0});
      }
    }
  }
  const int bits = level_ + 1 == kLevels ? kKeyBits - level_ * kDigitBits : kDigitBits;
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> made;  // table and digit -> table of the next level
  std::vector<Next> next(counts_.size());
  for (Next& table : next) table.fill(0);
  for (Wanted& wanted : wanted_) {
    const Counts& counts = counts_[wanted.table];
    std::size_t digit = 0;
    while (digit + 1 < kDigits && wanted.rank_in_table >= counts[digit]) wanted.rank_in_table -= counts[digit++];
    wanted.key = static_cast<Key>(static_cast<Key>(wanted.key << bits) | digit);
    const std::size_t table = made.emplace(std::pair(wanted.table, digit), made.size()).first->second;
    next[wanted.table][digit] = static_cast<std::uint8_t>(table + 1);
    wanted.table = table;
  }
  tables_.push_back(std::move(next));
  ++level_;
  counts_.resize(wants_pass() ? made.size() : 0);
  for (Counts& counts : counts_) counts.fill(0);
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
