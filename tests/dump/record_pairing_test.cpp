// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Which records belong together, and what is said of those that belong to none.
#include "dump/record_pairing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/formatted.h"
#include "dbg/error.h"

namespace dbg {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

RecordDescriptor record(const std::string& name, std::int64_t step, std::int64_t dump_index, TagList tags = {},
                        int rank = 0) {
  return {name, step, rank, dump_index, Tags(tags)};
}

// Pairs as text, so that a failure can be read: positions of the baseline's bundle, then the target's.
std::vector<std::string> pairs_of(const Pairing& pairing) {
  std::vector<std::string> texts;
  for (const RecordPair& pair : pairing.pairs) {
    std::string text;
    for (const std::size_t at : pair.baseline) text += formatted("{} ", at);
    text += "|";
    for (const std::size_t at : pair.target) text += formatted(" {}", at);
    texts.push_back(text);
  }
  return texts;
}

TEST(RecordPairingTest, EqualNameAndStepPairInTheBaselinesOrder) {
  const Pairing pairing = pair_records({record("b", 1, 9), record("a", 0, 2), record("c", 0, 1), record("a", 1, 8)},
                                       {record("a", 0, 1), record("a", 1, 3), record("b", 1, 4), record("c", 0, 2)});
  EXPECT_THAT(pairs_of(pairing), ElementsAre("2 | 3", "1 | 0", "3 | 1", "0 | 2"));
  EXPECT_THAT(pairing.baseline_only, IsEmpty());
  EXPECT_THAT(pairing.target_only, IsEmpty());
}

TEST(RecordPairingTest, NothingAgainstNothingOrSomething) {
  EXPECT_THAT(pair_records({}, {}).pairs, IsEmpty());
  const Pairing pairing = pair_records({record("a", 0, 1)}, {});
  ASSERT_EQ(pairing.baseline_only.size(), 1U);
  EXPECT_EQ(pairing.baseline_only[0].nearest_name, "");
}

TEST(RecordPairingTest, OfEqualRecordsTheNthGoesWithTheNth) {
  const Pairing pairing = pair_records({record("x", 0, 30), record("x", 0, 10), record("x", 0, 20)},
                                       {record("x", 0, 5), record("x", 0, 100), record("x", 0, 7)});
  EXPECT_THAT(pairs_of(pairing), ElementsAre("1 | 0", "2 | 2", "0 | 1"));
}

TEST(RecordPairingTest, TagsOfBothSidesMustBeEqual) {
  const Pairing pairing = pair_records({record("x", 0, 1, {{"layer_id", 0}}), record("x", 0, 2, {{"layer_id", 1}})},
                                       {record("x", 0, 1, {{"layer_id", 1}}), record("x", 0, 2, {{"layer_id", 0}})});
  EXPECT_THAT(pairs_of(pairing), ElementsAre("0 | 1", "1 | 0"));
}

TEST(RecordPairingTest, TagsAreComparedByWhatTheyPrintAs) {
  // One side from file names, where all is text, the other from meta.
  const Pairing pairing = pair_records({record("x", 0, 1, {{"layer_id", "3"}, {"on", "True"}, {"no", "None"}})},
                                       {record("x", 0, 1, {{"on", true}, {"no", nullptr}, {"layer_id", 3}})});
  EXPECT_EQ(pairing.pairs.size(), 1U);
}

TEST(RecordPairingTest, ATagOfOneSideOnlyDoesNotCount) {
  const std::vector<RecordDescriptor> plain = {record("x", 0, 1, {{"layer_id", 0}}),
                                               record("x", 0, 2, {{"layer_id", 0}})};
  const std::vector<RecordDescriptor> tagged = {record("x", 0, 1, {{"layer_id", 0}, {"request", "a"}}),
                                                record("x", 0, 2, {{"layer_id", 0}, {"request", "b"}})};
  EXPECT_THAT(pairs_of(pair_records(plain, tagged)), ElementsAre("0 | 0", "1 | 1"));
  EXPECT_THAT(pairs_of(pair_records(tagged, plain)), ElementsAre("0 | 0", "1 | 1"));
}

TEST(RecordPairingTest, ARecordWithoutATagThatCountsPairsWithOneWithoutIt) {
  const Pairing pairing = pair_records({record("x", 0, 1, {{"layer_id", 0}}), record("x", 0, 2)},
                                       {record("x", 0, 1), record("x", 0, 2, {{"layer_id", 0}})});
  EXPECT_THAT(pairs_of(pairing), ElementsAre("0 | 1", "1 | 0"));
}

TEST(RecordPairingTest, IgnoredTagsDoNotCount) {
  const std::vector<RecordDescriptor> baseline = {record("x", 0, 1, {{"phase", "a"}, {"layer_id", 0}})};
  const std::vector<RecordDescriptor> target = {record("x", 0, 1, {{"phase", "b"}, {"layer_id", 0}})};
  EXPECT_THAT(pair_records(baseline, target).pairs, IsEmpty());
  PairingOptions options;
  options.ignored_tags = {"phase"};
  EXPECT_EQ(pair_records(baseline, target, options).pairs.size(), 1U);
}

TEST(RecordPairingTest, ASteppedTargetIsShifted) {
  PairingOptions options;
  options.step_offset = 10;
  const Pairing pairing = pair_records({record("x", 11, 1), record("x", 1, 2)}, {record("x", 1, 1)}, options);
  EXPECT_THAT(pairs_of(pairing), ElementsAre("0 | 0"));
  EXPECT_EQ(pairing.baseline_only.size(), 1U);
}

TEST(RecordPairingTest, NameRulesMakeTheTargetsNamesTheBaselines) {
  PairingOptions options;
  options.name_rules.push_back(NameRule::parse(R"(^blk\.(\d+)\.(\w+)$ => model.layers.\1.\2)"));
  options.name_rules.push_back(NameRule::parse(R"(blk=>never: the first rule that is found wins)"));
  options.name_rules.push_back(NameRule::parse("^emb$ => embeddings"));
  const Pairing pairing = pair_records({record("model.layers.3.attn", 0, 1), record("embeddings", 0, 2)},
                                       {record("emb", 0, 1), record("blk.3.attn", 0, 2)}, options);
  EXPECT_THAT(pairs_of(pairing), ElementsAre("0 | 1", "1 | 0"));
}

TEST(RecordPairingTest, AWrongNameRuleIsRefused) {
  EXPECT_THROW(NameRule::parse("no arrow"), ConfigError);
  EXPECT_THROW(NameRule::parse(" => x"), ConfigError);
  EXPECT_THROW(NameRule::parse("a(b => x"), ConfigError);
  EXPECT_THROW(NameRule::parse(R"(a(b) => \2)"), ConfigError);
  EXPECT_THROW(NameRule::parse(R"((?=a) => x)"), ConfigError);
  std::string name = "layer";
  EXPECT_TRUE(NameRule::parse("y =>").apply(name));
  EXPECT_EQ(name, "laer");
}

TEST(RecordPairingTest, RanksOfOneRecordAreOneBundle) {
  const Pairing pairing =
      pair_records({record("x", 0, 1)}, {record("x", 0, 4, {}, 1), record("x", 0, 3, {}, 0), record("x", 0, 7, {}, 2)});
  EXPECT_THAT(pairs_of(pairing), ElementsAre("0 | 1 0 2"));
}

TEST(RecordPairingTest, EachRankCountsItsOwnRepetitions) {
  // Rank 1 dumped something else in between, so its indices are others.
  const std::vector<RecordDescriptor> two_ranks = {record("x", 0, 1, {}, 0), record("x", 0, 2, {}, 0),
                                                   record("x", 0, 5, {}, 1), record("x", 0, 9, {}, 1)};
  const Pairing pairing = pair_records({record("x", 0, 1), record("x", 0, 2)}, two_ranks);
  EXPECT_THAT(pairs_of(pairing), ElementsAre("0 | 0 2", "1 | 1 3"));
}

TEST(RecordPairingTest, TagsOfParallelRanksAreLeftOut) {
  // As file names have them with include_parallel_rank_in_filename; on both sides, and on one.
  const std::vector<RecordDescriptor> tagged = {
      record("x", 0, 1, {{"pp_rank", 0}, {"tp_rank", 0}, {"cp_rank", 0}, {"ep_rank", 1}, {"etp_rank", 0}}, 0),
      record("x", 0, 1, {{"pp_rank", 1}, {"tp_rank", 1}, {"cp_rank", 1}, {"ep_rank", 0}, {"etp_rank", 1}}, 1)};
  const std::vector<RecordDescriptor> other = {record("x", 0, 1, {{"pp_rank", 3}, {"tp_rank", 2}})};
  EXPECT_THAT(pairs_of(pair_records(other, tagged)), ElementsAre("0 | 0 1"));
  EXPECT_THAT(pairs_of(pair_records(tagged, tagged)), ElementsAre("0 1 | 0 1"));
  EXPECT_THAT(pairs_of(pair_records(tagged, {record("x", 0, 1)})), ElementsAre("0 1 | 0"));
}

TEST(RecordPairingTest, ABundleTagTellsMembersApart) {
  const std::vector<RecordDescriptor> twice = {record("x", 0, 1, {{"recompute_status", "original"}}),
                                               record("x", 0, 5, {{"recompute_status", "recompute"}})};
  const std::vector<RecordDescriptor> once = {record("x", 0, 1, {{"recompute_status", "disabled"}})};
  EXPECT_THAT(pair_records(once, twice).pairs, IsEmpty());
  PairingOptions options;
  options.bundle_tags.push_back("recompute_status");
  EXPECT_THAT(pairs_of(pair_records(once, twice, options)), ElementsAre("0 | 0 1"));
}

TEST(RecordPairingTest, TheUnpairedAreListedWithTheReasonAndTheNearestName) {
  const Pairing pairing =
      pair_records({record("attn_out", 0, 1, {{"layer_id", 0}}), record("mlp_out", 0, 2, {{"layer_id", 0}}),
                    record("norm", 1, 3), record("q", 0, 4), record("q", 0, 5)},
                   {record("attn_out", 0, 1, {{"layer_id", 7}}), record("mlp_outs", 0, 2, {{"layer_id", 0}}),
                    record("norm", 0, 3), record("q", 0, 4)});
  EXPECT_THAT(pairs_of(pairing), ElementsAre("3 | 3"));
  ASSERT_EQ(pairing.baseline_only.size(), 4U);
  EXPECT_THAT(pairing.baseline_only[0].records, ElementsAre(0));
  EXPECT_EQ(pairing.baseline_only[0].reason, "the target has this name in step 0, but not with layer_id=0");
  EXPECT_EQ(pairing.baseline_only[0].nearest_name, "attn_out");
  EXPECT_EQ(pairing.baseline_only[1].reason, "the target has no record of this name");
  EXPECT_EQ(pairing.baseline_only[1].nearest_name, "mlp_outs");
  EXPECT_EQ(pairing.baseline_only[2].reason, "the target has 1 of these in step 0, and this is number 2");
  EXPECT_THAT(pairing.baseline_only[2].records, ElementsAre(4));
  EXPECT_THAT(pairing.baseline_only[3].reason, HasSubstr("this name, but not in step 1"));
  ASSERT_EQ(pairing.target_only.size(), 3U);
  EXPECT_EQ(pairing.target_only[1].reason, "the baseline has no record of this name");
  EXPECT_EQ(pairing.target_only[1].nearest_name, "mlp_out");
}

TEST(RecordPairingTest, TheNearestNameIsTheOneItsSideUses) {
  PairingOptions options;
  options.name_rules.push_back(NameRule::parse("^blk => layers"));
  const Pairing pairing = pair_records({record("layers.0.q_proj", 0, 1)},
                                       {record("blk.0.q_prj", 0, 1), record("something_else", 0, 2)}, options);
  EXPECT_EQ(pairing.baseline_only.at(0).nearest_name, "blk.0.q_prj");
  EXPECT_EQ(pairing.target_only.at(0).nearest_name, "layers.0.q_proj");
}

// Against a plain second implementation: count, and look each record up.
TEST(RecordPairingTest, RandomRunsLoseNoRecord) {
  std::mt19937 random(77);
  const auto pick = [&random](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  for (int round = 0; round < 200; ++round) {
    const auto make_side = [&] {
      std::vector<RecordDescriptor> side;
      const int ranks = pick(1, 3);
      for (int rank = 0; rank < ranks; ++rank) {
        std::int64_t dump_index = 0;
        for (int i = pick(0, 30); i > 0; --i) {
          dump_index += pick(1, 3);
          side.push_back(record(std::string(1, static_cast<char>('a' + pick(0, 3))), pick(0, 1), dump_index,
                                {{"layer_id", pick(0, 2)}, {"tp_rank", rank}}, rank));
        }
      }
      std::shuffle(side.begin(), side.end(), random);
      return side;
    };
    const auto baseline = make_side();
    const auto target = make_side();
    const Pairing pairing = pair_records(baseline, target);

    // The number of a record among its rank's equal ones.
    using Place = std::tuple<std::string, std::int64_t, std::string, std::size_t>;
    const auto place = [](const std::vector<RecordDescriptor>& side, std::size_t at) {
      const auto layer = [](const RecordDescriptor& one) { return python_text(one.tags.find("layer_id")->view()); };
      std::size_t before = 0;
      for (const RecordDescriptor& other : side) {
        before += other.name == side[at].name && other.step == side[at].step && other.rank == side[at].rank &&
                  layer(other) == layer(side[at]) && other.dump_index < side[at].dump_index;
      }
      return Place(side[at].name, side[at].step, layer(side[at]), before);
    };
    std::map<Place, std::set<std::size_t>> places_of_baseline;
    std::map<Place, std::set<std::size_t>> places_of_target;
    for (std::size_t i = 0; i < baseline.size(); ++i) places_of_baseline[place(baseline, i)].insert(i);
    for (std::size_t i = 0; i < target.size(); ++i) places_of_target[place(target, i)].insert(i);

    const auto as_set = [](const RecordBundle& bundle) { return std::set<std::size_t>(bundle.begin(), bundle.end()); };
    for (const RecordPair& pair : pairing.pairs) {
      const Place here = place(baseline, pair.baseline.at(0));
      ASSERT_EQ(as_set(pair.baseline), places_of_baseline.at(here));
      ASSERT_EQ(as_set(pair.target), places_of_target.at(here));
      places_of_baseline.erase(here);
      places_of_target.erase(here);
    }
    for (const UnpairedBundle& one : pairing.baseline_only) {
      const Place here = place(baseline, one.records.at(0));
      ASSERT_EQ(as_set(one.records), places_of_baseline.at(here));
      ASSERT_EQ(places_of_target.count(here), 0U);
      places_of_baseline.erase(here);
    }
    for (const UnpairedBundle& one : pairing.target_only) {
      const Place here = place(target, one.records.at(0));
      ASSERT_EQ(as_set(one.records), places_of_target.at(here));
      places_of_target.erase(here);
    }
    ASSERT_TRUE(places_of_baseline.empty() && places_of_target.empty()) << "a record is in no list";
  }
}

}  // namespace
}  // namespace dbg
