// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Writer and reader against each other. Equal values make equal bytes, so what was read is written again and compared.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "codec/archive.h"
#include "codec/archive_reader.h"
#include "codec/tensor_bytes.h"
#include "dbg/error.h"

namespace dbg::codec {
namespace {

c10::IValue read_back(const c10::IValue& value, const ArchiveOptions& options = {}) {
  const std::string bytes = archive_bytes(value, options);
  std::vector<Refusal> refusals;
  c10::IValue read = read_archive_bytes(bytes.data(), bytes.size(), {}, &refusals);
  for (const Refusal& refusal : refusals) ADD_FAILURE() << refusal.path << ": " << refusal.reason;
  return read;
}

std::vector<at::ScalarType> writable_dtypes() {
  std::vector<at::ScalarType> dtypes;
  for (int i = 0; i < static_cast<int>(at::ScalarType::NumOptions); ++i) {
    if (dtype_name(static_cast<at::ScalarType>(i))) dtypes.push_back(static_cast<at::ScalarType>(i));
  }
  return dtypes;
}

// Draws values of every kind that the writer takes, from a fixed seed.
class RandomValues {
 public:
  explicit RandomValues(std::uint64_t seed) : random_(seed) {}

  c10::IValue value(int depth) {
    switch (below(depth > 0 ? 12 : 8)) {
      case 0:
        return {};
      case 1:
        return below(2) == 0;
      case 2:
        return integer();
      case 3:
        return real();
      case 4:
        return text();
      case 5:
        return c10::complex<double>(real(), real());
      case 6:
        return below(2) == 0 ? at::Device(at::kCPU) : at::Device(at::kCUDA, static_cast<std::int8_t>(below(8)));
      case 7:
        return tensor();
      case 8:
        return c10::ivalue::Tuple::create(items(depth));
      case 9:
        return text_dict(depth);
      case 10:
        return integer_dict(depth);
      default:
        return list(depth);
    }
  }

  at::Tensor tensor() {
    static const std::vector<at::ScalarType> dtypes = writable_dtypes();
    const at::ScalarType dtype = dtypes[below(dtypes.size())];
    std::vector<std::int64_t> sizes(below(5));
    for (std::int64_t& size : sizes) size = static_cast<std::int64_t>(below(4)) + (below(8) == 0 ? 0 : 1);
    at::Tensor made = at::empty(sizes, dtype);
    auto* bytes = static_cast<unsigned char*>(made.data_ptr());
    for (std::size_t i = 0; i < made.nbytes(); ++i)
      bytes[i] = static_cast<unsigned char>(dtype == at::kBool ? below(2) : below(256));
    if (made.dim() >= 2 && below(3) == 0) made = made.transpose(0, made.dim() - 1);
    if (made.dim() >= 1 && made.size(0) > 1 && below(3) == 0) made = made.slice(0, 1);
    if (made.dim() >= 1 && made.size(-1) > 1 && below(3) == 0) made = made.slice(-1, 0, made.size(-1), 2);
    if (below(10) == 0)
      made = made.unsqueeze(0).expand([&] {
        std::vector<std::int64_t> wider = made.sizes().vec();
        wider.insert(wider.begin(), 3);
        return wider;
      }());
    return made;
  }

 private:
  std::size_t below(std::size_t limit) { return random_() % limit; }

  std::int64_t integer() { return static_cast<std::int64_t>(random_()) >> below(64); }

  double real() {
    const std::uint64_t bits = random_();
    double value = 0;
    std::memcpy(&value, &bits, sizeof value);
    return below(4) == 0 ? value : static_cast<double>(integer()) / 8;
  }

  std::string text() {
    static const std::vector<std::string> pieces = {
        "a",    "layer",        "\xc3\xa9", "\xe4\xb8\xad",       "\xf0\x9f\x98\x80",
        "\xff", "\xed\xb3\xbf", "\x80",     std::string(1, '\0'), "'",
        "\n"};
    std::string made;
    for (std::size_t i = below(6); i > 0; --i) made += pieces[below(pieces.size())];
    return made;
  }

  std::vector<c10::IValue> items(int depth) {
    std::vector<c10::IValue> made;
    for (std::size_t i = below(6); i > 0; --i) made.push_back(value(depth - 1));
    return made;
  }

  c10::IValue list(int depth) {
    c10::impl::GenericList made(c10::AnyType::get());
    for (c10::IValue& item : items(depth)) made.push_back(std::move(item));
    return made;
  }

  c10::IValue text_dict(int depth) {
    c10::impl::GenericDict made(c10::StringType::get(), c10::AnyType::get());
    for (c10::IValue& item : items(depth)) made.insert_or_assign(text(), std::move(item));
    return made;
  }

  c10::IValue integer_dict(int depth) {
    c10::impl::GenericDict made(c10::IntType::get(), c10::AnyType::get());
    for (c10::IValue& item : items(depth)) made.insert_or_assign(integer(), std::move(item));
    return made;
  }

