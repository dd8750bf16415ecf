// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The header of dbg's own wire: back and forth, what is refused, and what ranks conclude.
#include "graft/frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <random>

#include "dbg/error.h"

namespace dbg::graft {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using Bytes = std::array<std::byte, kHeaderBytes>;

FrameHeader sample() {
  FrameHeader header;
  header.has_value = true;
  header.direction = GraftDirection::t2b;
  header.dtype = static_cast<std::int8_t>(c10::ScalarType::BFloat16);
  header.step = -3;
  header.occurrence = 2;
  header.name = "layer 3";
  header.name_hash = hash_of_name(header.name);
  header.sizes = {2, 5};
  header.tensor_bytes = 20;
  header.info_bytes = 11;
  header.max_bytes = 100;
  header.digest = 0xdeadbeef;
  header.tags = {{"layer_id", "3"}, {"phase", "a=b"}};
  return header;
}

Bytes written(const FrameHeader& header) {
  Bytes bytes;
  write_header(header, bytes.data());
  return bytes;
}

std::string complaint_about(const Bytes& bytes) {
  try {
    read_header(bytes.data());
  } catch (const IoError& error) {
    return error.what();
  }
  return "(none)";
}

TEST(FrameTest, ComesBackAsItWas) {
  const FrameHeader read = read_header(written(sample()).data());
  EXPECT_TRUE(read.has_value);
  EXPECT_EQ(read.direction, GraftDirection::t2b);
  EXPECT_EQ(read.dtype, sample().dtype);
  EXPECT_EQ(read.step, -3);
  EXPECT_EQ(read.occurrence, 2u);
  EXPECT_EQ(read.name_hash, hash_of_name("layer 3"));
  EXPECT_THAT(read.sizes, ElementsAre(2, 5));
  EXPECT_EQ(read.tensor_bytes, 20);
  EXPECT_EQ(read.info_bytes, 11);
  EXPECT_EQ(read.max_bytes, 100);
  EXPECT_EQ(read.digest, 0xdeadbeefu);
  EXPECT_EQ(read.name, "layer 3");
  EXPECT_EQ(read.tags, sample().tags);
}

TEST(FrameTest, LiesAsTheHeaderFileSays) {
  const Bytes bytes = written(sample());
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), 8), "DBGGRAFT");
  EXPECT_EQ(bytes[8], std::byte{2});
  EXPECT_EQ(bytes[12], std::byte{1});
  EXPECT_EQ(bytes[13], std::byte{1});
  EXPECT_EQ(bytes[16], std::byte{0xfd});
  EXPECT_EQ(bytes[24], std::byte{2});
  EXPECT_EQ(bytes[40], std::byte{20});
  EXPECT_EQ(bytes[68], std::byte{2});
  EXPECT_EQ(bytes[72], std::byte{2});
  EXPECT_EQ(bytes[80], std::byte{5});
  EXPECT_EQ(bytes[584], std::byte{7});
  EXPECT_EQ(bytes[586], std::byte{'l'});
  EXPECT_EQ(bytes[1536], std::byte{21});
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(&bytes[1538]), 21),
            "layer_id\x1f"
            "3\x1e"
            "phase\x1f"
            "a=b\x1e");
}

TEST(FrameTest, MoreDimensionsThanFitAreNeverWritten) {
  FrameHeader header = sample();
  header.sizes.assign(kMostDims, 1);
  header.tensor_bytes = 2;
  EXPECT_EQ(read_header(written(header).data()).sizes, header.sizes);
  for (const std::size_t dims : {kMostDims + 1, std::size_t{200}}) {
    header.sizes.assign(dims, 1);
    EXPECT_THROW(written(header), LogicError) << dims;
  }
}

TEST(FrameTest, TagsThatTellCallsApart) {
  const Tags tags{
      {"name", "x"},          {"recompute_status", "disabled"},       {"layer_id", 3}, {"rank", 1}, {"tp_rank", 1},
      {"note", "two\nlines"}, {"long", std::string(150, 'v').c_str()}};
  const FrameTags made = tags_of_call(tags);
  ASSERT_EQ(made.size(), 3u);
  EXPECT_EQ(made[0], (std::pair<std::string, std::string>("layer_id", "3")));
  EXPECT_EQ(made[1].second, "two lines");
  EXPECT_EQ(made[2].second.size(), 80u + 3 + 16);
  EXPECT_EQ(tags_of_call(Tags{{"recompute_status", "recompute"}}).size(), 1u);
}

