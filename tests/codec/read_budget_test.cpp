// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Tests of the pickle reader on pickles that ask for too much: work, depth, memory, tables.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "codec/archive_reader.h"
#include "codec/dict_guard.h"
#include "codec/pickle_bytes_maker.h"
#include "codec/pickle_reading.h"
#include "codec/read_budget.h"
#include "dbg/error.h"
#include "support/memory_limit.h"
#include "support/temp_folder.h"

namespace {

using dbg::codec::read_pickle_bytes;
using dbg::codec::ReadLimits;
using dbg::codec::Refusal;
using dbg::test::MemoryLimit;
using testing::HasSubstr;
using namespace dbg::test::pickled;  // NOLINT: the whole file is about them

TEST(ReadBudgetTest, ACycleIsARefusalAndDepthIsBounded) {
  EXPECT_THAT(refusals_of(whole("]q\x01h\x01"
                                "a")),
              testing::ElementsAre("[0]: a container that holds itself"));
  EXPECT_THAT(refusals_of(whole("}q\x01" + text("me") + "h\x01s")),
              testing::ElementsAre("me: a container that holds itself"));
  const auto nested = [](int depth) {
    return whole(std::string(static_cast<std::size_t>(depth), ']') +
                 std::string(static_cast<std::size_t>(depth - 1), 'a'));
  };
  EXPECT_NO_THROW(read(nested(256)));
  EXPECT_THAT(error_of(nested(257)), HasSubstr("deeper than the limit"));
  EXPECT_THAT(error_of(nested(2'000'000)), HasSubstr("deeper than the limit"));
}

TEST(ReadBudgetTest, SharingCantMultiplyWork) {
  // Thirty lists, each with ten references to the one before: 10^30 entries in 400 bytes.
  std::string body = "]";
  for (int i = 0; i < 30; ++i) {
    body += "q" + little_endian(static_cast<std::uint64_t>(i), 1) + "0](";
    for (int k = 0; k < 10; ++k) body += "h" + little_endian(static_cast<std::uint64_t>(i), 1);
    body += "e";
  }
  ReadLimits limits;
  limits.max_items = 1'000'000;
  EXPECT_THAT(error_of(whole(body), limits), HasSubstr("the limit on items"));
  // A list of pairs, made an OrderedDict again and again; dropped at once, so that no walk over the value meets them.
  std::string pairs = "](";
  for (int i = 0; i < 1000; ++i) pairs += "K\x01K\x02\x86";
  pairs += "eq" + std::string(1, '\0') + "0";
  for (int i = 0; i < 1000; ++i) pairs += global("collections", "OrderedDict") + std::string("h\0\x85R0", 5);
  EXPECT_THAT(error_of(whole(pairs + "N"), limits), HasSubstr("the limit on items"));
}

TEST(ReadBudgetTest, GrowsWithTheInputWithinTheLimits) {
  ReadLimits limits;
  limits.max_tensor_bytes = 1000;
  EXPECT_EQ(dbg::codec::ReadBudget(limits, 100).tensor_bytes, 400u);
  EXPECT_EQ(dbg::codec::ReadBudget(limits, 300).tensor_bytes, 1000u);
  EXPECT_EQ(dbg::codec::ReadBudget(limits, 100).checked_bytes, (std::uint64_t{1} << 30) + 1600);
}

TEST(ReadBudgetTest, TheSameBytesCantBecomeManyStorages) {
  // A stream of 4,000 bytes, loaded twenty times.
  const std::string inner = stream(storage("ByteStorage", "0", 4000), 4000, std::string(4000, 'x'));
  std::string body = bytes(inner) + "q\x01" + "0](";
  for (int i = 0; i < 20; ++i) {
    body += tensor_v2(call(global("torch.storage", "_load_from_bytes"), "h\x01"), 0, integer(4000), "K\x01");
  }
  EXPECT_THAT(error_of(whole(body + "e")), HasSubstr("or four times the input"));
}

TEST(ReadBudgetTest, ItemsAreLimited) {
  ReadLimits limits;
  limits.max_items = 100;
  EXPECT_THAT(error_of(whole(list(std::string(200, 'N'))), limits), HasSubstr("the limit on items"));
  EXPECT_NO_THROW(read(whole(list(std::string(40, 'N'))), limits));
}

TEST(ReadBudgetTest, KeysChosenToCollideAreAnError) {
  // c10's table multiplies by this constant and looks at the upper bits: these keys agree in the upper 40.
  constexpr std::uint64_t golden = 11400714819323198485ULL;
  std::uint64_t inverse = 1;
  for (int i = 0; i < 6; ++i) inverse *= 2 - golden * inverse;
  ASSERT_EQ(inverse * golden, 1u);
  std::string entries;
  for (std::uint64_t i = 0; i < 64; ++i) entries += integer(static_cast<std::int64_t>(i * inverse)) + "N";
  // Without the check the table doubles until memory ends: let that be soon.
  const MemoryLimit soon(std::size_t{2} << 30);
  EXPECT_THAT(error_of(whole(dict(entries))), HasSubstr("a dict of 64 keys that collide (chosen to?)"));
}

TEST(ReadBudgetTest, OrdinaryKeysAreNoCollision) {
  std::mt19937_64 random(3);
  for (const int count : {1, 5, 17, 100, 1000, 20000}) {
    std::string sequence;
    std::string scattered;
    std::string texts;
    std::string strided;
    for (int i = 0; i < count; ++i) {
      sequence += integer(i) + "N";
      scattered += integer(static_cast<std::int64_t>(random())) + "N";
      texts += text("model.layers." + std::to_string(i) + ".weight") + "N";
      strided += integer(std::int64_t{i} << 32) + "N";
    }
    for (const auto* entries : {&sequence, &scattered, &texts, &strided}) {
      EXPECT_EQ(read(whole(dict(*entries))).toGenericDict().size(), static_cast<std::size_t>(count));
    }
  }
}

TEST(ReadBudgetTest, OrdinaryKeysThatCollideALittleAreRead) {
  // Multiples of these numbers come as near each other, times c10's constant, as its tables bear: the sizes they need.
  const std::tuple<int, int, int> progressions[] = {
      {336, 5000, 16}, {1008, 1000, 16}, {1292, 100, 13}, {610, 100000, 21}};
  for (const auto& [stride, count, bits] : progressions) {
    std::string entries;
    std::vector<std::size_t> hashes;
    for (std::int64_t i = 0; i < count; ++i) {
      entries += integer(i * stride) + "N";
      hashes.push_back(c10::detail::DictKeyHash()(c10::IValue(i * stride)));
    }
    EXPECT_EQ(dbg::codec::table_bits(hashes), bits) << stride;
    const auto read_back = read(whole(dict(entries))).toGenericDict();
    EXPECT_EQ(read_back.size(), static_cast<std::size_t>(count));
    EXPECT_TRUE(read_back.contains(std::int64_t{stride} * (count - 1)));
  }
}

TEST(ReadBudgetTest, ADictWhoseTableIsTooLargeIsLeftOutAlone) {
  std::string entries;
  for (std::int64_t i = 0; i < 100; ++i) entries += integer(i * 1292) + "N";
  const std::string pickle = whole(dict(text("ok") + "K\x01" + text("odd") + dict(entries) + text("more") + "K\x02"));
  ReadLimits limits;
  limits.max_items = 7936;  // 2^13 places, where 2^8 are usual
  EXPECT_EQ(read(pickle, limits).toGenericDict().size(), 3u);
  limits.max_items = 7935;
  std::vector<Refusal> refusals;
  const auto rest = read_pickle_bytes(pickle.data(), pickle.size(), limits, &refusals).toGenericDict();
  EXPECT_EQ(rest.size(), 2u);
  EXPECT_EQ(rest.at("more").toInt(), 2) << "and the rest has all its items";
  ASSERT_EQ(refusals.size(), 1u);
  EXPECT_EQ(refusals[0].path, "odd");
  EXPECT_EQ(refusals[0].reason, "a dict of 100 keys that collide (chosen to?): its table would have 2^13 places");
}

TEST(ReadBudgetTest, AnErrorNamesLimitPlaceAndWayOut) {
  ReadLimits limits;
  limits.max_items = 20;
  EXPECT_THAT(
      error_of(whole(list(std::string(30, 'N'))), limits),
      HasSubstr("byte 21: the limit on items is reached: 20 opcodes and entries; if the file is no attack, read "
                "it with a larger ReadLimits::max_items"));
  EXPECT_THAT(error_of(whole(dict(text("a") + list("NNNNNNNNN"))), limits),
              HasSubstr("byte 0: a[0]: the limit on items"));
  limits = {};
  limits.max_depth = 2;
  EXPECT_THAT(
      error_of(whole(dict(text("a") + list("N" + list("N")))), limits),
      HasSubstr("a[1]: containers are nested deeper than the limit of 2; if the file is no attack, read it with a "
                "larger ReadLimits::max_depth"));
  const std::string twelve = stream(storage("ByteStorage", "0", 12), 12, "twelve bytes");
  const std::string loaded = call(global("torch.storage", "_load_from_bytes"), bytes(twelve));
  limits = {};
  limits.max_tensor_bytes = 11;
  EXPECT_THAT(
      error_of(whole(list(tensor_v2(loaded, 0, "K\x0c", "K\x01"))), limits),
      HasSubstr("a storage of 12 bytes is above the limit (11 left of 11 or four times the input); if the file is "
                "no attack, read it with a larger ReadLimits::max_tensor_bytes"));
  limits.max_tensor_bytes = 12;
  EXPECT_THAT(error_of(whole(list(tensor_v2(loaded, 0, "K\x0d", std::string("K\0", 2)))), limits),
              HasSubstr("[0]: a tensor of 13 bytes is above the limit of 12; if the file is no attack"));
  EXPECT_THAT(error_of(whole(list(tensor_v2(loaded, 0, "K\x0c", "K\x01", dict(text("neg") + "\x88")))), limits),
              HasSubstr("[0]: a conjugate or negative view of a storage of 12 bytes is above the limit (0 left of 12"));
}

TEST(ReadBudgetTest, WithoutMemoryForThePickleItIsAnIoError) {
  if (!dbg::test::kMemoryLimitWorks) GTEST_SKIP() << "a sanitizer ends the process where an allocation fails";
  const dbg::test::TempFolder folder;
  const std::string path = (folder / "hollow.pt").string();
  std::ofstream(path, std::ios::binary) << "\x80\x02X" << little_endian(1000 << 20, 4);
  std::filesystem::resize_file(path, std::uint64_t{1} << 30);
  const MemoryLimit limit(std::size_t{256} << 20);
  EXPECT_THAT([&] { dbg::codec::read_archive_file(path); },
              testing::ThrowsMessage<dbg::IoError>(HasSubstr("hollow.pt', byte 0: no memory for what it holds")));
}

TEST(ReadBudgetTest, StreamsInStreamsAreBounded) {
  std::string inner = whole("N");
  for (int i = 0; i < 300; ++i) {
    inner = stream(call(global("torch.storage", "_load_from_bytes"), bytes(inner)), 0, "");
    inner = inner.substr(0, inner.size() - 8 - whole(list(text("0"))).size()) + whole(list(""));
  }
  EXPECT_THAT(error_of(whole(call(global("torch.storage", "_load_from_bytes"), bytes(inner)))),
              HasSubstr("streams are nested deeper"));
}

}  // namespace
