// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// An archive beyond 4 GiB, where zip takes its 64-bit fields: torch's C++ reader and torch.load find every part.
#include <ATen/ATen.h>
#include <caffe2/serialize/inline_container.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/formatted.h"
#include "codec/archive.h"
#include "support/temp_folder.h"

namespace dbg::codec {
namespace {

// Leaves holes where the bytes are zero, so that the file takes next to no disk.
class SparseFile final : public ByteSink {
 public:
  explicit SparseFile(const std::string& path)
      : descriptor_(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)) {}
  ~SparseFile() override { ::close(descriptor_); }

  int write(const void* data, std::size_t size) noexcept override {
    constexpr std::size_t kPiece = std::size_t{1} << 20;
    const auto* bytes = static_cast<const char*>(data);
    while (size > 0) {
      const std::size_t piece = std::min(size, kPiece);
      const bool is_zero = bytes[0] == 0 && std::memcmp(bytes, bytes + 1, piece - 1) == 0;
      if (is_zero && piece == kPiece) {
        if (::lseek(descriptor_, static_cast<off_t>(piece), SEEK_CUR) < 0) return errno;
      } else if (::write(descriptor_, bytes, piece) != static_cast<ssize_t>(piece)) {
        return EIO;
      }
      bytes += piece;
      size -= piece;
    }
    return 0;
  }

 private:
  int descriptor_;
};

TEST(LargeArchiveInteropTest, EntriesBeyond4GiBAreFound) {
  const test::TempFolder folder;
  const std::string path = folder / "large.pt";
  constexpr std::int64_t kBytes = (std::int64_t{4} << 30) + 5;
  {
    // A fresh large allocation is zero already; to touch it would take the memory.
    const at::Tensor large = at::empty({kBytes}, at::kByte);
    large[0] = 7;
    large[-1] = 9;
    c10::List<at::Tensor> list({at::arange(3), large, at::arange(5), at::ones({200000})});
    SparseFile file(path);
    write_archive(list, file, {.checksum = false});
  }
  caffe2::serialize::PyTorchStreamReader reader(path);
  EXPECT_EQ(reader.getRecordSize("data/1"), static_cast<std::size_t>(kBytes));
  EXPECT_EQ(reader.getRecordOffset("data/1") % 64, 0u);
  EXPECT_GT(reader.getRecordOffset("data/2"), static_cast<std::size_t>(kBytes));
  const auto [data, size] = reader.getRecord("data/2");
  ASSERT_EQ(size, 5 * sizeof(std::int64_t));
  EXPECT_EQ(static_cast<const std::int64_t*>(data.get())[4], 4);

  const char* python = std::getenv("DBG_TEST_PYTHON");
  ASSERT_NE(python, nullptr) << "run by ctest, which sets DBG_TEST_PYTHON";
  const std::string program = formatted(
      "import torch, zipfile\n"
      "a, b, c, d = torch.load('{0}', mmap=True)\n"
      "assert a.tolist() == [0, 1, 2] and c.tolist() == [0, 1, 2, 3, 4] and d.sum() == 200000\n"
      "assert b.shape == ({1},) and b[0] == 7 and b[-1] == 9 and b[1] == 0\n"
      "assert zipfile.ZipFile('{0}').getinfo('archive/data/1').file_size == {1}\n",
      path, kBytes);
  EXPECT_EQ(std::system(formatted("'{}' -c \"{}\"", python, program).c_str()), 0);
}

}  // namespace
}  // namespace dbg::codec
