// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Payloads of the Python twin's wire: those that Python wrote (tests/fuzz/seeds/graft), ours, and hostile ones.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "graft/payload_reader.h"
#include "graft/python_wire.h"
#include "graft/sides.h"

namespace dbg::graft {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kLimit = 1 << 20;

std::string seed(const std::string& name) {
  const char* const source = std::getenv("DBG_TEST_SOURCE_DIR");
  const std::filesystem::path root = source != nullptr ? source : ".";
  std::ifstream file(root / "tests/fuzz/seeds/graft" / (name + ".bin"), std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  EXPECT_FALSE(bytes.empty()) << name << " is missing; is DBG_TEST_SOURCE_DIR set?";
  return bytes.substr(1);
}

Contribution decoded(const std::string& payload) {
  return decode_payload(payload.data(), payload.size(), kLimit);
}

TEST(PayloadTest, ReadsWhatPythonWrites) {
  const at::Tensor base = at::arange(12, at::kFloat);
  const std::vector<std::pair<std::string, at::Tensor>> expected = {
      {"plain", base.view({3, 4})},
      {"none-extras", base},
      {"view", base.narrow(0, 2, 6).view({2, 3}).t()},
      {"parameter", base.narrow(0, 0, 4)},
      {"fp8", base.narrow(0, 0, 4).to(at::kFloat8_e4m3fn)},
      {"uint16", base.narrow(0, 0, 4).to(at::kUInt16)},
      {"bf16", base.narrow(0, 0, 4).to(at::kBFloat16)},
      {"complex", at::view_as_complex(base.view({6, 2})).conj().resolve_conj()},
      {"scalar", at::scalar_tensor(2.5, at::kFloat)},
      {"empty", at::empty({0, 3})},
  };
  for (const auto& [name, tensor] : expected) {
    for (const char* protocol : {"-2", "-4"}) {
      const Contribution made = decoded(seed(name + protocol));
      ASSERT_EQ(made.state, ContributionState::value) << name << protocol << ": " << made.reason;
      EXPECT_TRUE(test::same_bits(made.tensor, tensor)) << name << protocol;
    }
  }
  const Contribution plain = decoded(seed("plain-4"));
  EXPECT_EQ(plain.extras.toGenericDict().at("scale").toDouble(), 0.5);
  EXPECT_TRUE(decoded(seed("none-extras-4")).extras.isNone());
}

TEST(PayloadTest, Fact20WhereATensorLayElsewhereIsIgnored) {
  const Contribution made = decoded(seed("cuda3-4"));
  ASSERT_EQ(made.state, ContributionState::value) << made.reason;
  EXPECT_TRUE(made.tensor.is_cpu());
  EXPECT_TRUE(at::equal(made.tensor, at::arange(4, at::kFloat)));
}

TEST(PayloadTest, ExtrasLoseWhatCantBeHeldAndTheTensorStays) {
  const Contribution made = decoded(seed("refused-extras-4"));
  ASSERT_EQ(made.state, ContributionState::value) << made.reason;
  EXPECT_EQ(made.extras.toGenericDict().size(), 0u);
  EXPECT_THAT(made.lost, HasSubstr("a set"));
  EXPECT_EQ(decoded(seed("plain-4")).lost, "");
}

TEST(PayloadTest, Fact16WhatIsNoContributionIsRefusedWithAReason) {
  EXPECT_THAT(decoded(seed("receiver-4")).reason, HasSubstr("a pair of tensor and extras"));
  EXPECT_EQ(decoded(seed("receiver-4")).state, ContributionState::refused);
  EXPECT_THAT(decoded(seed("no-tensor-4")).reason, HasSubstr("in place of a tensor"));
  for (const std::string& payload : {std::string(), std::string("x"), std::string("\x80\x04", 2)}) {
    EXPECT_EQ(decoded(payload).state, ContributionState::refused);
    EXPECT_FALSE(decoded(payload).reason.empty());
  }
}

TEST(PayloadTest, Fact16APayloadCutAnywhereOrChangedIsReadOrRefused) {
  const std::string whole = seed("plain-2");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_NE(decoded(whole.substr(0, size)).state, ContributionState::value) << size;
  }
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 0xff);
    static_cast<void>(decoded(changed));
  }
}

TEST(PayloadTest, APayloadMayNotAskForMoreThanTheLimit) {
  const std::string whole = seed("plain-4");
  EXPECT_EQ(decode_payload(whole.data(), whole.size(), 16).state, ContributionState::refused);
}

TEST(PayloadTest, OursReadsBack) {
  Contribution given;
  given.state = ContributionState::value;
  given.tensor = at::arange(6, at::kFloat).view({2, 3}).t();
  c10::impl::GenericDict extras(c10::StringType::get(), c10::AnyType::get());
  extras.insert("dims", std::string("b s"));
  given.extras = extras;
  std::string why;
  const Contribution made = decoded(encode_payload(given, kLimit, &why));
  EXPECT_EQ(why, "");
  ASSERT_EQ(made.state, ContributionState::value) << made.reason;
  EXPECT_TRUE(test::same_bits(made.tensor, given.tensor));
  EXPECT_EQ(made.place.dims, "b s");
}

TEST(PayloadTest, ASenderKeepsWhatIsAboveItsOwnLimit) {
  Contribution given;
  given.state = ContributionState::value;
  given.tensor = at::zeros({1024});
  std::string why;
  EXPECT_EQ(encode_payload(given, 1024, &why), encode_payload(Contribution(), 1024, &why));
  EXPECT_THAT(why, HasSubstr("of at most 1024 (grafter_max_mib)"));
}

TEST(PayloadTest, NothingIsAPairThatATwinCanTakeApart) {
  std::string why;
  // protocol 4, (None, None)
  EXPECT_EQ(encode_payload(Contribution(), kLimit, &why), std::string("\x80\x04NN\x86.", 6));
  const Contribution made = decoded(encode_payload(Contribution(), kLimit, &why));
  EXPECT_EQ(made.state, ContributionState::nothing);
  EXPECT_FALSE(made.reason.empty());
}

}  // namespace
}  // namespace dbg::graft
