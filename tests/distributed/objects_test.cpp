// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Objects between members: what arrives, what is refused, and that nobody is left alone when one side fails.
#include "distributed/objects.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "distributed/collectives.h"
#include "distributed/gloo_halves.h"
#include "distributed/p2p.h"

namespace dbg::distributed {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Of another length on each rank, so that padding matters.
c10::IValue object_of(int rank) {
  c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
  dict.insert("rank", rank);
  dict.insert("text", std::string(static_cast<std::size_t>(100 * rank), 'x'));
  dict.insert("half", 0.5 + rank);
  dict.insert("none", c10::IValue());
  dict.insert("tensor", at::arange(rank + 1, at::kShort));
  return dict;
}

void expect_object_of(const c10::IValue& object, int rank) {
  ASSERT_TRUE(object.isGenericDict());
  const auto dict = object.toGenericDict();
  EXPECT_EQ(dict.size(), 5U);
  EXPECT_EQ(dict.at("rank").toInt(), rank);
  EXPECT_EQ(dict.at("text").toStringRef(), std::string(static_cast<std::size_t>(100 * rank), 'x'));
  EXPECT_EQ(dict.at("half").toDouble(), 0.5 + rank);
  EXPECT_TRUE(dict.at("none").isNone());
  EXPECT_TRUE(at::equal(dict.at("tensor").toTensor(), at::arange(rank + 1, at::kShort)));
}

DBG_HALF_CASE(ObjectsOfEachAreBroadcast) {
  for (int src = 0; src < half.size(); ++src) {
    expect_object_of(broadcast_object(half, object_of(half.rank_in_group), src), src);
  }
}

DBG_HALF_CASE(ObjectsAreGathered) {
  const auto all = all_gather_object(half, object_of(half.rank_in_group));
  ASSERT_EQ(all.size(), static_cast<std::size_t>(half.size()));
  for (int rank = 0; rank < half.size(); ++rank) expect_object_of(all[static_cast<std::size_t>(rank)], rank);

  const int dst = half.size() - 1;
  const auto at_last = gather_object(half, object_of(half.rank_in_group), dst);
  ASSERT_EQ(at_last.size(), static_cast<std::size_t>(half.rank_in_group == dst ? half.size() : 0));
  for (std::size_t rank = 0; rank < at_last.size(); ++rank) expect_object_of(at_last[rank], static_cast<int>(rank));
}

DBG_HALF_CASE(ObjectsAreSent) {
  if (half.size() == 1) {
    EXPECT_THROW(send_object(half, 1, 0), ConfigError);
    EXPECT_THROW(recv_object(half, 0), ConfigError);
    return;
  }
  // From each to the first, which takes them in the reverse order.
  if (half.rank_in_group != 0) return send_object(half, object_of(half.rank_in_group), 0);
  for (int src = half.size() - 1; src > 0; --src) expect_object_of(recv_object(half, src), src);
}

// The last rank brings what no pickle holds. All leave together, and the group goes on.
DBG_HALF_CASE(AnObjectThatCannotBePickledEndsTheCallOnAllRanks) {
  const int last = half.size() - 1;
  const bool is_at_fault = half.rank_in_group == last;
  const c10::IValue object = is_at_fault ? c10::IValue(at::empty({2}, at::kMeta)) : object_of(0);
  const auto expect_refusal = [&](auto&& call) {
    try {
      call();
      ADD_FAILURE() << "no error on rank " << half.rank_in_group;
    } catch (const ConfigError& error) {
      EXPECT_TRUE(is_at_fault);
      EXPECT_THAT(error.what(), HasSubstr("meta"));
    } catch (const CommError& error) {
      EXPECT_FALSE(is_at_fault);
      EXPECT_EQ(error.kind(), CommErrorKind::unsupported);
      EXPECT_THAT(error.failure().peers, ElementsAre(half.ranks.back()));
    }
    EXPECT_FALSE(half.broken.is_set());
  };
  expect_refusal([&] { broadcast_object(half, object, last); });
  expect_refusal([&] { all_gather_object(half, object); });
  if (half.size() > 1) {
    if (is_at_fault) expect_refusal([&] { send_object(half, object, 0); });
    if (half.rank_in_group == 0) expect_refusal([&] { recv_object(half, last); });
  }
  EXPECT_EQ(broadcast_object(half, half.rank_in_group, last).toInt(), last);
}

DBG_RANK_BODY(runs_a_case_of_objects) {
  test::run_case_in_process(context);
}

class ObjectsTest : public testing::TestWithParam<test::HalfCase> {};

TEST_P(ObjectsTest, Arrive) {
  test::run_half_case(GetParam(), "runs_a_case_of_objects");
}

INSTANTIATE_TEST_SUITE_P(All, ObjectsTest, testing::ValuesIn(test::all_half_cases(__FILE__)), test::name_of_half_case);

template <class Body>
CommFailure failure_of(Body&& body) {
  try {
    body();
  } catch (const CommError& error) {
    return error.failure();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

class HostileLengthTest : public testing::TestWithParam<std::int64_t> {};

// Rank 1 announces a length by hand. An allocation of it would fail or take the machine down.
TEST_P(HostileLengthTest, IsNotBelieved) {
  const at::Tensor length = at::full({1}, GetParam(), at::kLong);
  test::run_halves_as_threads(2, [&](GroupHalf& half) {
    if (half.rank_in_group == 1) return send(half, length, 0);
    const CommFailure failure = failure_of([&] { recv_object(half, 1); });
    EXPECT_EQ(failure.kind, CommErrorKind::handshake_mismatch);
    EXPECT_THAT(failure.cause, HasSubstr(std::to_string(GetParam()) + " bytes"));
    EXPECT_THAT(failure.peers, ElementsAre(half.ranks[1]));
    EXPECT_TRUE(half.broken.is_set());
  });
  test::run_halves_as_threads(2, [&](GroupHalf& half) {
    if (half.rank_in_group == 1) return broadcast(half, length, 1);
    EXPECT_EQ(failure_of([&] { broadcast_object(half, 0, 1); }).kind, CommErrorKind::handshake_mismatch);
  });
  test::run_halves_as_threads(2, [&](GroupHalf& half) {
    if (half.rank_in_group == 1) {
      all_gather_list(half, length);
      return;
    }
    EXPECT_EQ(failure_of([&] { all_gather_object(half, 0); }).kind, CommErrorKind::handshake_mismatch);
  });
}

INSTANTIATE_TEST_SUITE_P(Lengths, HostileLengthTest,
                         testing::Values(-1, std::numeric_limits<std::int64_t>::min(),
                                         std::numeric_limits<std::int64_t>::max(), (std::int64_t{1} << 30) + 1));

TEST(ObjectLimitTest, PaddingCountsForAllMembers) {
  test::run_halves_as_threads(8, [&](GroupHalf& half) {
    // Some 420 bytes; eight padded ones are above four times a limit of 500.
    const std::string text(half.rank_in_group == 2 ? 400 : 1, 'x');
    EXPECT_EQ(all_gather_object(half, text, {{}, 1000}).size(), 8U);
    EXPECT_EQ(failure_of([&] { all_gather_object(half, text, {{}, 500}); }).kind, CommErrorKind::handshake_mismatch);
  });
}

// A pickle that names a function to call, and one of a set, which a c10::IValue can't hold.
TEST(ForeignObjectTest, IsRefusedWithItsPlace) {
  for (const std::string& pickle : {std::string("\x80\x02"
                                                "cos\nsystem\nX\x04\x00\x00\x00true\x85R.",
                                                25),
                                    std::string("\x80\x04]\x8f\x61.", 6), std::string("no pickle")}) {
    at::Tensor bytes = at::empty({static_cast<std::int64_t>(pickle.size())}, at::kByte);
    std::copy(pickle.begin(), pickle.end(), static_cast<char*>(bytes.mutable_data_ptr()));
    test::run_halves_as_threads(2, [&](GroupHalf& half) {
      if (half.rank_in_group == 1) {
        send(half, at::full({1}, bytes.numel(), at::kLong), 0);
        return send(half, bytes, 0);
      }
      const CommFailure failure = failure_of([&] { recv_object(half, 1); });
      EXPECT_EQ(failure.kind, CommErrorKind::unsupported);
      EXPECT_THAT(failure.peers, ElementsAre(half.ranks[1]));
      EXPECT_THAT(failure.cause, HasSubstr("the object of rank 13"));
      EXPECT_FALSE(half.broken.is_set());
    });
  }
}

}  // namespace
}  // namespace dbg::distributed
