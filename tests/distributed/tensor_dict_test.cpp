// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Tensor dicts between members: order, empty tensors, values, and announcements that are not believed.
#include "distributed/tensor_dict.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "distributed/gloo_halves.h"
#include "distributed/object_bytes.h"
#include "distributed/p2p.h"

namespace dbg::distributed {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TensorDict dict_of(int rank) {
  return {{"hidden_states", at::arange(6, at::kFloat).reshape({2, 3}) + rank},
          {"residual", (at::arange(6, at::kFloat).reshape({2, 3}) - rank).to(at::kBFloat16).t()},
          {"nothing", at::empty({0, 7}, at::kHalf)},
          {"scalar", at::scalar_tensor(rank, at::kLong)},
          {"mask", at::arange(4).eq(rank)},
          {"step", rank},
          {"names", c10::List<std::string>({"a", "b"})},
          {"inner", c10::ivalue::Tuple::create({at::ones({2}), c10::IValue()})}};
}

void expect_dict_of(const TensorDict& got, int rank) {
  const TensorDict wanted = dict_of(rank);
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(got[i].first, wanted[i].first);
    if (!wanted[i].second.isTensor()) continue;
    ASSERT_TRUE(got[i].second.isTensor()) << got[i].first;
    const at::Tensor tensor = got[i].second.toTensor();
    EXPECT_EQ(tensor.scalar_type(), wanted[i].second.toTensor().scalar_type());
    EXPECT_TRUE(at::equal(tensor, wanted[i].second.toTensor())) << got[i].first;
  }
  EXPECT_EQ(got[5].second.toInt(), rank);
  EXPECT_EQ(got[6].second.toListRef()[1].toStringRef(), "b");
  EXPECT_TRUE(at::equal(got[7].second.toTupleRef().elements()[0].toTensor(), at::ones({2})));
}

DBG_HALF_CASE(DictsOfEachAreBroadcast) {
  const GroupPair group{half, half};
  for (int src = 0; src < half.size(); ++src) {
    expect_dict_of(broadcast_tensor_dict(group, half.rank_in_group == src ? dict_of(src) : TensorDict(), src), src);
  }
}

DBG_HALF_CASE(DictsGoToTheNextByDefault) {
  if (half.size() == 1) {
    const GroupPair alone{half, half};
    EXPECT_THROW(send_tensor_dict(alone, TensorDict()), ConfigError);
    return;
  }
  const GroupPair group{half, half};
  if (half.rank_in_group > 0) expect_dict_of(recv_tensor_dict(group), half.rank_in_group - 1);
  if (half.rank_in_group + 1 < half.size()) send_tensor_dict(group, dict_of(half.rank_in_group));
  // And to the one named: the last gives the first its own.
  if (half.rank_in_group + 1 == half.size()) send_tensor_dict(group, dict_of(half.rank_in_group), 0);
  if (half.rank_in_group == 0) expect_dict_of(recv_tensor_dict(group, half.size() - 1), half.size() - 1);
}

DBG_HALF_CASE(ADictThatCannotBeAnnouncedEndsTheCallOnAllRanks) {
  const TensorDict twice{{"a", 1}, {"a", 2}};
  try {
    broadcast_tensor_dict({half, half}, twice, 0);
    ADD_FAILURE() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_EQ(half.rank_in_group, 0);
    EXPECT_THAT(error.what(), HasSubstr("two values named 'a'"));
  } catch (const CommError& error) {
    EXPECT_EQ(error.kind(), CommErrorKind::unsupported);
  }
  expect_dict_of(broadcast_tensor_dict({half, half}, dict_of(0), 0), 0);
}

DBG_RANK_BODY(runs_a_case_of_dicts) {
  test::run_case_in_process(context);
}

class TensorDictTest : public testing::TestWithParam<test::HalfCase> {};

TEST_P(TensorDictTest, Arrives) {
  test::run_half_case(GetParam(), "runs_a_case_of_dicts");
}

INSTANTIATE_TEST_SUITE_P(All, TensorDictTest, testing::ValuesIn(test::all_half_cases(__FILE__)),
                         test::name_of_half_case);

// One entry announced by hand: key, dtype, sizes.
std::string announcement(const std::string& device, const std::string& dtype, const std::vector<std::int64_t>& sizes) {
  codec::PickleWriter out(2);
  out.empty_list();
  out.mark();
  out.text("x");
  out.global("sglang.srt.distributed.parallel_state", "TensorMetadata");
  out.text(device);
  out.global("torch", dtype);
  out.global("torch", "Size");
  out.integer_tuple(sizes.data(), sizes.size());
  out.tuple_of_last(1);
  out.reduce();
  out.tuple_of_last(3);
  out.reduce();
  out.tuple_of_last(2);
  out.append_to_list();
  return out.finish();
}

TEST(HostileDictTest, AnnouncementsAreHeldAgainstTheLimits) {
  const std::int64_t large = std::int64_t{1} << 40;
  const std::vector<std::pair<std::string, std::string>> cases{
      {announcement("cpu", "float32", {large}), "above the limit"},
      {announcement("cpu", "float32", {large, large}), "above the limit"},
      {announcement("cpu", "float32", {-1}), "dimension of -1"},
      {announcement("toaster", "float32", {1}), "no device here"},
      {[] {
         codec::PickleWriter out(2);
         out.empty_dict();
         return out.finish();
       }(),
       "no list of metadata"},
  };
  for (const auto& hostile : cases) {
    const std::string& pickle = hostile.first;
    const std::string& cause = hostile.second;
    test::run_halves_as_threads(2, [&](GroupHalf& half) {
      if (half.rank_in_group == 1) {
        CollectiveCall call(half, "send_tensor_dict");
        return send_bytes(call, encode_with([&] { return pickle; }), 0);
      }
      try {
        recv_tensor_dict({half, half}, 1);
        ADD_FAILURE() << "no error that says " << cause;
      } catch (const CommError& error) {
        EXPECT_EQ(error.kind(), CommErrorKind::handshake_mismatch);
        EXPECT_THAT(error.what(), HasSubstr(cause));
        EXPECT_THAT(error.failure().peers, ElementsAre(half.ranks[1]));
        EXPECT_TRUE(half.broken.is_set());
      }
    });
  }
}

}  // namespace
}  // namespace dbg::distributed
