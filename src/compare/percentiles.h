// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Exact percentiles of any number of values in a few passes over them, without keeping one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "dbg/compare.h"

namespace dbg::compare {

/// Finds the percentiles `kPercentiles` of values that are shown to it several times over.
///
/// Each pass counts one more digit of the values' bits, only where a wanted value can still be: 3 passes for float, 6
/// for double, and at most 14 tables of 2048 counts whatever their number. Up to `kMostKept` values are kept instead,
/// and one pass does.
///
///     while (finder.wants_pass()) { for (all chunks) finder.add(chunk, count); finder.end_pass(); }
///
/// NaN is left out. `Real` is float or double.
/// Threads: one thread at a time.
template <class Real>
class PercentileFinder {
 public:
  static constexpr std::int64_t kMostKept = std::int64_t{1} << 20;
  static constexpr std::size_t kMostAtOnce = 1024;

  /// `values` is how many will be shown in a pass.
  explicit PercentileFinder(std::int64_t values);

  bool wants_pass() const noexcept { return level_ < kLevels; }
  /// Takes up to `kMostAtOnce` values, rounded to `Real`.
  void add(const double* values, std::size_t count);
  void end_pass();

  /// NaN where there were no values.
  Percentiles result() const;

 private:
  using Key = std::conditional_t<sizeof(Real) == 4, std::uint32_t, std::uint64_t>;
  static constexpr int kKeyBits = static_cast<int>(sizeof(Key)) * 8;
  static constexpr int kDigitBits = 11;
  static constexpr std::size_t kDigits = std::size_t{1} << kDigitBits;
  static constexpr int kLevels = (kKeyBits + kDigitBits - 1) / kDigitBits;

  using Counts = std::array<std::uint64_t, kDigits>;
  using Next = std::array<std::uint8_t, kDigits>;  // the table of the next level, from 1; 0: none

  // One value that is wanted, by its place in order.
  struct Wanted {
    std::uint64_t rank_in_table = 0;
    std::size_t table = 0;
    Key key = 0;  // its digits so far
  };

  static Key key_of(Real value) noexcept;
  static Real value_of(Key key) noexcept;
  static std::size_t make_keys(const double* values, std::size_t count, Key* keys) noexcept;
  static int bits_of(int level) noexcept;
  static int shift_of(int level) noexcept;

  void count(const Key* keys, std::size_t count) noexcept;
  void want_percentiles();
  void follow_digit();
  void select_among_kept();

  bool keeps_;
  int level_ = 0;
  std::uint64_t values_ = 0;
  std::vector<Key> kept_;
  std::vector<Wanted> wanted_;
  std::vector<std::size_t> order_;         // of the wanted values, the smallest first
  std::vector<Counts> counts_;             // of the level that is being counted; of the first in two halves
  std::vector<std::vector<Next>> tables_;  // of the levels before it
};

}  // namespace dbg::compare
