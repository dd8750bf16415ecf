// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Facts about the archives we write, read back by torch's own C++ reader; tests/interop reads them by torch.load.
#include "codec/archive.h"

#include <ATen/ATen.h>
#include <caffe2/serialize/in_memory_adapter.h>
#include <caffe2/serialize/inline_container.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "codec/crc32.h"
#include "codec/zip_writer.h"
#include "dbg/error.h"

namespace dbg::codec {
namespace {

using std::string_literals::operator""s;
using testing::ElementsAre;
using testing::HasSubstr;

std::unique_ptr<caffe2::serialize::PyTorchStreamReader> reader_of(const std::string& bytes) {
  return std::make_unique<caffe2::serialize::PyTorchStreamReader>(
      std::make_shared<caffe2::serialize::MemoryReadAdapter>(bytes.data(), static_cast<off_t>(bytes.size())));
}

std::string entry(const std::string& archive, const std::string& name) {
  const auto [data, size] = reader_of(archive)->getRecord(name);
  return std::string(static_cast<const char*>(data.get()), size);
}

std::string raw(const at::Tensor& tensor) {
  const at::Tensor plain = tensor.contiguous();
  return std::string(static_cast<const char*>(plain.const_data_ptr()), plain.nbytes());
}

// Takes `capacity` bytes, then fails; counts the calls.
class SmallSink final : public ByteSink {
 public:
  explicit SmallSink(std::size_t capacity, int error = ENOSPC) : capacity_(capacity), error_(error) {}

  int write(const void* data, std::size_t size) noexcept override {
    pieces.emplace_back(data, size);
    if (taken.size() + size > capacity_) return error_;
    taken.append(static_cast<const char*>(data), size);
    return 0;
  }

  std::string taken;
  std::vector<std::pair<const void*, std::size_t>> pieces;

