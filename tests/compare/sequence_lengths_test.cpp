// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Packed sequences that cp ranks share in zigzag order, each by itself.
#include "compare/sequence_lengths.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compare/run_folder.h"
#include "dbg/dims.h"

namespace dbg {
namespace {

using test::compare_runs;
using test::RunFolder;
using testing::HasSubstr;

constexpr const char* kDims = "t[cp:zigzag] h";

// Two sequences of 8 and 4 tokens.
at::Tensor tokens() {
  return at::arange(24, at::kFloat).reshape({12, 2});
}

class SequenceLengthsTest : public testing::Test {
 protected:
  SequenceLengthsTest() {
    baseline_.add("h", tokens(), {.dims = "t h"});
    for (int rank : {0, 1}) {
      // The rank's pieces by hand: of each sequence the piece `rank` of four from the front and from the back.
      const at::Tensor parts = rank == 0 ? at::tensor({0, 1, 6, 7, 8, 11}) : at::tensor({2, 3, 4, 5, 9, 10});
      target_.add("h", tokens().index_select(0, parts), {.rank = rank, .dims = kDims, .place = {{"cp", rank, 2}}});
    }
  }

  PairReport pair() {
    const CompareReport report = compare_runs(baseline_, target_);
    for (const PairReport& one : report.pairs) {
      if (one.name == "h") return one;
    }
    ADD_FAILURE() << "there is no pair h";
    return {};
  }

  RunFolder baseline_;
  RunFolder target_;
};

TEST_F(SequenceLengthsTest, EachSequenceIsTurnedByItself) {
  for (int rank : {0, 1}) target_.add("seq_lens", at::tensor({8, 4}), {.rank = rank});
  EXPECT_EQ(pair().verdict, Verdict::same_bits) << pair().reason;
}

TEST_F(SequenceLengthsTest, StartsAndEndsDoAsWell) {
  target_.add("seq_lens", at::tensor({4, 8}), {.rank = 0});  // not asked where there are starts
  target_.add("cu_seqlens_q", at::tensor({0, 8, 12}).to(at::kInt), {.rank = 0});
  EXPECT_EQ(pair().verdict, Verdict::same_bits) << pair().reason;
}

TEST_F(SequenceLengthsTest, LengthsAreOfTheSameStepAndCountWhateverWhereLetsThrough) {
  target_.add("seq_lens", at::tensor({4, 8}), {.rank = 0, .step = 1});
  target_.add("seq_lens", at::tensor({8, 4}), {.rank = 0});
  const auto chosen = [](CompareOptions& options) { options.where = "name == 'h'"; };
  const CompareReport report = compare_runs(baseline_, target_, chosen);
  ASSERT_EQ(report.pairs.size(), 1U);
  EXPECT_EQ(report.pairs[0].verdict, Verdict::same_bits) << report.pairs[0].reason;
}

TEST_F(SequenceLengthsTest, WithoutLengthsItSaysWhatToDump) {
  const PairReport missing = pair();
  EXPECT_EQ(missing.verdict, Verdict::skipped);
  EXPECT_TRUE(missing.is_fault);
  EXPECT_THAT(missing.reason, HasSubstr("dump them in the same step, as seq_lens or cu_seqlens_q"));
}

TEST_F(SequenceLengthsTest, LengthsThatContradictEachOtherOrAreNoneAreFaults) {
  target_.add("seq_lens", at::tensor({8, 4}), {.rank = 0});
  target_.add("seq_lens", at::tensor({4, 8}), {.rank = 0});
  EXPECT_THAT(pair().reason, HasSubstr("tell different lengths of the packed sequences of step 0: [8, 4] and [4, 8]"));
  target_.add("cu_seqlens_q", at::tensor({0.0, 8.0, 12.0}), {.rank = 0});
  EXPECT_THAT(pair().reason, HasSubstr("is no list of integers"));
}

TEST(NeedsSequenceLengthsTest, OnlyForPackedTokensInZigzagOrderOfSeveralRanks) {
  ParallelState place;
  place.set("cp", 1, 2);
  EXPECT_TRUE(compare::needs_sequence_lengths(Dims::parse(kDims), place));
  EXPECT_FALSE(compare::needs_sequence_lengths(Dims::parse("t[cp] h"), place));
  EXPECT_FALSE(compare::needs_sequence_lengths(Dims::parse("s[cp:zigzag] h"), place));
  EXPECT_FALSE(compare::needs_sequence_lengths(Dims::parse(kDims), {}));
  place.set("cp", 0, 1);
  EXPECT_FALSE(compare::needs_sequence_lengths(Dims::parse(kDims), place));
}

}  // namespace
}  // namespace dbg
