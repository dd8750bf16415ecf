// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The facts of comparing two folders: values, dtypes, shapes, partners, files.
#include "dbg/compare.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "compare/run_folder.h"
#include "dbg/error.h"
#include "support/special_numbers.h"

namespace dbg {
namespace {

using test::compare_runs;
using test::RecordOf;
using test::RunFolder;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

using test::kInf;
using test::kNan;

at::Tensor ramp(std::vector<std::int64_t> shape) {
  std::int64_t elements = 1;
  for (const std::int64_t size : shape) elements *= size;
  return at::arange(1, elements + 1, at::kFloat).reshape(shape);
}

// The one pair of two records that hold these.
PairReport compare_values(const c10::IValue& a, const c10::IValue& b) {
  RunFolder baseline;
  RunFolder target;
  baseline.add("x", a);
  target.add("x", b);
  CompareReport report = compare_runs(baseline, target);
  EXPECT_EQ(report.pairs.size(), 1U);
  return report.pairs.at(0);
}

TEST(CompareFoldersTest, IdenticalFoldersAreTheSameBits) {
  RunFolder baseline;
  RunFolder target;
  for (int layer = 0; layer < 3; ++layer) {
    for (RunFolder* folder : {&baseline, &target}) folder->add("attn", ramp({2, 3}), {.tags = {{"layer_id", layer}}});
  }
  const CompareReport report = compare_runs(baseline, target);
  EXPECT_EQ(report.exit_code(), 0);
  EXPECT_EQ(report.count(Verdict::same_bits), 3U);
  EXPECT_FALSE(report.divergence.first_bits || report.divergence.first_beyond || report.divergence.first_jump);
}

TEST(CompareFoldersTest, OneFlippedBitIsFoundAtItsPlace) {
  at::Tensor other = ramp({64, 96});
  reinterpret_cast<std::uint32_t*>(other.mutable_data_ptr<float>())[37 * 96 + 11] ^= 1;
  const PairReport pair = compare_values(ramp({64, 96}), other);
  EXPECT_EQ(pair.verdict, Verdict::passed);
  EXPECT_EQ(pair.difference.differing, 1);
  EXPECT_THAT(pair.difference.max_at, ElementsAre(37, 11));
  EXPECT_THAT(pair.difference.first_bits_at, ElementsAre(37, 11));
}

TEST(CompareFoldersTest, NanAtEqualPlacesIsEqual) {
  const at::Tensor value = at::tensor({1.0, kNan, 3.0});
  EXPECT_EQ(compare_values(value, value.clone()).verdict, Verdict::same_bits);
  const PairReport pair = compare_values(value, at::tensor({1.0, kNan, 3.0 + 1e-12}));
  EXPECT_EQ(pair.verdict, Verdict::passed);
  EXPECT_EQ(pair.difference.nan_in_both, 1);
}

TEST(CompareFoldersTest, NanAtOtherPlacesFailsAndIsSaidFirst) {
  const PairReport pair = compare_values(at::tensor({1.0, kNan, 3.0}), at::tensor({1.0, 2.0, kNan}));
  EXPECT_EQ(pair.verdict, Verdict::failed);
  EXPECT_THAT(pair.reason, HasSubstr("NaN on one side only: 1 in the baseline, 1 in the target"));
  EXPECT_THAT(pair.difference.max_at, ElementsAre(1));
}

TEST(CompareFoldersTest, InfinitiesAreEqualOnlyToThemselves) {
  EXPECT_EQ(compare_values(at::tensor({kInf, -kInf}), at::tensor({kInf, -kInf})).verdict, Verdict::same_bits);
  const PairReport pair = compare_values(at::tensor({kInf, 1.0}), at::tensor({-kInf, 1.0}));
  EXPECT_EQ(pair.verdict, Verdict::failed);
  EXPECT_EQ(pair.difference.inf_unequal, 1);
  EXPECT_EQ(compare_values(at::tensor({kInf, 1.0}), at::tensor({1e300, 1.0})).verdict, Verdict::failed);
}

TEST(CompareFoldersTest, AnInfinityAloneIsTheFirstBadPlace) {
  RunFolder baseline;
  RunFolder target;
  for (int layer = 0; layer < 4; ++layer) {
    at::Tensor other = ramp({8, 16});
    if (layer == 1) other[0][0] = 1.0000001F;
    if (layer == 2) {
      other[2][3] = 1e4F;  // earlier and large, but finite
      other[5][7] = kInf;
      other[6][0] = -kInf;
    }
    if (layer == 3) other[0][1] = -kInf;
    baseline.add("attn", ramp({8, 16}), {.tags = {{"layer_id", layer}}});
    target.add("attn", other, {.tags = {{"layer_id", layer}}});
  }
  const CompareReport report = compare_runs(baseline, target);
  EXPECT_EQ(report.exit_code(), 1);
  const PairReport& pair = report.pairs.at(2);
  EXPECT_EQ(pair.verdict, Verdict::failed);
  EXPECT_EQ(pair.reason, "beyond rel <= 1e-10; unequal infinities: 2");
  EXPECT_EQ(pair.difference.inf_unequal, 2);
  EXPECT_EQ(pair.difference.nan_in_both + pair.difference.nan_only_in_a + pair.difference.nan_only_in_b, 0);
  EXPECT_THAT(pair.difference.max_at, ElementsAre(5, 7));
  EXPECT_EQ(pair.difference.a_at_max, "88");
  EXPECT_EQ(pair.difference.b_at_max, "inf");
  EXPECT_EQ(pair.difference.rel_diff, kInf);
  EXPECT_EQ(pair.target_percentiles->back(), kInf);
  EXPECT_DOUBLE_EQ(pair.outside_fraction, 3.0 / 128);
  const Divergence& found = report.divergence;
  ASSERT_TRUE(found.first_bits && found.first_beyond && found.first_jump);
  EXPECT_EQ(found.first_bits->pair, 1U);
  EXPECT_EQ(found.first_beyond->pair, 2U);
  EXPECT_EQ(found.first_beyond->last_good, 1U);
  EXPECT_EQ(found.first_jump->pair, 2U);
  EXPECT_EQ(found.first_jump->last_good, 1U);
  EXPECT_EQ(report.pairs.at(3).difference.b_at_max, "-inf");
  // No tolerance lets it pass, and from the baseline's side it is no better.
  const auto loose = [](CompareOptions& options) { options.rules = {".*: rel <= 1e300 or max_abs <= 1e300"}; };
  EXPECT_EQ(compare_runs(baseline, target, loose).count(Verdict::failed), 2U);
  EXPECT_EQ(compare_runs(target, baseline).divergence.first_beyond->pair, 2U);
}

TEST(CompareFoldersTest, IntegersAreComparedExactly) {
  const std::int64_t edge = std::int64_t{1} << 53;
  const PairReport pair = compare_values(at::tensor({edge, edge}), at::tensor({edge, edge + 1}));
  EXPECT_EQ(pair.verdict, Verdict::failed);
  EXPECT_EQ(pair.difference.differing, 1);
  EXPECT_EQ(pair.difference.b_at_max, "9007199254740993");
  const at::Tensor flags = at::tensor({1, 0}).to(at::kBool);
  EXPECT_EQ(compare_values(flags, at::ones({2}, at::kBool)).verdict, Verdict::failed);
}

TEST(CompareFoldersTest, ComplexNumbersKeepTheirImaginaryPart) {
  const at::Tensor a = at::complex(at::tensor({1.0F, 2.0F}), at::tensor({3.0F, 4.0F}));
  const at::Tensor b = at::complex(at::tensor({1.0F, 2.0F}), at::tensor({3.0F, 5.0F}));
  const PairReport pair = compare_values(a, b);
  EXPECT_EQ(pair.verdict, Verdict::failed);
  EXPECT_DOUBLE_EQ(pair.difference.max_abs, 1.0);
  EXPECT_THAT(pair.difference.max_at, ElementsAre(1));
}

TEST(CompareFoldersTest, OtherDtypesAreComparedAsTheyAreAndCast) {
  const at::Tensor exact = at::tensor({1.0F, 1.001F, 3.0F});
  const PairReport pair = compare_values(exact, exact.to(at::kBFloat16));
  EXPECT_EQ(pair.verdict, Verdict::passed) << pair.reason;
  EXPECT_EQ(pair.difference.differing, 1);
  ASSERT_TRUE(pair.cast);
  EXPECT_EQ(pair.cast->dtype, "bfloat16");
  EXPECT_EQ(pair.cast->differing, 0);
  EXPECT_THAT(pair.tolerance, HasSubstr("rel <= 1e-3"));
}

TEST(CompareFoldersTest, SmallFloatsAreComparedByValue) {
  const at::Tensor a = at::tensor({1.0F, 2.0F, 0.5F}).to(at::kFloat8_e4m3fn);
  const at::Tensor b = at::tensor({1.0F, 4.0F, 0.5F}).to(at::kFloat8_e4m3fn);
  EXPECT_EQ(compare_values(a, a.clone()).verdict, Verdict::same_bits);
  const PairReport pair = compare_values(a, b);
  EXPECT_EQ(pair.verdict, Verdict::failed);
  EXPECT_DOUBLE_EQ(pair.difference.max_abs, 2.0);
}

TEST(CompareFoldersTest, DtypesOfOneWidthAreCastBothWays) {
  const at::Tensor exact = at::tensor({1.0F, 1.5F, 6.0F});
  const PairReport pair = compare_values(exact.to(at::kFloat8_e4m3fn), exact.to(at::kFloat8_e5m2));
  EXPECT_EQ(pair.verdict, Verdict::passed) << pair.reason;
  EXPECT_EQ(pair.difference.differing, 0);
  EXPECT_EQ(pair.cast->dtype, "float8_e5m2");
  EXPECT_EQ(pair.reason, "equal values in other bits");
}

TEST(CompareFoldersTest, EmptyAndSingleTensorsCompare) {
  EXPECT_EQ(compare_values(at::empty({0, 4}), at::empty({0, 4})).verdict, Verdict::same_bits);
  EXPECT_EQ(compare_values(at::scalar_tensor(2.0), at::scalar_tensor(2.0)).verdict, Verdict::same_bits);
  const PairReport pair = compare_values(at::scalar_tensor(2.0), at::scalar_tensor(3.0));
  EXPECT_EQ(pair.verdict, Verdict::failed);
  EXPECT_THAT(pair.difference.max_at, IsEmpty());
  EXPECT_EQ(pair.difference.a_at_max, "2");
}

TEST(CompareFoldersTest, OtherShapesFailWithBothShapes) {
  const PairReport pair = compare_values(ramp({2, 3}), ramp({3, 2}));
  EXPECT_EQ(pair.verdict, Verdict::failed);
  EXPECT_THAT(pair.reason, HasSubstr("[2, 3] against [3, 2]"));
  EXPECT_FALSE(pair.is_fault);
}

TEST(CompareFoldersTest, LeadingOnesAreDropped) {
  const PairReport pair = compare_values(ramp({1, 2, 3}), ramp({2, 3}));
  EXPECT_EQ(pair.verdict, Verdict::same_bits) << pair.reason;
  EXPECT_THAT(pair.note, HasSubstr("leading dimensions of 1 dropped"));
}

TEST(CompareFoldersTest, DimensionsInAnotherOrderAreBroughtIntoTheBaselines) {
  RunFolder baseline;
  RunFolder target;
  const at::Tensor value = ramp({2, 3, 4});
  at::Tensor other = value.clone();
  other[1][2][3] = -1;
  baseline.add("x", value, {.dims = "b s h"});
  target.add("x", other.permute({1, 2, 0}).contiguous(), {.dims = "s h b"});
  const PairReport pair = compare_runs(baseline, target).pairs.at(0);
  EXPECT_EQ(pair.difference.differing, 1);
  EXPECT_THAT(pair.difference.max_at, ElementsAre(1, 2, 3));
  EXPECT_THAT(pair.note, HasSubstr("aligned by dims: [2, 3, 4] and [3, 4, 2] as [2, 3, 4]"));
}

TEST(CompareFoldersTest, OtherValuesAreEqualOrNot) {
  EXPECT_EQ(compare_values("text", "text").verdict, Verdict::same_bits);
  const PairReport pair = compare_values(std::int64_t{3}, std::int64_t{4});
  EXPECT_EQ(pair.verdict, Verdict::failed);
  EXPECT_EQ(pair.reason, "3 against 4");
  EXPECT_EQ(compare_values(c10::IValue(), std::int64_t{4}).verdict, Verdict::failed);
  EXPECT_EQ(compare_values(kNan, kNan).verdict, Verdict::same_bits);
}

TEST(CompareFoldersTest, ContainersAreComparedPartByPart) {
  RunFolder baseline;
  RunFolder target;
  c10::impl::GenericDict a(c10::StringType::get(), c10::AnyType::get());
  a.insert("k", ramp({2}));
  a.insert("only", 1);
  c10::impl::GenericDict b(c10::StringType::get(), c10::AnyType::get());
  b.insert("k", ramp({2}) * 2);
  baseline.add("x", c10::IValue(a));
  target.add("x", c10::IValue(b));
  const CompareReport report = compare_runs(baseline, target);
  ASSERT_THAT(report.pairs, SizeIs(2));
  EXPECT_EQ(report.pairs[0].part, "['k']");
  EXPECT_EQ(report.pairs[0].verdict, Verdict::failed);
  EXPECT_EQ(report.pairs[1].part, "['only']");
  EXPECT_EQ(report.pairs[1].reason, "the target's value has no such part");
}

TEST(CompareFoldersTest, RecordsWithoutAPartnerAreReportedWithTheNearestName) {
  RunFolder baseline;
  RunFolder target;
  for (RunFolder* folder : {&baseline, &target}) folder->add("same", ramp({2}));
  baseline.add("attn_out", ramp({2}));
  target.add("attn_outt", ramp({2}));
  const CompareReport report = compare_runs(baseline, target);
  ASSERT_THAT(report.unpaired, SizeIs(2));
  EXPECT_EQ(report.unpaired[0].side, "baseline");
  EXPECT_EQ(report.unpaired[0].nearest_name, "attn_outt");
  EXPECT_EQ(report.exit_code(), 1);
  const auto allowed = [](CompareOptions& options) { options.unpaired_fails = false; };
  EXPECT_EQ(compare_runs(baseline, target, allowed).exit_code(), 0);
}

TEST(CompareFoldersTest, NothingPairedCanNotBeCompared) {
  RunFolder baseline;
  RunFolder target;
  baseline.add("a", ramp({2}));
  target.add("b", ramp({2}));
  EXPECT_EQ(compare_runs(baseline, target).exit_code(), 2);
}

TEST(CompareFoldersTest, DuplicateNamesPairByOrder) {
  RunFolder baseline;
  RunFolder target;
  for (const double value : {1.0, 2.0, 3.0}) baseline.add("x", at::scalar_tensor(value));
  for (const double value : {1.0, 2.5, 3.0}) target.add("x", at::scalar_tensor(value));
  const CompareReport report = compare_runs(baseline, target);
  ASSERT_THAT(report.pairs, SizeIs(3));
  EXPECT_EQ(report.pairs[0].verdict, Verdict::same_bits);
  EXPECT_EQ(report.pairs[1].verdict, Verdict::failed);
  EXPECT_EQ(report.pairs[2].verdict, Verdict::same_bits);
}

TEST(CompareFoldersTest, AMapJoinsTwoEnginesNames) {
  RunFolder baseline;
  RunFolder target;
  baseline.add("layers.3.attn", ramp({2}));
  target.add("blocks.3.attention", ramp({2}));
  const auto mapped = [](CompareOptions& options) {
    options.name_maps = {R"(blocks\.(\d+)\.attention => layers.\1.attn)"};
  };
  const CompareReport report = compare_runs(baseline, target, mapped);
  EXPECT_EQ(report.exit_code(), 0);
  EXPECT_EQ(report.pairs.at(0).target_name, "blocks.3.attention");
}

TEST(CompareFoldersTest, MapsTagsAndTolerancesOfARulesFileCount) {
  RunFolder baseline;
  RunFolder target;
  baseline.add("attn", ramp({2}), {.tags = {{"phase", 1}}});
  target.add("attention", ramp({2}) * 1.01, {.tags = {{"phase", 2}}});
  test::TempFolder folder;
  std::ofstream(folder / "rules") << "map attention => attn\nignore-tag phase\nrule attn: rel <= 1\n";
  const auto ruled = [&](CompareOptions& options) { options.rules_file = (folder / "rules").string(); };
  EXPECT_EQ(compare_runs(baseline, target, ruled).exit_code(), 0);
  // The command line's rules come first.
  const auto strict = [&](CompareOptions& options) {
    ruled(options);
    options.rules = {"attn: rel <= 1e-9"};
  };
  EXPECT_EQ(compare_runs(baseline, target, strict).exit_code(), 1);
}

TEST(CompareFoldersTest, TagsOfOneSideOnlyDoNotKeepPairsApart) {
  RunFolder baseline;
  RunFolder target;
  for (int layer = 0; layer < 2; ++layer) {
    baseline.add("x", ramp({2}) * (layer + 1), {.tags = {{"layer_id", layer}}});
    target.add("x", ramp({2}) * (layer + 1), {.tags = {{"layer_id", layer}, {"phase", 7}}});
  }
  const CompareReport report = compare_runs(baseline, target);
  EXPECT_EQ(report.count(Verdict::same_bits), 2U);
  EXPECT_EQ(report.pairs.at(1).tags, "layer_id=1");
}

TEST(CompareFoldersTest, TagsAndStepsCanBeSetAside) {
  RunFolder baseline;
  RunFolder target;
  baseline.add("x", ramp({2}), {.step = 5, .tags = {{"phase", 1}}});
  target.add("x", ramp({2}), {.step = 0, .tags = {{"phase", 2}}});
  EXPECT_EQ(compare_runs(baseline, target).exit_code(), 2);
  const auto loose = [](CompareOptions& options) {
    options.ignored_tags = {"phase"};
    options.step_offset = 5;
  };
  EXPECT_EQ(compare_runs(baseline, target, loose).exit_code(), 0);
}

TEST(CompareFoldersTest, WhereChoosesRecordsOfBothSides) {
  RunFolder baseline;
  RunFolder target;
  for (int layer = 0; layer < 4; ++layer) {
    baseline.add("x", ramp({2}), {.tags = {{"layer_id", layer}}});
    target.add("x", ramp({2}) + layer, {.tags = {{"layer_id", layer}}});
  }
  const auto chosen = [](CompareOptions& options) { options.where = "layer_id < 1"; };
  const CompareReport report = compare_runs(baseline, target, chosen);
  EXPECT_THAT(report.pairs, SizeIs(1));
  EXPECT_EQ(report.exit_code(), 0);
}

TEST(CompareFoldersTest, ARuleSetsTheToleranceOfItsNames) {
  RunFolder baseline;
  RunFolder target;
  for (const char* name : {"attn", "mlp"}) {
    baseline.add(name, ramp({8}));
    target.add(name, ramp({8}) * 1.01);
  }
  const auto ruled = [](CompareOptions& options) { options.rules = {"^attn: rel <= 1e-3"}; };
  const CompareReport report = compare_runs(baseline, target, ruled);
  EXPECT_EQ(report.pairs.at(0).verdict, Verdict::passed);
  EXPECT_EQ(report.pairs.at(1).verdict, Verdict::failed);
}

TEST(CompareFoldersTest, CutAndGarbageRecordsAreLinesAndNotTheEnd) {
  RunFolder baseline;
  RunFolder target;
  std::vector<std::string> files;
  for (const char* name : {"cut", "garbage", "whole"}) {
    baseline.add(name, ramp({64}));
    files.push_back(target.add(name, ramp({64})));
  }
  std::filesystem::resize_file(files[0], std::filesystem::file_size(files[0]) / 2);
  std::ofstream(files[1], std::ios::trunc) << "no record at all";
  const CompareReport report = compare_runs(baseline, target);
  EXPECT_EQ(report.exit_code(), 2);
  ASSERT_THAT(report.unreadable, SizeIs(2));
  EXPECT_THAT(report.unreadable[0].cause, HasSubstr("name=cut"));
  EXPECT_EQ(report.count(Verdict::same_bits), 1U);
  EXPECT_EQ(report.count(Verdict::skipped), 2U);
}

TEST(CompareFoldersTest, FoldersWithoutRecordsAreRefusedInWords) {
  RunFolder baseline;
  RunFolder empty;
  baseline.add("x", ramp({2}));
  const auto message = [&](const std::string& target) {
    CompareOptions options;
    options.baseline = baseline.path();
    options.target = target;
    try {
      compare_folders(options);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(message(empty.path()), HasSubstr("holds no records"));
  EXPECT_THAT(message(empty.path() + "/not-there"), HasSubstr("No such file"));
  EXPECT_THAT(message(baseline.add("y", ramp({2}))), HasSubstr("is a file; name the folder it lies in"));
}

TEST(CompareFoldersTest, TheOnlyFolderWithRecordsStandsForTheOneAroundIt) {
  RunFolder baseline;
  baseline.add("x", ramp({2}));
  test::TempFolder outer;
  std::filesystem::create_directory_symlink(baseline.path(), outer / "exp");
  CompareOptions options;
  options.baseline = baseline.path();
  options.target = outer.path().string();
  const CompareReport report = compare_folders(options);
  EXPECT_EQ(report.exit_code(), 0);
  EXPECT_THAT(report.notes, ElementsAre(HasSubstr("taken is")));
}

TEST(CompareFoldersTest, TwoThousandRecordsOfTwoRanksKeepTheirOrder) {
  RunFolder baseline;
  RunFolder target;
  constexpr int kPairs = 500;
  for (int at = 0; at < kPairs; ++at) {
    for (int rank : {0, 1}) {
      const RecordOf how{.rank = rank, .tags = {{"layer_id", at}}, .dims = "h[tp]", .place = {{"tp", rank, 2}}};
      const at::Tensor value = at::full({4}, 2 * at + rank, at::kInt);
      baseline.add("x", value, how);
      target.add("x", at == 313 && rank == 1 ? value + 1 : value, how);
    }
  }
  std::size_t told = 0;
  const auto watched = [&told](CompareOptions& options) {
    options.on_progress = [&told](std::size_t done, std::size_t) { told = done; };
  };
  const CompareReport report = compare_runs(baseline, target, watched);
  EXPECT_EQ(report.baseline_records + report.target_records, 4U * kPairs);
  ASSERT_THAT(report.pairs, SizeIs(kPairs));
  for (std::size_t at = 0; at < kPairs; ++at) EXPECT_EQ(report.pairs[at].tags, "layer_id=" + std::to_string(at));
  EXPECT_EQ(report.count(Verdict::same_bits), kPairs - 1U);
  EXPECT_EQ(report.divergence.first_beyond->pair, 313U);
  EXPECT_THAT(report.pairs[313].difference.max_at, ElementsAre(4));
  EXPECT_EQ(told, kPairs);
}

TEST(CompareFoldersTest, ALargeRecordIsReadInPiecesAndStillExact) {
  RunFolder baseline;
  RunFolder target;
  const std::int64_t elements = (std::int64_t{80} << 20) / 4;
  at::Tensor value = at::zeros({elements}, at::kFloat);
  baseline.add("x", value);
  value[elements - 3] = 1.0F;
  target.add("x", value);
  const CompareReport report = compare_runs(baseline, target);
  ASSERT_EQ(report.pairs.at(0).verdict, Verdict::failed) << report.pairs.at(0).reason;
  EXPECT_THAT(report.pairs[0].difference.max_at, ElementsAre(elements - 3));
  EXPECT_DOUBLE_EQ(report.pairs[0].target_percentiles->back(), 1.0);
}

TEST(CompareFoldersTest, DamageInALargeRecordIsFound) {
  RunFolder baseline;
  RunFolder target;
  const at::Tensor value = at::zeros({(std::int64_t{70} << 20) / 4}, at::kFloat);
  baseline.add("x", value);
  const std::string file = target.add("x", value);
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(std::int64_t{50} << 20);
  stream.put('\x01');
  stream.close();
  const CompareReport report = compare_runs(baseline, target);
  EXPECT_EQ(report.exit_code(), 2);
  EXPECT_THAT(report.pairs.at(0).reason, HasSubstr("checksum"));
}

}  // namespace
}  // namespace dbg
