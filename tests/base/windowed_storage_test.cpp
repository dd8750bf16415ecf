// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A storage that comes in pieces looks like any other to whoever walks it.
#include "base/windowed_storage.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <stdexcept>

#include "base/tensor_blocks.h"
#include "dbg/tensor_info.h"

namespace dbg::base {
namespace {

constexpr std::int64_t kElements = (std::int64_t{100} << 20) / 4;

// Element i is i modulo 1000.
at::Tensor counted(std::vector<std::int64_t> sizes, std::vector<std::int64_t> strides, std::uint64_t* read = nullptr) {
  const c10::Storage storage =
      WindowedStorage::make(kElements * 4, [read](std::uint64_t offset, void* to, std::size_t count) {
        if (offset % 4 != 0 || count % 4 != 0) throw std::logic_error("half an element");
        auto* values = static_cast<std::int32_t*>(to);
        for (std::size_t i = 0; i < count / 4; ++i) values[i] = static_cast<std::int32_t>((offset / 4 + i) % 1000);
        if (read != nullptr) *read += count;
      });
  at::Tensor tensor = at::empty({0}, at::kInt);
  tensor.set_(at::Storage(storage), 0, sizes, strides);
  return tensor;
}

TEST(WindowedStorageTest, IsReadOnceByAWalkAndDescribedAsIfItWereThere) {
  std::uint64_t read = 0;
  const TensorInfo info = describe(counted({kElements}, {1}, &read));
  EXPECT_TRUE(info.has_values) << info.note;
  EXPECT_EQ(info.max, 999);
  EXPECT_EQ(info.zero_count, (kElements + 999) / 1000);
  EXPECT_LT(read, static_cast<std::uint64_t>(kElements) * 4 * 11 / 10);
}

TEST(WindowedStorageTest, TwoAreComparedInStep) {
  at::Tensor other = counted({kElements}, {1});
  EXPECT_TRUE(diff(counted({kElements}, {1}), other).same_bits);
  const at::Tensor shifted = counted({kElements - 1}, {1}).as_strided({kElements - 1}, {1}, 1);
  const TensorDiff difference = diff(counted({kElements - 1}, {1}), shifted);
  EXPECT_EQ(difference.differing, kElements - 1);
}

TEST(WindowedStorageTest, AWalkAcrossTheStorageBringsItAllOnce) {
  std::uint64_t read = 0;
  const std::int64_t rows = 1024;
  const TensorInfo info = describe(counted({kElements / rows, rows}, {1, kElements / rows}, &read));
  EXPECT_EQ(info.max, 999);
  EXPECT_LE(read, static_cast<std::uint64_t>(kElements) * 4 * 2);
}

TEST(WindowedStorageTest, LoadWholeMakesItAnOrdinaryOne) {
  const at::Tensor tensor = counted({kElements}, {1});
  load_whole(tensor.storage());
  EXPECT_EQ(tensor[kElements - 1].item<std::int32_t>(), static_cast<std::int32_t>((kElements - 1) % 1000));
  EXPECT_EQ(tensor[0].item<std::int32_t>(), 0);
  load_whole(at::ones({3}).storage());
}

TEST(WindowedStorageTest, OrdinaryStoragesAreNone) {
  EXPECT_EQ(WindowedStorage::of(at::ones({3}).storage()), nullptr);
  EXPECT_NE(WindowedStorage::of(counted({1}, {1}).storage()), nullptr);
}

TEST(WindowedStorageTest, AReadersErrorComesOutAndTheNextTryReadsAgain) {
  int tries = 0;
  const c10::Storage storage = WindowedStorage::make(64, [&tries](std::uint64_t, void* to, std::size_t count) {
    if (++tries == 1) throw std::runtime_error("not now");
    std::memset(to, 7, count);
  });
  WindowedStorage* windowed = WindowedStorage::of(storage);
  EXPECT_THROW(windowed->require(0, 8), std::runtime_error);
  windowed->require(0, 8);
  EXPECT_EQ(static_cast<const char*>(storage.data())[7], 7);
}

}  // namespace
}  // namespace dbg::base