TEST(FrameTest, TagsThatFindNoRoomAreLeftOutWhole) {
  FrameHeader header = sample();
  header.tags.clear();
  for (int i = 0; i < 20; ++i) header.tags.emplace_back(std::string(90, static_cast<char>('a' + i)), "1");
  const FrameTags read = read_header(written(header).data()).tags;
  ASSERT_EQ(read.size(), 1022u / 93u);
  for (std::size_t i = 0; i < read.size(); ++i) EXPECT_EQ(read[i], header.tags[i]);
}

TEST(FrameTest, RefusesNumbersThatDoNotFit) {
  const auto with = [](auto change) {
    FrameHeader header = sample();
    change(header);
    return complaint_about(written(header));
  };
  EXPECT_EQ(with([](FrameHeader&) {}), "(none)");
  EXPECT_THAT(with([](FrameHeader& h) { h.tensor_bytes = std::int64_t{1} << 62; }),
              HasSubstr("where its sizes make 20"));
  EXPECT_THAT(with([](FrameHeader& h) { h.tensor_bytes = -1; }), HasSubstr("-1 bytes of tensor"));
  EXPECT_THAT(with([](FrameHeader& h) { h.info_bytes = -1; }), HasSubstr("-1 of info"));
  EXPECT_THAT(with([](FrameHeader& h) { h.sizes = {-2, -5}; }), HasSubstr("a dimension of -2"));
  EXPECT_THAT(with([](FrameHeader& h) {
                h.sizes = {std::int64_t{1} << 40, std::int64_t{1} << 40};
              }),
              HasSubstr("overflows"));
  EXPECT_THAT(with([](FrameHeader& h) { h.dtype = 127; }), HasSubstr("dtype 127"));
  EXPECT_THAT(with([](FrameHeader& h) { h.dtype = -1; }), HasSubstr("dtype -1"));
  EXPECT_THAT(with([](FrameHeader& h) { h.max_bytes = 0; }), HasSubstr("at most 0"));
}

TEST(FrameTest, RefusesWhatNoRankWrote) {
  const auto with = [](std::size_t at, int value) {
    Bytes bytes = written(sample());
    bytes[at] = static_cast<std::byte>(value);
    return complaint_about(bytes);
  };
  EXPECT_THAT(with(0, 'X'), HasSubstr("first bytes"));
  EXPECT_THAT(with(8, 3), HasSubstr("version 3"));
  EXPECT_THAT(with(12, 9), HasSubstr("state 9"));
  EXPECT_THAT(with(68, 65), HasSubstr("65 dimensions"));
  EXPECT_THAT(with(585, 0xff), HasSubstr("a name of"));
  EXPECT_THAT(with(1025, 0xff), HasSubstr("a reason of"));
  EXPECT_THAT(with(1537, 0xff), HasSubstr("tags of"));
  EXPECT_THAT(with(1546, 'x'), HasSubstr("tags without an end"));  // the end of the first key
  EXPECT_THAT(with(1536, 20), HasSubstr("tags without an end"));
}

TEST(FrameTest, AnyBytesAreReadOrRefused) {
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    Bytes bytes = written(sample());
    for (int change = 0; change < 3; ++change) {
      bytes[random() % (i % 2 == 0 ? 100 : kHeaderBytes)] = static_cast<std::byte>(random());
    }
    const std::string complaint = complaint_about(bytes);
    if (complaint != "(none)") EXPECT_THAT(complaint, HasSubstr("no rank of dbg wrote"));
  }
}

FrameHeader at(std::int64_t step, const std::string& name, std::uint64_t occurrence = 0) {
  FrameHeader header;
  header.step = step;
  header.name = name;
  header.name_hash = hash_of_name(name);
  header.occurrence = occurrence;
  header.max_bytes = 1;
  return header;
}

TEST(DecideTest, EqualCallsMeet) {
  const std::vector<FrameHeader> headers{at(3, "x"), at(3, "x"), at(3, "x")};
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(decide(headers, rank).agreement, Agreement::meet);
}

