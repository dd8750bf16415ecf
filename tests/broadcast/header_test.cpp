// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Control messages: the format as it is written down, and that nothing from the wire is believed.
#include "broadcast/header.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "codec/crc32.h"
#include "dbg/error.h"

namespace dbg::broadcast {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr HeaderLimits kLimits{7, 4096};

Header example() {
  Header header;
  header.generation = 7;
  header.bucket = 3;
  header.length = 4096;
  header.info_bytes = 99;
  header.first_weight = 12;
  header.num_weights = 2;
  header.plan_hash = 0x1122334455667788ULL;
  header.payload_digest = 0xdeadbeef;
  header.has_digests = true;
  header.model_version = -5;
  header.total_bytes = std::uint64_t{1} << 40;
  header.weights_digest = 17;
  header.info_digest = 0x01020304;
  return header;
}

template <class Number>
Number at(const HeaderBytes& bytes, std::size_t offset) {
  Number number;
  std::memcpy(&number, bytes.data() + offset, sizeof number);
  return number;
}

template <class Number>
HeaderBytes changed(HeaderBytes bytes, std::size_t offset, Number number) {
  std::memcpy(bytes.data() + offset, &number, sizeof number);
  const std::uint32_t checksum = codec::crc32(bytes.data(), 124);
  std::memcpy(bytes.data() + 124, &checksum, sizeof checksum);
  return bytes;
}

std::string refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const CommError& error) {
    EXPECT_EQ(error.kind(), CommErrorKind::handshake_mismatch);
    return error.what();
  }
  return "accepted";
}

TEST(HeaderTest, LiesInMemoryAsItIsWrittenDown) {
  const HeaderBytes bytes = encode(example());
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), 8), "dbgwcast");
  EXPECT_EQ(at<std::uint32_t>(bytes, 8), 1U);
  EXPECT_EQ(at<std::uint32_t>(bytes, 12), 1U);
  EXPECT_EQ(at<std::uint64_t>(bytes, 16), 7U);
  EXPECT_EQ(at<std::uint64_t>(bytes, 24), 3U);
  EXPECT_EQ(at<std::uint64_t>(bytes, 32), 4096U);
  EXPECT_EQ(at<std::uint64_t>(bytes, 40), 99U);
  EXPECT_EQ(at<std::uint64_t>(bytes, 48), 12U);
  EXPECT_EQ(at<std::uint64_t>(bytes, 56), 2U);
  EXPECT_EQ(at<std::uint64_t>(bytes, 64), 0x1122334455667788ULL);
  EXPECT_EQ(at<std::uint64_t>(bytes, 72), 0xdeadbeefU);
  EXPECT_EQ(at<std::uint32_t>(bytes, 80), 2U);
  EXPECT_EQ(at<std::int64_t>(bytes, 88), -5);
  EXPECT_EQ(at<std::uint64_t>(bytes, 96), std::uint64_t{1} << 40);
  EXPECT_EQ(at<std::uint64_t>(bytes, 104), 17U);
  EXPECT_EQ(at<std::uint32_t>(bytes, 112), 0x01020304U);
  EXPECT_EQ(at<std::uint32_t>(bytes, 124), codec::crc32(bytes.data(), 124));
}

TEST(HeaderTest, ComesBackAsItWas) {
  const Header header = example();
  const Header back = decode_header(encode(header), kLimits);
  EXPECT_EQ(encode(back), encode(header));
  EXPECT_EQ(back.model_version, -5);
  EXPECT_FALSE(back.is_last);
  EXPECT_FALSE(difference_of(back, header));
}

TEST(HeaderTest, WhatIsWrongIsNamedWithBothValues) {
  const HeaderBytes good = encode(example());
  const auto words = [](const HeaderBytes& bytes) { return refusal([&] { decode_header(bytes, kLimits); }); };
  EXPECT_THAT(words(changed(good, 0, 'x')), HasSubstr("no header"));
  EXPECT_THAT(words(changed(good, 8, std::uint32_t{9})), AllOf(HasSubstr("version 9"), HasSubstr("version 1")));
  EXPECT_THAT(words(changed(good, 12, std::uint32_t{3})), HasSubstr("kind 3"));
  EXPECT_THAT(words(changed(good, 16, std::uint64_t{6})), AllOf(HasSubstr("generation 6"), HasSubstr("generation 7")));
  EXPECT_THAT(words(changed(good, 32, std::uint64_t{4097})), AllOf(HasSubstr("4097"), HasSubstr("4096")));
  EXPECT_THAT(words(changed(good, 40, std::uint64_t{1} << 60)), HasSubstr("of infos"));
  EXPECT_THAT(words(changed(good, 80, std::uint32_t{6})), HasSubstr("flags 0x6"));
  EXPECT_THAT(words(changed(good, 80, std::uint32_t{3})), HasSubstr("a bucket says that it is the last message"));
  EXPECT_THAT(words(changed(good, 84, std::uint32_t{1})), HasSubstr("says nothing"));
  EXPECT_THAT(words(changed(good, 116, std::uint64_t{1} << 40)), HasSubstr("says nothing"));
  Header commit;
  commit.kind = MessageKind::commit;
  commit.generation = 7;
  EXPECT_THAT(words(encode(commit)), HasSubstr("not the last message"));
  commit.is_last = true;
  EXPECT_EQ(words(encode(commit)), "accepted");
  commit.length = 5;
  EXPECT_THAT(words(encode(commit)), HasSubstr("a commit record announces 5 bytes"));
  HeaderBytes damaged = good;
  damaged[70] ^= std::byte{1};
  EXPECT_THAT(words(damaged), HasSubstr("damaged"));
}

