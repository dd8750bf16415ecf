// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Every collective on 1, 2 and 4 ranks, as threads and as processes, against values computed on one rank.
#include "distributed/collectives.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "base/formatted.h"
#include "distributed/gloo_halves.h"

namespace dbg::distributed {
namespace {

using testing::HasSubstr;

const std::vector<at::ScalarType> kAdded{at::kFloat, at::kDouble, at::kHalf, at::kBFloat16,
                                         at::kByte,  at::kChar,   at::kInt,  at::kLong};
const std::vector<at::ScalarType> kCarried{
    at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kBool,         at::kByte,          at::kChar,
    at::kShort, at::kInt,    at::kLong, at::kUInt16,   at::kComplexFloat, at::kComplexDouble, at::kFloat8_e4m3fn};

// What rank `rank` brings: small numbers, exact in every dtype.
at::Tensor brought(int rank, at::ScalarType dtype = at::kFloat, std::vector<std::int64_t> sizes = {2, 4}) {
  std::int64_t numel = 1;
  for (const std::int64_t size : sizes) numel *= size;
  return (at::remainder(at::arange(numel, at::kFloat), 3) + rank + 1).reshape(sizes).to(dtype);
}

void expect_same(const at::Tensor& got, const at::Tensor& wanted) {
  ASSERT_TRUE(got.defined());
  EXPECT_EQ(got.sizes(), wanted.sizes());
  ASSERT_EQ(got.scalar_type(), wanted.scalar_type());
  // Equal as bytes: not every dtype has a comparison.
  const auto bytes_of = [](const at::Tensor& tensor) { return tensor.contiguous().reshape({-1}).view(at::kByte); };
  EXPECT_TRUE(at::equal(bytes_of(got), bytes_of(wanted))) << got.scalar_type();
}

std::vector<at::Tensor> brought_by_all(int size, at::ScalarType dtype = at::kFloat,
                                       const std::vector<std::int64_t>& sizes = {2, 4}) {
  std::vector<at::Tensor> all;
  for (int rank = 0; rank < size; ++rank) all.push_back(brought(rank, dtype, sizes));
  return all;
}

at::Tensor sum_of_all(int size, at::ScalarType dtype, const std::vector<std::int64_t>& sizes = {2, 4}) {
  at::Tensor sum = at::zeros(sizes, dtype);
  for (const at::Tensor& tensor : brought_by_all(size, dtype, sizes)) sum = sum + tensor;
  return sum;
}

// A view in which every other column lies between the tensor's, and the neighbours that must stay as they are.
struct Strided {
  explicit Strided(const at::Tensor& values) : block(at::full({values.size(0), 2 * values.size(1)}, 77.0F)) {
    view().copy_(values);
  }
  at::Tensor view() const { return block.slice(1, 0, block.size(1), 2); }
  bool neighbours_are_untouched() const { return block.slice(1, 1, block.size(1), 2).eq(77.0F).all().item<bool>(); }
  at::Tensor block;
};

DBG_HALF_CASE(AllReduceSumsEveryDtype) {
  for (const at::ScalarType dtype : kAdded) {
    at::Tensor tensor = brought(half.rank_in_group, dtype);
    all_reduce(half, tensor);
    expect_same(tensor, sum_of_all(half.size(), dtype));
  }
}

DBG_HALF_CASE(AllReduceHasEveryOperation) {
  const int size = half.size();
  const auto reduced = [&](const at::Tensor& own, ReduceOp op) {
    at::Tensor tensor = own.clone();
    all_reduce(half, tensor, op);
    return tensor;
  };
  const at::Tensor all = at::stack(brought_by_all(size));
  expect_same(reduced(brought(half.rank_in_group), ReduceOp::average), all.sum(0) / size);
  expect_same(reduced(brought(half.rank_in_group), ReduceOp::product), all.prod(0));
  expect_same(reduced(brought(half.rank_in_group), ReduceOp::min), std::get<0>(all.min(0)));
  expect_same(reduced(brought(half.rank_in_group), ReduceOp::max), std::get<0>(all.max(0)));
  at::Tensor conjunction = brought(0, at::kInt);
  at::Tensor disjunction = brought(0, at::kInt);
  at::Tensor exclusive = brought(0, at::kInt);
  for (int rank = 1; rank < size; ++rank) {
    conjunction = at::bitwise_and(conjunction, brought(rank, at::kInt));
    disjunction = at::bitwise_or(disjunction, brought(rank, at::kInt));
    exclusive = at::bitwise_xor(exclusive, brought(rank, at::kInt));
  }
  expect_same(reduced(brought(half.rank_in_group, at::kInt), ReduceOp::bit_and), conjunction);
  expect_same(reduced(brought(half.rank_in_group, at::kInt), ReduceOp::bit_or), disjunction);
  expect_same(reduced(brought(half.rank_in_group, at::kInt), ReduceOp::bit_xor), exclusive);
}

DBG_HALF_CASE(BoolsStayBools) {
  // Rank 0 brings [true, false, true], the others [true, false, false].
  const at::Tensor own = at::tensor({1, 0, half.rank_in_group == 0 ? 1 : 0}, at::kInt).to(at::kBool);
  const bool is_alone = half.size() == 1;
  const auto expect = [&](ReduceOp op, std::vector<int> wanted) {
    at::Tensor tensor = own.clone();
    all_reduce(half, tensor, op);
    expect_same(tensor, at::tensor(wanted, at::kInt).to(at::kBool));
  };
  expect(ReduceOp::sum, {1, 0, 1});
  expect(ReduceOp::max, {1, 0, 1});
  expect(ReduceOp::bit_or, {1, 0, 1});
  expect(ReduceOp::product, {1, 0, is_alone ? 1 : 0});
  expect(ReduceOp::min, {1, 0, is_alone ? 1 : 0});
  expect(ReduceOp::bit_and, {1, 0, is_alone ? 1 : 0});
}

DBG_HALF_CASE(ComplexNumbersAreSummedAndAveraged) {
  const auto value = [](int rank) { return at::complex(brought(rank), brought(rank + 1)); };
  at::Tensor wanted = at::zeros({2, 4}, at::kComplexFloat);
  for (int rank = 0; rank < half.size(); ++rank) wanted = wanted + value(rank);
  at::Tensor sum = value(half.rank_in_group);
  all_reduce(half, sum);
  expect_same(sum, wanted);
  // A conjugate view is its values, not its memory.
  at::Tensor conjugate = value(half.rank_in_group).conj();
  all_reduce(half, conjugate, ReduceOp::average);
  expect_same(conjugate.resolve_conj(), wanted.conj().resolve_conj() / half.size());
}

DBG_HALF_CASE(StridedTensorsKeepTheirNeighbours) {
  const Strided reduced(brought(half.rank_in_group));
  all_reduce(half, reduced.view());
  expect_same(reduced.view(), sum_of_all(half.size(), at::kFloat));
  EXPECT_TRUE(reduced.neighbours_are_untouched());

  const Strided received(brought(half.rank_in_group));
  broadcast(half, received.view(), half.size() - 1);
  expect_same(received.view(), brought(half.size() - 1));
  EXPECT_TRUE(received.neighbours_are_untouched());

  const Strided given(brought(half.rank_in_group));
  expect_same(all_gather(half, given.view(), 0), at::cat(brought_by_all(half.size()), 0));
  expect_same(all_gather(half, brought(half.rank_in_group).t(), 0), at::cat(brought_by_all(half.size()), 1).t());
}

DBG_HALF_CASE(AllGatherJoinsAlongEachDimension) {
  for (const at::ScalarType dtype : kCarried) {
    const at::Tensor own = brought(half.rank_in_group, dtype, {2, 1, 3});
    const auto all = brought_by_all(half.size(), dtype, {2, 1, 3});
    for (const std::int64_t dim : {0, 1, 2, -1, -3}) {
      // at::cat knows no uint16 and no float8: their bytes are joined.
      at::Tensor wanted;
      if (dtype == at::kUInt16 || dtype == at::kFloat8_e4m3fn) {
        std::vector<at::Tensor> bytes;
        for (const at::Tensor& tensor : all) bytes.push_back(tensor.unsqueeze(-1).view(at::kByte));
        wanted = at::cat(bytes, dim < 0 ? dim - 1 : dim).view(dtype).squeeze(-1);
      } else {
        wanted = at::cat(all, dim);
      }
      expect_same(all_gather(half, own, dim), wanted);
    }
    const std::vector<at::Tensor> list = all_gather_list(half, own);
    ASSERT_EQ(list.size(), all.size());
    for (std::size_t i = 0; i < all.size(); ++i) expect_same(list[i], all[i]);
  }
  // Without dimensions there is nothing to join along; the list form takes it.
  EXPECT_EQ(all_gather_list(half, at::scalar_tensor(half.rank_in_group, at::kInt)).back().item<int>(), half.size() - 1);
}

DBG_HALF_CASE(ReduceScatterGivesEachItsPart) {
  const int size = half.size();
  for (const at::ScalarType dtype : kAdded) {
    const std::vector<std::int64_t> sizes{4, 8};
    for (const std::int64_t dim : {0, 1, -1}) {
      const at::Tensor own = brought(half.rank_in_group, dtype, sizes);
      const at::Tensor before = own.clone();
      const at::Tensor part = reduce_scatter(half, own, ReduceOp::sum, dim);
      expect_same(part, sum_of_all(size, dtype, sizes).chunk(size, dim)[static_cast<std::size_t>(half.rank_in_group)]);
      expect_same(own, before);
    }
  }
  const at::Tensor averaged = reduce_scatter(half, brought(half.rank_in_group, at::kFloat, {4}), ReduceOp::average);
  expect_same(averaged,
              (sum_of_all(size, at::kFloat, {4}) / size).chunk(size, 0)[static_cast<std::size_t>(half.rank_in_group)]);
}

DBG_HALF_CASE(GatherGoesToTheOneNamed) {
  for (int dst = 0; dst < half.size(); ++dst) {
    for (const at::ScalarType dtype : {at::kFloat, at::kShort, at::kBool}) {
      const at::Tensor own = brought(half.rank_in_group, dtype);
      const at::Tensor joined = gather(half, own, dst);
      const std::vector<at::Tensor> list = gather_list(half, own, dst);
      if (half.rank_in_group != dst) {
        EXPECT_FALSE(joined.defined());
        EXPECT_TRUE(list.empty());
        continue;
      }
      expect_same(joined, at::cat(brought_by_all(half.size(), dtype), -1));
      ASSERT_EQ(list.size(), static_cast<std::size_t>(half.size()));
      expect_same(list.back(), brought(half.size() - 1, dtype));
    }
  }
}

DBG_HALF_CASE(BroadcastComesFromTheOneNamed) {
  for (int src = 0; src < half.size(); ++src) {
    for (const at::ScalarType dtype : kCarried) {
      at::Tensor tensor = brought(half.rank_in_group, dtype);
      broadcast(half, tensor, src);
      expect_same(tensor, brought(src, dtype));
    }
  }
  // The source's own may be expanded: it is only read.
  at::Tensor tensor = half.rank_in_group == 0 ? at::ones({1}).expand({5}) : at::zeros({5});
  broadcast(half, tensor, 0);
  expect_same(tensor.contiguous(), at::ones({5}));
}

DBG_HALF_CASE(ParametersAreCarriedWithoutAutograd) {
  at::Tensor parameter = brought(half.rank_in_group).requires_grad_(true);
  all_reduce(half, parameter);
  expect_same(parameter.detach(), sum_of_all(half.size(), at::kFloat));
  const at::Tensor twice = brought(half.rank_in_group).t().requires_grad_(true);
  broadcast(half, twice, 0);
  expect_same(twice.detach(), brought(0).t());
  EXPECT_FALSE(all_gather(half, parameter).requires_grad());
}

DBG_HALF_CASE(EmptyTensorsPassThrough) {
  at::Tensor empty = at::empty({0, 4});
  all_reduce(half, empty);
  all_reduce(half, empty, ReduceOp::average);
  broadcast(half, empty, 0);
  EXPECT_EQ(all_gather(half, empty, 0).sizes(), (std::vector<std::int64_t>{0, 4}));
  EXPECT_EQ(all_gather(half, empty, 1).sizes(), (std::vector<std::int64_t>{0, 4 * half.size()}));
  EXPECT_EQ(reduce_scatter(half, empty, ReduceOp::sum, 1).sizes(), (std::vector<std::int64_t>{0, 4 / half.size()}));
  EXPECT_EQ(gather(half, empty, 0).defined(), half.rank_in_group == 0);
  // And the group goes on.
  at::Tensor tensor = brought(half.rank_in_group);
  all_reduce(half, tensor);
  expect_same(tensor, sum_of_all(half.size(), at::kFloat));
}

DBG_HALF_CASE(BarriersReturn) {
  for (int i = 0; i < 3; ++i) {
    barrier(half);
    monitored_barrier(half);
  }
}

template <class Body>
void expect_config_error(Body&& body, std::string_view part) {
  try {
    body();
    ADD_FAILURE() << "no error that says " << part;
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr(std::string(part)));
  }
}

// Also in a group of one, where nothing would go wrong by itself. Nothing is sent: the group goes on afterwards.
DBG_HALF_CASE(WrongArgumentsAreRefusedBeforeAnythingIsSent) {
  at::Tensor tensor = brought(half.rank_in_group);
  expect_config_error([&] { all_reduce(half, at::Tensor()); }, "an undefined tensor");
  expect_config_error([&] { all_reduce(half, at::empty({2}, at::kMeta)); }, "meta device");
  expect_config_error([&] { all_reduce(half, at::eye(2).to_sparse()); }, "sparse");
  expect_config_error([&] { all_reduce(half, at::ones({1}).expand({3})); }, "share memory");
  expect_config_error([&] { all_reduce(half, brought(0, at::kInt), ReduceOp::average); }, "int32 with average");
  expect_config_error([&] { all_reduce(half, tensor, ReduceOp::bit_and); }, "float32 with bit_and");
  expect_config_error([&] { all_reduce(half, at::complex(tensor, tensor), ReduceOp::max); }, "complex64 with max");
  expect_config_error(
      [&] { broadcast(half, tensor, half.size()); },
      formatted("src_in_group {}; it is a rank within the group, 0 to {}", half.size(), half.size() - 1));
  expect_config_error([&] { broadcast(half, tensor, -1); }, "src_in_group -1");
  expect_config_error([&] { gather(half, tensor, half.size()); }, "dst_in_group");
  expect_config_error([&] { gather_list(half, tensor, half.size()); }, "dst_in_group");
  expect_config_error([&] { all_gather(half, tensor, 2); }, "dimension 2 of a tensor with 2: -2 to 1");
  expect_config_error([&] { all_gather(half, at::scalar_tensor(1.0), 0); }, "reshape({1})");
  expect_config_error([&] { all_reduce(half, tensor, ReduceOp::sum, {.timeout = std::chrono::milliseconds(0)}); },
                      "timeout of 0 ms");
  if (half.size() > 1) {
    expect_config_error([&] { reduce_scatter(half, brought(0, at::kFloat, {half.size() + 1})); }, "it must divide");
  }
  try {
    all_reduce(half, brought(0, at::kShort));
    ADD_FAILURE() << "int16 was reduced";
  } catch (const CommError& error) {
    EXPECT_EQ(error.kind(), CommErrorKind::unsupported);
    EXPECT_THAT(error.what(), HasSubstr("int16"));
  }
  EXPECT_FALSE(half.broken.is_set());
  all_reduce(half, tensor);
  expect_same(tensor, sum_of_all(half.size(), at::kFloat));
}

DBG_RANK_BODY(runs_a_case_of_collectives) {
  test::run_case_in_process(context);
}

class CollectivesTest : public testing::TestWithParam<test::HalfCase> {};

TEST_P(CollectivesTest, AgreesWithOneRank) {
  test::run_half_case(GetParam(), "runs_a_case_of_collectives");
}

INSTANTIATE_TEST_SUITE_P(All, CollectivesTest, testing::ValuesIn(test::all_half_cases(__FILE__)),
                         test::name_of_half_case);

}  // namespace
}  // namespace dbg::distributed
