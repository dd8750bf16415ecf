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
