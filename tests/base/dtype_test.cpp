// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Names, numbers and texts of every dtype.
#include "base/dtype.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "dbg/error.h"

namespace dbg::base {
namespace {

template <class T>
std::vector<std::byte> raw_bytes(const std::vector<T>& values) {
  std::vector<std::byte> raw(values.size() * sizeof(T));
  std::memcpy(raw.data(), values.data(), raw.size());
  return raw;
}

TEST(DtypeTest, NamesAreThoseOfPython) {
  EXPECT_EQ(dtype_name(at::kFloat), "float32");
  EXPECT_EQ(dtype_name(at::kBFloat16), "bfloat16");
  EXPECT_EQ(dtype_name(at::kLong), "int64");
  EXPECT_EQ(dtype_name(at::kBool), "bool");
  EXPECT_EQ(dtype_name(at::kByte), "uint8");
  EXPECT_EQ(dtype_name(at::kUInt64), "uint64");
  EXPECT_EQ(dtype_name(at::kComplexFloat), "complex64");
  EXPECT_EQ(dtype_name(at::kFloat8_e4m3fn), "float8_e4m3fn");
  EXPECT_EQ(dtype_name(at::ScalarType::Undefined), "undefined");
}

TEST(DtypeTest, IntegersOf64BitsKeepTheirLastDigitInALongDouble) {
  const std::vector<std::int64_t> values = {(std::int64_t{1} << 53) + 1, std::numeric_limits<std::int64_t>::min(),
                                            std::numeric_limits<std::int64_t>::max()};
  std::array<long double, 3> numbers{};
  widen(at::kLong, raw_bytes(values).data(), values.size(), numbers.data());
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(static_cast<std::int64_t>(numbers[i]), values[i]);

  const std::vector<std::uint64_t> large = {std::numeric_limits<std::uint64_t>::max(), 0, 1};
  widen(at::kUInt64, raw_bytes(large).data(), large.size(), numbers.data());
  for (std::size_t i = 0; i < large.size(); ++i) EXPECT_EQ(static_cast<std::uint64_t>(numbers[i]), large[i]);
}

// All 256 values of each 8-bit float, against torch's own conversion.
class Float8Test : public testing::TestWithParam<at::ScalarType> {};

TEST_P(Float8Test, EveryValueIsThatOfTorch) {
  std::vector<std::uint8_t> bits(256);
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<std::uint8_t>(i);
  const at::Tensor tensor = at::from_blob(bits.data(), {256}, at::TensorOptions().dtype(at::kByte)).view(GetParam());
  const at::Tensor expected = tensor.to(at::kDouble);
  std::array<double, 256> numbers{};
  widen(GetParam(), raw_bytes(bits).data(), bits.size(), numbers.data());
  for (std::int64_t i = 0; i < 256; ++i) {
    const double want = expected.const_data_ptr<double>()[i];
    const double got = numbers[static_cast<std::size_t>(i)];
    EXPECT_TRUE(want == got || (std::isnan(want) && std::isnan(got)))
        << "bits " << i << ": " << got << ", not " << want;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Float8Test,
                         testing::Values(at::kFloat8_e4m3fn, at::kFloat8_e4m3fnuz, at::kFloat8_e5m2,
                                         at::kFloat8_e5m2fnuz, at::kFloat8_e8m0fnu),
                         [](const auto& test) { return dtype_name(test.param); });

TEST(DtypeTest, AByteOfABoolThatIsNeitherZeroNorOneIsTrue) {
  const std::vector<std::uint8_t> bytes = {0, 1, 2, 255};
  std::array<double, 4> numbers{};
  widen(at::kBool, raw_bytes(bytes).data(), bytes.size(), numbers.data());
  EXPECT_EQ(numbers, (std::array<double, 4>{0, 1, 1, 1}));
}

TEST(DtypeTest, AComplexElementIsTwoNumbers) {
  const std::vector<float> parts = {1, -2, 3, 4};
  std::array<double, 4> numbers{};
  widen(at::kComplexFloat, raw_bytes(parts).data(), 2, numbers.data());
  EXPECT_EQ(numbers, (std::array<double, 4>{1, -2, 3, 4}));
  EXPECT_EQ(numbers_per_element(at::kComplexFloat), 2U);
  EXPECT_EQ(numbers_per_element(at::kFloat), 1U);
}

TEST(DtypeTest, TextsHaveAllDigits) {
  const auto text = [](at::ScalarType dtype, const auto& value) {
    return element_text(dtype, raw_bytes(std::vector{value}).data());
  };
  EXPECT_EQ(text(at::kFloat, 0.1F), "0.1");
  EXPECT_EQ(text(at::kDouble, 0.1), "0.1");
  EXPECT_EQ(text(at::kDouble, static_cast<double>(0.1F)), "0.10000000149011612");
  EXPECT_EQ(text(at::kLong, (std::int64_t{1} << 53) + 1), "9007199254740993");
  EXPECT_EQ(text(at::kUInt64, std::numeric_limits<std::uint64_t>::max()), "18446744073709551615");
  EXPECT_EQ(text(at::kChar, static_cast<std::int8_t>(-5)), "-5");
  EXPECT_EQ(text(at::kByte, static_cast<std::uint8_t>(65)), "65");
  EXPECT_EQ(text(at::kBool, static_cast<std::uint8_t>(1)), "True");
  EXPECT_EQ(text(at::kComplexFloat, std::array<float, 2>{1, -2}), "1-2j");
  EXPECT_EQ(text(at::kComplexFloat, std::array<float, 2>{1, 2.5}), "1+2.5j");
  EXPECT_EQ(text(at::kBFloat16, c10::BFloat16(0.1F)), "0.100097656");
  EXPECT_EQ(text(at::kFloat, std::numeric_limits<float>::quiet_NaN()), "nan");
  EXPECT_EQ(text(at::kQInt8, std::array<std::uint8_t, 1>{0xab}), "0xab");
}

TEST(DtypeTest, AnOpaqueElementIsNoNumber) {
  std::array<double, 1> number{};
  const std::array<std::byte, 1> raw{};
  EXPECT_EQ(number_kind(at::kQInt8), NumberKind::opaque);
  EXPECT_THROW(widen(at::kQInt8, raw.data(), 1, number.data()), LogicError);
}

}  // namespace
}  // namespace dbg::base
