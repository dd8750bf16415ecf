// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Whatever the strides, the blocks put together are the tensor's elements in logical order.
#include "base/tensor_blocks.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

namespace dbg::base {
namespace {

std::vector<std::byte> all_blocks(const at::Tensor& tensor, std::int64_t block_elements) {
  std::vector<std::byte> bytes;
  std::int64_t expected_start = 0;
  for (TensorBlocks blocks(tensor, block_elements); blocks.next();) {
    EXPECT_EQ(blocks.start(), expected_start);
    EXPECT_GE(blocks.elements(), 1);
    EXPECT_LE(blocks.elements(), block_elements);
    expected_start += blocks.elements();
    const std::size_t size = static_cast<std::size_t>(blocks.elements()) * tensor.itemsize();
    bytes.insert(bytes.end(), blocks.data(), blocks.data() + size);
  }
  EXPECT_EQ(expected_start, tensor.numel());
  return bytes;
}

std::vector<std::byte> by_torch(const at::Tensor& tensor) {
  const at::Tensor dense = tensor._is_zerotensor() ? at::zeros(tensor.sizes(), tensor.scalar_type())
                                                   : tensor.resolve_conj().resolve_neg().contiguous();
  std::vector<std::byte> bytes(static_cast<std::size_t>(dense.numel()) * dense.itemsize());
  if (!bytes.empty()) std::memcpy(bytes.data(), dense.const_data_ptr(), bytes.size());
  return bytes;
}

void expect_same_elements(const at::Tensor& tensor, const char* what) {
  for (const std::int64_t block : {1, 2, 3, 7, 64, 1000, 1 << 20}) {
    EXPECT_EQ(all_blocks(tensor, block), by_torch(tensor)) << what << ", blocks of " << block;
  }
}

TEST(TensorBlocksTest, AnyStridesGiveTheElementsInLogicalOrder) {
  const at::Tensor base = at::arange(2 * 3 * 4 * 5, at::kInt).view({2, 3, 4, 5});
  expect_same_elements(base, "dense");
  expect_same_elements(base.permute({3, 1, 0, 2}), "permuted");
  expect_same_elements(base.slice(3, 1, 5, 2), "sliced in the last dimension");
  expect_same_elements(base.slice(0, 1, 2), "sliced in the first");
  expect_same_elements(base.contiguous(at::MemoryFormat::ChannelsLast), "channels last");
  expect_same_elements(base[0][0].expand({7, 4, 5}), "expanded: stride 0");
  expect_same_elements(base.as_strided({3, 4}, {1, 2}, 5), "overlapping windows");
  expect_same_elements(at::scalar_tensor(3, at::kInt), "0-dim");
  expect_same_elements(base.slice(0, 0, 0), "empty");
  expect_same_elements(at::empty({0}), "empty");
  expect_same_elements(at::_efficientzerotensor({2, 3}, at::kFloat), "zeros without memory");
  const at::Tensor complex = at::complex(at::rand({4, 6}), at::rand({4, 6}));
  expect_same_elements(complex.conj(), "conjugated");
  expect_same_elements(at::imag(complex.conj()).t(), "negated and transposed");
}

TEST(TensorBlocksTest, RandomViewsOfEveryItemSize) {
  std::mt19937 random(20240607);
  const auto pick = [&random](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  for (int round = 0; round < 200; ++round) {
    const std::vector<at::ScalarType> dtypes = {at::kByte, at::kHalf, at::kFloat, at::kDouble, at::kComplexDouble};
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(pick(1, 4)));
    for (auto& size : sizes) size = pick(1, 6);
    at::Tensor tensor = at::randint(0, 100, sizes, at::kFloat).to(dtypes[static_cast<std::size_t>(pick(0, 4))]);
    if (pick(0, 1) == 1) tensor = tensor.transpose(0, pick(0, tensor.dim() - 1));
    if (pick(0, 1) == 1) tensor = tensor.slice(pick(0, tensor.dim() - 1), pick(0, 1), 100, pick(1, 2));
    EXPECT_EQ(all_blocks(tensor, pick(1, 50)), by_torch(tensor)) << "round " << round << ", sizes " << tensor.sizes();
  }
}

TEST(TensorBlocksTest, DenseElementsAreNotCopied) {
  const at::Tensor tensor = at::arange(1000, at::kFloat);
  TensorBlocks blocks(tensor, 100);
  ASSERT_TRUE(blocks.next());
  ASSERT_TRUE(blocks.next());
  EXPECT_EQ(static_cast<const void*>(blocks.data()), static_cast<const void*>(tensor.const_data_ptr<float>() + 100));
}

TEST(TensorBlocksTest, WhatHasNoValuesIsRefusedWithItsReason) {
  EXPECT_EQ(why_unreadable(at::ones({2})), "");
  EXPECT_EQ(why_unreadable(at::empty({0})), "");
  EXPECT_NE(why_unreadable(at::Tensor()).find("undefined"), std::string::npos);
  EXPECT_NE(why_unreadable(at::empty({2}, at::kMeta)).find("meta"), std::string::npos);
  EXPECT_NE(why_unreadable(at::ones({2, 2}).to_sparse()).find("Sparse"), std::string::npos);
  EXPECT_NE(why_unreadable(at::ones({2, 2}).to_sparse_csr()).find("SparseCsr"), std::string::npos);
  EXPECT_NE(why_unreadable(at::quantize_per_tensor(at::ones({2}), 0.1, 0, at::kQInt8)).find("quantized"),
            std::string::npos);
  const at::Tensor list[] = {at::ones({2, 3}), at::ones({4, 3})};
  EXPECT_NE(why_unreadable(at::_nested_tensor_from_tensor_list(list)).find("nested"), std::string::npos);
}

TEST(TensorBlocksTest, AStorageFreedUnderItsTensorIsRefused) {
  const at::Tensor tensor = at::ones({100});
  tensor.storage().unsafeGetStorageImpl()->set_nbytes(0);  // as sharded training frees a gathered parameter
  EXPECT_NE(why_unreadable(tensor).find("freed"), std::string::npos);
}

TEST(TensorBlocksTest, PlacesThatNoStorageHasAreUnreadable) {
  at::Tensor tensor = at::ones({4});
  const std::vector<std::int64_t> sizes = {5};
  const std::vector<std::int64_t> strides = {std::int64_t{1} << 62};
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  EXPECT_NE(why_unreadable(tensor), "");
  tensor = at::ones({4});
  tensor.unsafeGetTensorImpl()->set_storage_offset(-2);
  EXPECT_NE(why_unreadable(tensor), "");
}

TEST(TensorBlocksTest, CoordinatesAreRowMajor) {
  EXPECT_EQ(coordinate_of(0, {2, 3, 4}), (std::vector<std::int64_t>{0, 0, 0}));
  EXPECT_EQ(coordinate_of(23, {2, 3, 4}), (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(coordinate_of(5, {2, 3}), (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(coordinate_of(0, {}), (std::vector<std::int64_t>{}));
}

}  // namespace
}  // namespace dbg::base