TEST(HeaderTest, AnyDamagedBitIsSeen) {
  const HeaderBytes good = encode(example());
  for (std::size_t bit = 0; bit < 8 * kHeaderBytes; ++bit) {
    HeaderBytes bytes = good;
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_NE(refusal([&] { decode_header(bytes, kLimits); }), "accepted") << "bit " << bit;
  }
}

TEST(HeaderTest, InfosComeBack) {
  const std::vector<WeightInfo> infos{
      {"layer.0.weight", {2, 3}, at::kFloat}, {"", {}, at::kDouble}, {"ключ", {0, 5, 7}, at::kFloat8_e4m3fn}};
  const std::vector<std::byte> bytes = encode_infos(infos);
  const std::vector<WeightInfo> back = decode_infos(bytes.data(), bytes.size(), 3);
  ASSERT_EQ(back.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(back[i].name, infos[i].name);
    EXPECT_EQ(back[i].shape, infos[i].shape);
    EXPECT_EQ(back[i].dtype, infos[i].dtype);
  }
  EXPECT_TRUE(decode_infos(nullptr, 0, 0).empty());
}

TEST(HeaderTest, InfosThatEndEarlyOrLieAreRefused) {
  const std::vector<WeightInfo> infos{{"abc", {2, 3}, at::kFloat}, {"d", {4}, at::kInt}};
  const std::vector<std::byte> bytes = encode_infos(infos);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_NE(refusal([&] { decode_infos(bytes.data(), size, 2); }), "accepted") << size;
  }
  EXPECT_THAT(refusal([&] { decode_infos(bytes.data(), bytes.size(), 1); }), HasSubstr("follow"));
  EXPECT_THAT(refusal([&] { decode_infos(bytes.data(), bytes.size(), 3); }), HasSubstr("infos of 2 weights, and 3"));
  std::mt19937 random(5);
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::byte> noise = bytes;
    for (int i = 0; i < 3; ++i) noise[random() % noise.size()] = static_cast<std::byte>(random());
    try {
      EXPECT_LE(decode_infos(noise.data(), noise.size(), 2).size(), 2U);
    } catch (const CommError&) {  // the other right answer
    }
  }
}

TEST(HeaderTest, DamagedInfosAreSeenBeforeTheyMeanAnything) {
  const std::vector<WeightInfo> infos{{"abc", {2, 3}, at::kFloat}, {"d", {4}, at::kInt}};
  std::vector<std::byte> bytes = encode_infos(infos);
  Header header = example();
  header.info_digest = codec::crc32(bytes.data(), bytes.size());
  EXPECT_EQ(infos_of(header, bytes).size(), 2U);
  for (std::byte& byte : bytes) {
    byte ^= std::byte{1};
    EXPECT_THAT(refusal([&] { infos_of(header, bytes); }), HasSubstr("infos of bucket 3 were damaged"));
    byte ^= std::byte{1};
  }
}

TEST(HeaderTest, DifferencesHaveBothValues) {
  Header other = example();
  other.length = 100;
  EXPECT_THAT(difference_of(example(), other).value_or(""), HasSubstr("length is 4096 on the root and 100"));
  other = example();
  other.plan_hash ^= 1;
  EXPECT_THAT(difference_of(example(), other).value_or(""), HasSubstr("plan hash"));
  other = example();
  other.model_version = 6;
  EXPECT_THAT(difference_of(example(), other).value_or(""), HasSubstr("model's version"));
  other = example();
  other.kind = MessageKind::commit;
  other.num_weights = 5;
  EXPECT_THAT(difference_of(other, example()).value_or(""), HasSubstr("stream of the root ends after 5 weights"));
  EXPECT_THAT(difference_of(example(), other).value_or(""), HasSubstr("stream of this rank ends after 5 weights"));
}

TEST(HeaderTest, ADigestGoesOnWhereItStopped) {
  const std::string text = "some bytes to be cut";
  EXPECT_EQ(digest_of(text.data() + 5, text.size() - 5, digest_of(text.data(), 5)),
            digest_of(text.data(), text.size()));
}

}  // namespace
}  // namespace dbg::broadcast
