// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Several ranks' records as one tensor, checked through whole folders.
#include "compare/unshard.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "compare/run_folder.h"
#include "dbg/dims.h"

namespace dbg {
namespace {

using test::compare_runs;
using test::RecordOf;
using test::RunFolder;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

at::Tensor whole() {
  return at::arange(1, 4 * 8 + 1, at::kFloat).reshape({4, 8});
}

RecordOf on_tp(int rank, int size, const std::string& dims) {
  return {.rank = rank, .dims = dims, .place = {{"tp", rank, size}}};
}

TEST(UnshardTest, ShardsOfTpBecomeOneTensor) {
  RunFolder baseline;
  RunFolder target;
  baseline.add("h", whole(), {.dims = "s h"});
  for (int rank : {1, 0}) target.add("h", whole().narrow(1, rank * 4, 4), on_tp(rank, 2, "s h[tp]"));
  const CompareReport report = compare_runs(baseline, target);
  ASSERT_THAT(report.pairs, SizeIs(1));
  EXPECT_EQ(report.pairs[0].verdict, Verdict::same_bits) << report.pairs[0].reason;
  EXPECT_THAT(report.pairs[0].target_ranks, ElementsAre(0, 1));
}

TEST(UnshardTest, PartialSumsAreAdded) {
  RunFolder baseline;
  RunFolder target;
  baseline.add("h", whole(), {.dims = "s h"});
  for (int rank : {0, 1}) target.add("h", whole() * (rank == 0 ? 0.25 : 0.75), on_tp(rank, 2, "s h[tp:partial]"));
  EXPECT_EQ(compare_runs(baseline, target).pairs.at(0).verdict, Verdict::same_bits);
}

TEST(UnshardTest, ContextShardsInZigzagOrderAreTurned) {
  RunFolder baseline;
  RunFolder target;
  const at::Tensor full = at::arange(16, at::kFloat).reshape({8, 2});
  baseline.add("h", full, {.dims = "s h"});
  const Dims dims = Dims::parse("s[cp:zigzag] h");
  for (int rank : {0, 1}) {
    ParallelState place;
    place.set("cp", rank, 2);
    target.add("h", shard_of(dims, full, place), {.rank = rank, .dims = "s[cp:zigzag] h", .place = {{"cp", rank, 2}}});
  }
  EXPECT_EQ(compare_runs(baseline, target).pairs.at(0).verdict, Verdict::same_bits);
}

TEST(UnshardTest, FusedSqueezedAndSpelledOutDimensionsAreUnderstood) {
  RunFolder baseline;
  RunFolder target;
  baseline.add("fused", whole().reshape({4, 2, 4}), {.dims = "s n d"});
  baseline.add("squeezed", whole(), {.dims = "s h"});
  baseline.add("spelled", whole(), {.dims = "s h"});
  for (int rank : {0, 1}) {
    const at::Tensor half = whole().narrow(1, rank * 4, 4);
    target.add("fused", half, on_tp(rank, 2, "t (n*d)[tp]"));
    target.add("squeezed", half.unsqueeze(1), on_tp(rank, 2, "s 1 h[tp]"));
    target.add("spelled", half, on_tp(rank, 2, "s h[tp:sharded+natural]"));
  }
  for (const PairReport& pair : compare_runs(baseline, target).pairs) {
    EXPECT_EQ(pair.verdict, Verdict::same_bits) << pair.name << ": " << pair.reason;
  }
}

TEST(UnshardTest, RanksOfTheNamedDpAxisThatHoldNothingAreLeftOut) {
  RunFolder baseline;
  RunFolder target;
  baseline.add("h", whole(), {.dims = "s h"});
  for (int rank : {0, 1}) {
    target.add("h", rank == 0 ? at::empty({0, 8}) : whole(),
               {.rank = rank, .dims = "s h # dp:=moe_dp", .place = {{"moe_dp", rank, 2}}});
  }
  EXPECT_EQ(compare_runs(baseline, target).pairs.at(0).verdict, Verdict::same_bits);
}

TEST(UnshardTest, TheOddReplicaIsNamed) {
  RunFolder baseline;
  RunFolder target;
  baseline.add("h", whole(), {.dims = "s h"});
  for (int rank = 0; rank < 3; ++rank) {
    target.add("h", rank == 1 ? whole() + 1 : whole(), on_tp(rank, 3, "s h # tp:replicated"));
  }
  const PairReport pair = compare_runs(baseline, target).pairs.at(0);
  EXPECT_EQ(pair.verdict, Verdict::failed);
  ASSERT_THAT(pair.odd_replicas, SizeIs(1));
  EXPECT_EQ(pair.odd_replicas[0].odd_rank, 1);
  EXPECT_THAT(pair.reason, HasSubstr("target: rank 1 holds another value than rank 0"));
  EXPECT_TRUE(pair.difference.same_bits);
}

TEST(UnshardTest, ParallelRanksInFileNamesOfOneSideDoNotMatter) {
  RunFolder baseline;
  RunFolder target;
  baseline.add("h", whole(), {.dims = "s h"});
  for (int rank : {0, 1}) {
    RecordOf how = on_tp(rank, 2, "s h[tp]");
    how.tags = {{"tp_rank", rank}, {"pp_rank", 0}};
    target.add("h", whole().narrow(1, rank * 4, 4), how);
  }
  const CompareReport report = compare_runs(baseline, target);
  ASSERT_THAT(report.pairs, SizeIs(1));
  EXPECT_EQ(report.pairs[0].verdict, Verdict::same_bits) << report.pairs[0].reason;
}

TEST(UnshardTest, WithoutDimsEqualRanksAreComparedOneByOne) {
  RunFolder baseline;
  RunFolder target;
  for (int rank : {0, 1}) {
    baseline.add("h", whole() + rank, {.rank = rank});
    target.add("h", whole() + 2 * rank, {.rank = rank});
  }
  const CompareReport report = compare_runs(baseline, target);
  ASSERT_THAT(report.pairs, SizeIs(2));
  EXPECT_EQ(report.pairs[0].verdict, Verdict::same_bits);
  EXPECT_EQ(report.pairs[1].verdict, Verdict::failed);
  EXPECT_THAT(report.pairs[1].baseline_ranks, ElementsAre(1));
}

TEST(UnshardTest, WithoutDimsOtherRanksAreReplicasOfOne) {
  RunFolder baseline;
  RunFolder target;
  baseline.add("h", whole());
  for (int rank : {0, 1, 2}) target.add("h", rank == 2 ? whole() * 3 : whole(), {.rank = rank});
  const PairReport pair = compare_runs(baseline, target).pairs.at(0);
  EXPECT_EQ(pair.verdict, Verdict::failed);
  EXPECT_THAT(pair.reason, HasSubstr("rank 2 holds another value than rank 0"));
}

TEST(UnshardTest, WithoutDimsOtherNumbersOfRanksSayWhatToDo) {
  RunFolder baseline;
  RunFolder target;
  for (int rank : {0, 1}) baseline.add("h", whole(), {.rank = rank});
  for (int rank : {0, 1, 2}) target.add("h", whole(), {.rank = rank});
  const CompareReport report = compare_runs(baseline, target);
  EXPECT_EQ(report.exit_code(), 2);
  EXPECT_THAT(report.pairs.at(0).reason, HasSubstr("pass it as --rules"));
}

TEST(UnshardTest, DimsOfTheRulesFileCountWhereTheMetaSaysNothing) {
  RunFolder baseline;
  RunFolder target;
  test::TempFolder rules;
  std::ofstream(rules / "rules") << "# ours\ntarget-dims ^h$: s h[tp]\n";
  baseline.add("h", whole());
  for (int rank : {0, 1}) target.add("h", whole().narrow(1, rank * 4, 4), on_tp(rank, 2, ""));
  const auto ruled = [&](CompareOptions& options) { options.rules_file = (rules / "rules").string(); };
  EXPECT_EQ(compare_runs(baseline, target, ruled).pairs.at(0).verdict, Verdict::same_bits);
}

TEST(UnshardTest, AMissingRankIsAFaultUnlessBothSidesMissIt) {
  RunFolder baseline;
  RunFolder target;
  RunFolder same;
  baseline.add("h", whole(), {.dims = "s h"});
  target.add("h", whole().narrow(1, 0, 4), on_tp(0, 2, "s h[tp]"));
  same.add("h", whole().narrow(1, 0, 4), on_tp(0, 2, "s h[tp]"));
  const CompareReport report = compare_runs(baseline, target);
  EXPECT_EQ(report.exit_code(), 2);
  EXPECT_THAT(report.pairs.at(0).reason, HasSubstr("no rank holds tp 1 of 2"));
  const CompareReport equal = compare_runs(same, target);
  EXPECT_EQ(equal.exit_code(), 0);
  EXPECT_THAT(equal.pairs.at(0).note, HasSubstr("compared rank by rank"));
}

TEST(UnshardTest, ThePipelineStageThatHoldsTheValueOwnsIt) {
  RunFolder baseline;
  RunFolder target;
  baseline.add("logits", whole(), {.dims = "s h"});
  target.add("logits", c10::IValue(), {.rank = 0, .dims = "s h", .place = {{"pp", 0, 2}}});
  target.add("logits", whole(), {.rank = 1, .dims = "s h", .place = {{"pp", 1, 2}}});
  const PairReport pair = compare_runs(baseline, target).pairs.at(0);
  EXPECT_EQ(pair.verdict, Verdict::same_bits) << pair.reason;
  EXPECT_THAT(pair.target_ranks, ElementsAre(1));
}

TEST(UnshardTest, DimsThatAreNoneAreAFaultOfTheRecord) {
  RunFolder baseline;
  RunFolder target;
  baseline.add("h", whole());
  target.add("h", whole(), {.dims = "s h[xp]"});
  const CompareReport report = compare_runs(baseline, target);
  EXPECT_EQ(report.exit_code(), 2);
  EXPECT_THAT(report.unreadable.at(0).cause, HasSubstr("'xp' is no axis"));
}

}  // namespace
}  // namespace dbg