 private:
  std::size_t capacity_;
  int error_;
};

TEST(Crc32Test, IsThatOfZip) {
  EXPECT_EQ(crc32("123456789", 9), 0xCBF43926u);
  EXPECT_EQ(crc32("", 0), 0u);
  EXPECT_EQ(crc32("6789", 4, crc32("12345", 5)), 0xCBF43926u);
}

TEST(Crc32Test, FoldingAndTablesAgree) {
  std::mt19937 random(7);
  std::vector<unsigned char> bytes(5000);
  for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random());
  for (int i = 0; i < 20000; ++i) {
    const std::size_t offset = random() % 64;
    const std::size_t size = random() % (i % 2 == 0 ? 300 : bytes.size() - 64);
    const auto previous = static_cast<std::uint32_t>(random());
    ASSERT_EQ(crc32(&bytes[offset], size, previous), crc32_portable(&bytes[offset], size, previous)) << size;
  }
}

TEST(ArchiveTest, HoldsTheEntriesThatTorchReads) {
  const at::Tensor tensor = at::arange(3).to(at::kFloat);
  const std::string bytes = archive_bytes(tensor);
  EXPECT_EQ(entry(bytes, "byteorder"), "little");
  EXPECT_EQ(entry(bytes, "version"), "3\n");
  EXPECT_EQ(entry(bytes, "data/0"), raw(tensor));
  EXPECT_EQ(entry(bytes, "data.pkl"),
            "\x80\x02"
            "ctorch._utils\n_rebuild_tensor_v2\nq\0"
            "((X\7\0\0\0storagectorch\nFloatStorage\nq\1X\1\0\0\0000X\3\0\0\0cpuK\3tQ"
            "K\0K\3\x85K\1\x85\x89"
            "ccollections\nOrderedDict\nq\2)RtR."s);
}

TEST(ArchiveTest, HasTheEntriesThatItsHeaderDescribes) {
  const char* source = std::getenv("DBG_TEST_SOURCE_DIR");
  ASSERT_NE(source, nullptr) << "run by ctest, which sets DBG_TEST_SOURCE_DIR";
  std::ifstream header(std::string(source) + "/src/codec/archive.h");
  std::vector<std::string> described;
  for (std::string line; std::getline(header, line);) {
    const std::size_t start = line.find("- `archive/");
    if (start == std::string::npos) continue;
    std::string name = line.substr(start + 11, line.find('`', start + 3) - start - 11);
    if (const std::size_t number = name.find("<n>"); number != std::string::npos) name.replace(number, 3, 1, '0');
    described.push_back(name);
  }
  EXPECT_THAT(reader_of(archive_bytes(at::ones({1})))->getAllRecords(), testing::UnorderedElementsAreArray(described));
}

TEST(ArchiveTest, YoungDtypesAreUntypedBytes) {
  const std::string bytes = archive_bytes(at::ones({2, 3}, at::kUInt16));
  EXPECT_THAT(entry(bytes, "data.pkl"), HasSubstr("_rebuild_tensor_v3"));
  EXPECT_THAT(entry(bytes, "data.pkl"), HasSubstr("ctorch.storage\nUntypedStorage\n"));
  EXPECT_THAT(entry(bytes, "data.pkl"), HasSubstr("cpuK\x0ct"));
  EXPECT_THAT(entry(bytes, "data.pkl"), HasSubstr("ctorch\nuint16\n"));
  EXPECT_EQ(entry(bytes, "data/0"), "\1\0\1\0\1\0\1\0\1\0\1\0"s);
}

TEST(ArchiveTest, DataStartsAtMultiplesOf64) {
  c10::List<at::Tensor> list;
  for (int i = 0; i < 20; ++i) list.push_back(at::ones({i}, at::kByte));
  const std::string bytes = archive_bytes(list);
  const auto reader = reader_of(bytes);
  for (const std::string& name : reader->getAllRecords()) EXPECT_EQ(reader->getRecordOffset(name) % 64, 0u) << name;
  EXPECT_EQ(reader->getAllRecords().size(), 23u);
}

TEST(ArchiveTest, AViewWritesItsElementsOnly) {
  const at::Tensor large = at::arange(1000000);
  const at::Tensor contiguous_view = large.slice(0, 1000, 1003);
  const at::Tensor strided_view = large.slice(0, 0, 1000000, 400000);
  c10::List<at::Tensor> list({contiguous_view, strided_view});
  const std::string bytes = archive_bytes(list);
  EXPECT_LT(bytes.size(), 2000u);
  EXPECT_EQ(entry(bytes, "data/0"), raw(contiguous_view));
  EXPECT_EQ(entry(bytes, "data/1"), raw(strided_view));
  EXPECT_LT(archive_bytes(contiguous_view).size(), 1500u);
}

TEST(ArchiveTest, WhatIsRepeatedIsWrittenOnce) {
  const std::string scalar = archive_bytes(at::full({1}, 2.f).expand({1 << 11, 1 << 11}));
  EXPECT_LT(scalar.size(), 1500u);
  EXPECT_EQ(entry(scalar, "data/0"), raw(at::full({1}, 2.f)));
  // In the middle, over elements that lie apart, through a lazy conjugation.
  const at::Tensor rows = at::arange(12).view({3, 4}).slice(1, 0, 4, 2);
  EXPECT_EQ(entry(archive_bytes(rows.unsqueeze(1).expand({3, 1000, 2})), "data/0"), raw(rows));
  const at::Tensor complex = at::complex(at::arange(4).to(at::kFloat), at::ones({4}));
  EXPECT_EQ(entry(archive_bytes(complex.conj().expand({5, 4})), "data/0"), raw(at::conj_physical(complex)));
}

TEST(ArchiveTest, ATensorThatIsMetAgainSharesItsBytes) {
  const at::Tensor large = at::arange(1 << 15);
  c10::List<at::Tensor> list;
  for (int i = 0; i < 100; ++i) list.push_back(i % 2 == 0 ? large : large.view_as(large));
  list.push_back(large.slice(0, 1));  // other elements
  list.push_back(large.view(at::kDouble));
  list.push_back(large.view({1 << 14, 2}));
  const std::string bytes = archive_bytes(list);
  EXPECT_EQ(reader_of(bytes)->getAllRecords().size(), 3u + 4u);
  EXPECT_EQ(entry(bytes, "data/0"), raw(large));
  EXPECT_EQ(entry(bytes, "data/1"), raw(large.slice(0, 1)));
  const at::Tensor complex = at::complex(at::arange(4).to(at::kFloat), at::ones({4}));
  const std::string both = archive_bytes(c10::List<at::Tensor>({complex, complex.conj()}));
  EXPECT_EQ(entry(both, "data/0"), raw(complex));
  EXPECT_EQ(entry(both, "data/1"), raw(at::conj_physical(complex)));
}

TEST(ArchiveTest, DenseTensorsAreNotCopied) {
  const at::Tensor large = at::ones({2, 4, 128, 128});
  for (const at::Tensor& tensor : {large, large.contiguous(at::MemoryFormat::ChannelsLast), large.transpose(0, 3),
                                   large[1], at::ones({64, 512}).set_requires_grad(true)}) {
    SmallSink sink(1 << 24);
    write_archive(tensor, sink, {.checksum = false});
    const auto is_tensor = [&](const auto& piece) { return piece.first == tensor.const_data_ptr(); };
    EXPECT_EQ(std::count_if(sink.pieces.begin(), sink.pieces.end(), is_tensor), 1);
  }
}

TEST(ArchiveTest, ConjugateAndNegativeViewsAreResolved) {
  const at::Tensor tensor = at::complex(at::arange(4).to(at::kFloat), at::arange(4).to(at::kFloat) + 1);
  EXPECT_EQ(entry(archive_bytes(tensor.conj()), "data/0"), raw(at::conj_physical(tensor)));
  EXPECT_EQ(entry(archive_bytes(at::imag(tensor.conj())), "data/0"), raw(at::neg(at::imag(tensor))));
  EXPECT_EQ(entry(archive_bytes(at::_efficientzerotensor({2}, at::kFloat)), "data/0"), std::string(8, '\0'));
}

TEST(ArchiveTest, NegativeViewsOfDtypesWithoutNegAreResolved) {
  const auto negative = [](const at::Tensor& tensor) { return entry(archive_bytes(at::_neg_view(tensor)), "data/0"); };
  EXPECT_EQ(negative(at::tensor({1, 0, 65535}, at::kInt).to(at::kUInt16)), "\xff\xff\0\0\1\0"s);
  EXPECT_EQ(negative(at::tensor({1}, at::kInt).to(at::kUInt64)), std::string(8, '\xff'));
  EXPECT_EQ(negative(at::tensor({1.5F, 0.0F}).to(at::kFloat8_e4m3fn)), "\xbc\x80"s);
  EXPECT_EQ(refusal_of(at::_neg_view(at::ones({2}, at::kBool))).value_or(""),
            "a negative view of bool, which has no sign to turn");
}

TEST(ArchiveTest, ASmallValueIsOneWrite) {
  SmallSink sink(1 << 20);
  write_archive(at::ones({3}), sink);
  EXPECT_EQ(sink.pieces.size(), 1u);
  EXPECT_EQ(sink.taken, archive_bytes(at::ones({3})));
}

TEST(ArchiveTest, LargeTensorsComeOutWhole) {
  // Around the sizes where pieces end.
  for (const int size : {65535, 65536, 65537, 262144, 262145, 600000, 1 << 20}) {
    const at::Tensor tensor = at::randint(0, 256, {size}, at::kByte);
    for (const bool checksum : {true, false}) {
      const std::string bytes = archive_bytes(tensor, {.checksum = checksum});
      EXPECT_EQ(entry(bytes, "data/0"), raw(tensor)) << size;
    }
  }
}

TEST(ArchiveTest, SizeIsKnownBeforehand) {
  for (const int size : {0, 3, 300000}) {
    for (const bool checksum : {true, false}) {
      const Archive archive(at::ones({size}), {.checksum = checksum});
      SmallSink sink(1 << 24);
      archive.write_to(sink);
      EXPECT_EQ(archive.size_bytes(), sink.taken.size()) << size << checksum;
    }
  }
}

TEST(ArchiveTest, EqualValuesMakeEqualBytes) {
  EXPECT_EQ(archive_bytes(at::ones({3})), archive_bytes(at::ones({3})));
}

TEST(ArchiveTest, AFailingSinkIsAnIoErrorWithItsErrno) {
  c10::List<at::Tensor> list;
  for (int i = 0; i < 40; ++i) list.push_back(at::ones({3000}));
  const std::uint64_t wanted = Archive(list).size_bytes();
  for (std::size_t capacity = 0; capacity < wanted; capacity += 1777) {
    SmallSink sink(capacity);
    try {
      write_archive(list, sink);
      FAIL() << capacity;
    } catch (const IoError& error) {
      EXPECT_EQ(error.code(), ENOSPC);
      EXPECT_THAT(error.what(), HasSubstr("ENOSPC"));
      EXPECT_THAT(error.what(), HasSubstr(std::to_string(wanted) + " bytes"));
    }
    // Nothing is tried after the first failure.
    EXPECT_LE(sink.taken.size(), capacity);
    std::size_t offered = 0;
    for (const auto& piece : sink.pieces) offered += piece.second;
    EXPECT_EQ(offered, sink.taken.size() + sink.pieces.back().second);
  }
}

TEST(ArchiveTest, ARefusedValueIsNamed) {
  try {
    archive_bytes(c10::List<at::Tensor>({at::ones({1}), at::Tensor()}));
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "[1]: an undefined tensor");
  }
}

TEST(ZipWriterTest, MoreEntriesThanTheOldFormatCounts) {
  SmallSink sink(std::size_t{1} << 30);
  ZipWriter zip(sink, true);
  zip.add("a/version", "3\n", 2);
  const int count = 66000;
  for (int i = 0; i < count; ++i) zip.add("a/" + std::to_string(i), &i, sizeof i);
  ASSERT_EQ(zip.finish(), 0);
  const auto reader = reader_of(sink.taken);
  EXPECT_EQ(reader->getAllRecords().size(), count + 1u);
  const auto [data, size] = reader->getRecord("65999");
  ASSERT_EQ(size, sizeof(int));
  EXPECT_EQ(*static_cast<const int*>(data.get()), 65999);
}

}  // namespace
}  // namespace dbg::codec
