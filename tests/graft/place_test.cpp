// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What ranks say of their axes, as it stands in extras and in a record's meta.
#include "graft/place.h"

#include <gtest/gtest.h>

#include <chrono>
#include <initializer_list>
#include <limits>
#include <string>
#include <utility>

namespace dbg::graft {
namespace {

c10::IValue dict_of(std::initializer_list<std::pair<c10::IValue, c10::IValue>> entries) {
  c10::impl::GenericDict dict(c10::AnyType::get(), c10::AnyType::get());
  for (const auto& [key, value] : entries) dict.insert(key, value);
  return dict;
}

TEST(PlaceTest, IsReadFromTheDictAndFromParallelInfoInIt) {
  const GraftPlace place = place_in(dict_of({{"dims", "b s h[tp]"},
                                             {"tp_rank", 1},
                                             {"tp_size", 2},
                                             {"megatron_parallel_info", dict_of({{"pp_rank", 3}, {"pp_size", 4}})}}));
  EXPECT_EQ(place.dims, "b s h[tp]");
  ASSERT_TRUE(place.parallel.find("tp").has_value());
  EXPECT_EQ(place.parallel.find("tp")->rank, 1);
  EXPECT_EQ(place.parallel.find("tp")->size, 2);
  ASSERT_TRUE(place.parallel.find("pp").has_value());
  EXPECT_EQ(place.parallel.find("pp")->rank, 3);
}

TEST(PlaceTest, WhatMakesNoSenseIsLeftOut) {
  const std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  const GraftPlace place = place_in(dict_of({{"dims", 3},
                                             {"tp_rank", 2},
                                             {"tp_size", 2},
                                             {"pp_rank", -1},
                                             {"pp_size", 2},
                                             {"dp_rank", 1},
                                             {"cp_rank", huge - 1},
                                             {"cp_size", huge},
                                             {"ep_rank", "0"},
                                             {"ep_size", 2},
                                             {"_rank", 0},
                                             {"_size", 1},
                                             {7, 8}}));
  EXPECT_EQ(place.dims, "");
  EXPECT_TRUE(place.parallel.empty());
  EXPECT_TRUE(place_in(c10::IValue("text")).parallel.empty());
  EXPECT_TRUE(place_in(c10::IValue()).dims.empty());
}

TEST(PlaceTest, WhatIsSaidOfOneCallCountsFirst) {
  GraftPlace said;
  said.parallel.set("tp", 1, 2);
  GraftPlace otherwise;
  otherwise.dims = "h";
  otherwise.parallel.set("tp", 0, 4);
  otherwise.parallel.set("pp", 1, 2);
  const GraftPlace both = merged(said, otherwise);
  EXPECT_EQ(both.dims, "h");
  EXPECT_EQ(both.parallel.find("tp")->size, 2);
  EXPECT_EQ(both.parallel.find("pp")->rank, 1);
}

// A peer's extras: the time must not grow with the square of their number.
TEST(PlaceTest, AHugeDictIsReadInOneGo) {
  constexpr int kEntries = 20000;
  c10::impl::GenericDict inner(c10::AnyType::get(), c10::AnyType::get());
  for (int i = 0; i < kEntries; ++i) {
    inner.insert("a" + std::to_string(i) + "_rank", 0);
    inner.insert("a" + std::to_string(i) + "_size", 1);
  }
  // And the same once more under each of many names.
  c10::impl::GenericDict outer(c10::AnyType::get(), c10::AnyType::get());
  for (int i = 0; i < 2000; ++i) outer.insert(std::to_string(i) + "_parallel_info", inner);
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(place_in(inner).parallel.axes().size(), 64u);
  EXPECT_EQ(place_in(outer).parallel.axes().size(), 64u);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(20));
}

TEST(PlaceTest, ComesBackFromItsDict) {
  GraftPlace place;
  place.dims = "s[cp] h";
  place.parallel.set("cp", 1, 2);
  const GraftPlace again = place_in(to_dict(place));
  EXPECT_EQ(again.dims, place.dims);
  EXPECT_EQ(again.parallel.find("cp")->rank, 1);
}

}  // namespace
}  // namespace dbg::graft