TEST(DecideTest, OtherNamesInOneStepAreSkippedByAll) {
  const std::vector<FrameHeader> headers{at(3, "x"), at(3, "x"), at(3, "z")};
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(decide(headers, rank).agreement, Agreement::skip);
    EXPECT_EQ(decide(headers, rank).note, "graft ranks 0, 1 at 'x' b2t of step 3; graft rank 2 at 'z' b2t of step 3");
  }
}

TEST(DecideTest, AnotherOccurrenceOfANameIsAnotherCall) {
  const std::vector<FrameHeader> headers{at(3, "x", 0), at(3, "x", 1)};
  EXPECT_EQ(decide(headers, 0).agreement, Agreement::skip);
  EXPECT_THAT(decide(headers, 0).note, HasSubstr("'x' (number 2 of that name)"));
}

FrameHeader with_tags(const FrameTags& tags) {
  FrameHeader header = at(3, "x");
  header.tags = tags;
  return header;
}

TEST(DecideTest, OtherTagsAreAnotherCallAndAreNamed) {
  const std::vector<FrameHeader> headers{with_tags({{"phase", "p"}, {"layer_id", "2"}}),
                                         with_tags({{"layer_id", "3"}, {"phase", "p"}})};
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(decide(headers, rank).agreement, Agreement::skip);
  EXPECT_EQ(decide(headers, 0).note,
            "graft rank 0 at 'x' layer_id=2 b2t of step 3; graft rank 1 at 'x' layer_id=3 b2t of step 3");
}

TEST(DecideTest, ATagThatNotAllHaveDoesNotCount) {
  const std::vector<FrameHeader> headers{with_tags({{"layer_id", "2"}, {"engine", "a"}}),
                                         with_tags({{"layer_id", "2"}}),
                                         with_tags({{"layer_id", "2"}, {"engine", "b"}})};
  EXPECT_EQ(decide(headers, 0).agreement, Agreement::meet);
}

TEST(DecideTest, ThoseBehindSkipAndThoseAheadWait) {
  const std::vector<FrameHeader> headers{at(3, "x"), at(4, "x"), at(2, "q")};
  EXPECT_EQ(decide(headers, 0).agreement, Agreement::skip);
  EXPECT_EQ(decide(headers, 1).agreement, Agreement::again);
  EXPECT_EQ(decide(headers, 2).agreement, Agreement::skip);
}

// Random runs of ranks that leave calls out: nobody waits for ever, and all are met at each step's first common call.
TEST(DecideTest, SidesAreInStepAgainAtTheNextStepAtTheLatest) {
  std::mt19937 random(11);
  for (int trial = 0; trial < 300; ++trial) {
    const int ranks = 2 + static_cast<int>(random() % 3);
    std::vector<std::vector<FrameHeader>> calls(static_cast<std::size_t>(ranks));
    for (std::int64_t step = 0; step < 4; ++step) {
      for (int call = 0; call < 4; ++call) {
        for (auto& own : calls) {
          if (call > 0 && random() % 4 == 0) continue;
          own.push_back(at(step, std::string(1, static_cast<char>('a' + call))));
        }
      }
    }
    std::vector<std::size_t> place(calls.size(), 0);
    int met_first = 0;
    for (int round = 0; round < 100; ++round) {
      std::vector<FrameHeader> headers;
      for (std::size_t rank = 0; rank < calls.size(); ++rank) {
        if (place[rank] < calls[rank].size()) headers.push_back(calls[rank][place[rank]]);
      }
      if (headers.size() != calls.size()) break;  // one is through
      bool has_moved = false;
      for (int rank = 0; rank < ranks; ++rank) {
        const Decision decision = decide(headers, rank);
        if (decision.agreement == Agreement::meet && rank == 0 && headers[0].name == "a") ++met_first;
        if (decision.agreement == Agreement::again) continue;
        ++place[static_cast<std::size_t>(rank)];
        has_moved = true;
      }
      ASSERT_TRUE(has_moved) << "all wait for each other";
    }
    EXPECT_EQ(met_first, 4) << "trial " << trial;
  }
}

}  // namespace
}  // namespace dbg::graft