  std::mt19937_64 random_;
};

TEST(RoundTripTest, RandomValuesComeBackBitByBit) {
  RandomValues random(2024);
  for (int i = 0; i < 2000; ++i) {
    const c10::IValue value = random.value(4);
    ASSERT_EQ(refusal_of(value), std::nullopt);
    ASSERT_EQ(archive_bytes(read_back(value, {.checksum = i % 2 == 0})), archive_bytes(value)) << "value " << i;
  }
}

TEST(RoundTripTest, ATensorComesBackWithItsElementsAndStrides) {
  for (const at::ScalarType dtype : writable_dtypes()) {
    at::Tensor typed = at::empty({2, 3, 4}, dtype);
    std::memset(typed.data_ptr(), 1, typed.nbytes());
    const at::Tensor read = read_back(typed.transpose(0, 2)).toTensor();
    EXPECT_EQ(read.scalar_type(), dtype);
    EXPECT_EQ(read.strides(), typed.transpose(0, 2).strides());
    EXPECT_EQ(std::memcmp(read.const_data_ptr(), typed.const_data_ptr(), typed.nbytes()), 0);
  }
}

TEST(RoundTripTest, WhatIsWrittenIsReadWithinItsWeight) {
  RandomValues random(77);
  std::size_t weights = 0;
  std::size_t spent = 0;
  for (int i = 0; i < 300; ++i) {
    const c10::IValue value = random.value(4);
    const std::string bytes = archive_bytes(value);
    // What globals and the archive's own entries add, see kMaxWeight.
    ReadLimits limits;
    limits.max_items = weight_of(value) + 40;
    ASSERT_NO_THROW(read_archive_bytes(bytes.data(), bytes.size(), limits)) << "value " << i;
    weights += limits.max_items;
    std::size_t too_few = 0;
    for (std::size_t enough = limits.max_items; enough - too_few > 1;) {
      limits.max_items = (too_few + enough) / 2;
      try {
        read_archive_bytes(bytes.data(), bytes.size(), limits);
        enough = limits.max_items;
      } catch (const IoError&) {
        too_few = limits.max_items;
      }
    }
    spent += too_few + 1;
  }
  EXPECT_LT(static_cast<double>(weights), 2.5 * static_cast<double>(spent)) << "nor is it refused without need";
}

TEST(RoundTripTest, ManyTensorsAndComplexNumbersAreRefusedBeforeTheReaderWould) {
  // As many as a plain count of parts let through.
  c10::impl::GenericList numbers(c10::AnyType::get());
  numbers.reserve(2'900'000);
  for (int i = 0; i < 2'900'000; ++i) numbers.push_back(c10::complex<double>(i, 0));
  EXPECT_NE(refusal_of(numbers).value_or("").find("too many parts"), std::string::npos);
  const at::Tensor shared = at::ones({1});
  c10::impl::GenericList tensors(c10::AnyType::get());
  tensors.reserve(750'000);
  for (int i = 0; i < 750'000; ++i) tensors.push_back(shared);
  EXPECT_NE(refusal_of(tensors).value_or("").find("too many parts"), std::string::npos);
  EXPECT_THROW(archive_bytes(tensors), ConfigError);
}

TEST(RoundTripTest, DictsWithOddKeysComeBack) {
  c10::impl::GenericDict dict(c10::IntType::get(), c10::AnyType::get());
  for (std::int64_t i = 0; i < 5000; ++i) dict.insert(i * 336, i);
  EXPECT_EQ(archive_bytes(read_back(dict)), archive_bytes(dict));
}

TEST(RoundTripTest, SparseTensorsThatTorchCantCoalesceComeBackAsTheyAre) {
  const at::Tensor indices = at::tensor({2, 0, 2}, at::kLong).reshape({1, 3});
  for (const at::ScalarType dtype : {at::kUInt16, at::kFloat8_e4m3fn, at::kFloat}) {
    const at::Tensor values = at::tensor({1, 2, 3}, at::kFloat).to(dtype);
    const at::Tensor sparse = at::_sparse_coo_tensor_unsafe(indices, values, {4}, at::TensorOptions(dtype), false);
    ASSERT_EQ(refusal_of(sparse), std::nullopt);
    const at::Tensor read = read_back(sparse).toTensor();
    if (dtype == at::kFloat) {
      EXPECT_TRUE(read.is_coalesced());
      EXPECT_TRUE(at::equal(read.to_dense(), at::tensor({2, 0, 4, 0}, at::kFloat)));
      continue;
    }
    EXPECT_FALSE(read.is_coalesced());
    EXPECT_TRUE(at::equal(read._indices(), indices)) << dtype;
    EXPECT_EQ(read.scalar_type(), dtype);
    EXPECT_TRUE(at::equal(read._values().to(at::kFloat), values.to(at::kFloat))) << dtype;
  }
}

TEST(RoundTripTest, SparseTensorsComeBack) {
  at::Tensor dense = at::zeros({4, 6});
  dense[1][2] = 3;
  dense[3][0] = -1;
  for (const at::Tensor& sparse : {dense.to_sparse(), dense.to_sparse_csr(), dense.to_sparse_csc(),
                                   dense.to_sparse_bsr({2, 3}), dense.to_sparse_bsc({2, 3})}) {
    const at::Tensor read = read_back(sparse).toTensor();
    EXPECT_EQ(read.layout(), sparse.layout());
    EXPECT_TRUE(at::equal(read.to_dense(), dense)) << sparse.layout();
  }
}

TEST(RoundTripTest, TheDeepestValueComesBack) {
  c10::IValue value = true;
  for (int i = 0; i < kMaxDepth; ++i) {
    c10::impl::GenericList list(c10::AnyType::get());
    list.push_back(value);
    value = list;
  }
  EXPECT_EQ(archive_bytes(read_back(value)), archive_bytes(value));
}

}  // namespace
}  // namespace dbg::codec
