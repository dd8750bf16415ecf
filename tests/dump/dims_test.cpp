// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The dims language: what it says, and where a wrong text is wrong.
#include "dbg/dims.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "dbg/error.h"

namespace dbg {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(DimsTest, TheHeadersExample) {
  const Dims dims = Dims::parse("b s[cp:zigzag,sp] (num_heads*head_dim)[tp] 1 # ep:replicated dp:=moe_dp");
  ASSERT_EQ(dims.dims().size(), 4U);
  EXPECT_EQ(dims.dims()[0], (Dim{{"b"}, {}}));
  EXPECT_EQ(dims.dims()[1], (Dim{{"s"}, {{"cp", true, false}, {"sp", false, false}}}));
  EXPECT_EQ(dims.dims()[2], (Dim{{"num_heads", "head_dim"}, {{"tp", false, false}}}));
  EXPECT_TRUE(dims.dims()[2].is_fused());
  EXPECT_TRUE(dims.dims()[3].is_squeeze());
  EXPECT_THAT(dims.replicated_axes(), ElementsAre("ep"));
  EXPECT_EQ(dims.dp_axis(), "moe_dp");
}

TEST(DimsTest, WithoutDeclarationsNothingIsReplicatedAndDpIsDp) {
  const Dims dims = Dims::parse("t h");
  EXPECT_THAT(dims.replicated_axes(), ElementsAre());
  EXPECT_EQ(dims.dp_axis(), "dp");
  EXPECT_EQ(Dims::parse("t h #"), dims);
  EXPECT_EQ(Dims::parse(" \tt\n h "), dims);
}

TEST(DimsTest, Qualifiers) {
  const auto shard = [](const std::string& text) { return Dims::parse("s[" + text + "]").dims()[0].shards.at(0); };
  EXPECT_EQ(shard("cp"), (DimShard{"cp", false, false}));
  EXPECT_EQ(shard("cp:"), (DimShard{"cp", false, false}));
  EXPECT_EQ(shard("cp:natural"), (DimShard{"cp", false, false}));
  EXPECT_EQ(shard("cp:zigzag"), (DimShard{"cp", true, false}));
  EXPECT_EQ(shard("cp:partial"), (DimShard{"cp", false, true}));
  EXPECT_EQ(shard("cp:sharded"), (DimShard{"cp", false, false}));
  EXPECT_EQ(shard("cp:sharded+sharded"), (DimShard{"cp", false, false}));
  EXPECT_EQ(shard("cp:zigzag+partial"), (DimShard{"cp", true, true}));
  EXPECT_EQ(shard("cp:+zigzag+"), (DimShard{"cp", true, false}));
}

TEST(DimsTest, EveryAxisIsKnown) {
  for (const char* axis : {"tp", "cp", "ep", "sp", "dp", "etp", "edp", "attn_tp", "attn_dp", "moe_ep", "moe_tp",
                           "moe_dp", "recompute_pseudo"}) {
    EXPECT_EQ(Dims::parse(std::string("h[") + axis + "]").dims()[0].shards[0].axis, axis);
  }
}

struct Wrong {
  const char* text;
  int column;
  const char* words;
};

void PrintTo(const Wrong& wrong, std::ostream* out) {
  *out << '"' << wrong.text << '"';
}

class WrongDimsTest : public testing::TestWithParam<Wrong> {};

TEST_P(WrongDimsTest, IsRefusedAtItsColumn) {
  const auto& [text, column, words] = GetParam();
  try {
    Dims::parse(text);
    ADD_FAILURE() << "accepted";
  } catch (const ConfigError& error) {
    const std::string message = error.what();
    EXPECT_THAT(message, HasSubstr("column " + std::to_string(column) + ":"));
    EXPECT_THAT(message, HasSubstr(words));
    // The caret stands below that column: two blanks before the text, as before the caret.
    const std::string caret = message.substr(message.rfind('\n') + 1);
    EXPECT_EQ(caret, std::string(static_cast<std::size_t>(column) + 1, ' ') + "^");
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, WrongDimsTest,
    testing::Values(
        Wrong{"", 1, "no dimension"}, Wrong{"  ", 1, "no dimension"}, Wrong{"# tp:replicated", 1, "no dimension"},
        Wrong{"b 2", 3, "'2' is no name"}, Wrong{"b h-d", 3, "'h-d' is no name"}, Wrong{"b h\u00e9", 3, "is no name"},
        Wrong{"b 1[tp]", 3, "'1' is no name"}, Wrong{"b [tp]", 3, "is no name"}, Wrong{"b s s", 5, "'s' names two"},
        Wrong{"b (h*b)", 6, "'b' names two"}, Wrong{"(a*a)", 4, "'a' names two"}, Wrong{"b (h)", 3, "at least two"},
        Wrong{"b (h*)", 6, "'' is no name"}, Wrong{"b (h*d", 3, "fused"}, Wrong{"(h*d)x", 1, "fused"},
        Wrong{"(a *b)", 1, "fused"}, Wrong{"b s[xx]", 5, "'xx' is no axis"},
        Wrong{"b s[pp]", 5, "'pp' is no axis; they are tp, cp"}, Wrong{"b s[]", 5, "'' is no axis"},
        Wrong{"s[cp,]", 6, "'' is no axis"}, Wrong{"s[cp", 2, "never closed"}, Wrong{"s[cp, sp]", 2, "never closed"},
        Wrong{"s[cp]x", 6, "behind the bracket"}, Wrong{"s[cp][sp]", 6, "behind the bracket"},
        Wrong{"s[cp:zig]", 6, "'zig' is none of"}, Wrong{"s[cp:zigzag+natural]", 13, "second order"},
        Wrong{"s[cp:partial+partial]", 14, "twice"}, Wrong{"s[cp,cp]", 6, "axis cp shares"},
        Wrong{"b[tp] h[tp]", 9, "axis tp shares"}, Wrong{"h[tp] # tp:replicated", 9, "replicated here and shares"},
        Wrong{"h # tp:replicated tp:replicated", 19, "twice"}, Wrong{"h # xx:replicated", 5, "'xx' is no axis"},
        Wrong{"h # dp:=tp dp:=tp", 12, "said twice"}, Wrong{"h # dp:=", 9, "'' is no axis"},
        Wrong{"h # tp", 5, "neither"}, Wrong{"h # :replicated", 5, "neither"}, Wrong{"h # tp:sharded", 5, "neither"},
        Wrong{"h # a # b", 5, "neither"}, Wrong{"\u00e9\u00e9 h", 1, "is no name"}));

}  // namespace
}  // namespace dbg
