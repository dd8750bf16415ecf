// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Tests of the zip directory, through the reader that uses it: unusual archives, and archives that lie.
#include "codec/zip_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>

#include "codec/archive_reading.h"
#include "codec/pickle_bytes_maker.h"
#include "codec/zip_maker.h"
#include "dbg/error.h"
#include "support/memory_limit.h"
#include "support/temp_folder.h"

namespace {

using dbg::test::error_of;
using dbg::test::read;
using dbg::test::zip_of;
using dbg::test::ZipEnd;
using dbg::test::ZipFields;
using dbg::test::pickled::little_endian;
using dbg::test::pickled::whole;
using testing::HasSubstr;

TEST(ZipDirectoryTest, ZipVariantsThatAreFine) {
  const ZipFields pickle{"x/data.pkl", whole("K\x05")};
  EXPECT_EQ(read(zip_of({pickle})).toInt(), 5);
  EXPECT_EQ(read(zip_of({pickle}, [](ZipEnd& end) { end.comment = "PK\x05\x06 is no end"; })).toInt(), 5);
  EXPECT_EQ(read(zip_of({pickle}, [](ZipEnd& end) { end.zip64 = true; })).toInt(), 5);
  EXPECT_EQ(read(zip_of({pickle, {"x/version", "3\n"}, {"x/.data/serialization_id", "1"}, {"other", ""}})).toInt(), 5);
  ZipFields described = pickle;
  described.flags = 0x808;  // what torch sets: sizes follow the data, names are UTF-8
  EXPECT_EQ(read(zip_of({described})).toInt(), 5);
  ZipFields unused{"x/unused", "abc"};
  unused.method = 8;
  EXPECT_EQ(read(zip_of({pickle, unused})).toInt(), 5);
}

TEST(ZipDirectoryTest, Zip64SizesInTheExtra) {
  const ZipFields pickle{"x/data.pkl", whole("K\x05")};
  ZipFields large = pickle;
  large.size = 0xffffffff;
  large.header_offset = 0xffffffff;
  // Another extra first, then uncompressed size, compressed size, offset.
  large.extra = std::string("\x99\x99\x02\x00xx\x01\x00\x18\x00", 10) + little_endian(5, 8) + little_endian(5, 8) +
                little_endian(0, 8);
  EXPECT_EQ(read(zip_of({large})).toInt(), 5);
  large.extra = std::string("\x01\x00\x18\x00", 4) + little_endian(5, 8) + little_endian(6, 8) + little_endian(0, 8);
  EXPECT_THAT(error_of(zip_of({large})), HasSubstr("has two sizes"));
  large.extra = "";
  EXPECT_THAT(error_of(zip_of({large})), HasSubstr("has its header outside the archive"));
  large.extra = std::string("\x01\x00\xff\x00", 4) + little_endian(5, 8);
  EXPECT_THAT(error_of(zip_of({large})), HasSubstr("has its header outside the archive"));
}

TEST(ZipDirectoryTest, ZipsThatLie) {
  const ZipFields pickle{"x/data.pkl", whole("K\x05")};
  const auto changed = [&](const std::function<void(ZipFields&)>& change) {
    ZipFields fields = pickle;
    change(fields);
    return zip_of({fields});
  };
  const auto with_end = [&](const std::function<void(ZipEnd&)>& change) { return zip_of({pickle}, change); };
  const std::pair<std::string, const char*> cases[] = {
      {"PK\x03\x04", "too short for a zip"},
      {"PK\x03\x04" + std::string(100, 'x'), "no end of directory: it is cut"},
      {"", "byte 0: too short for a zip archive or a torch.save stream"},
      {"hello", "neither a zip archive nor a pickle"},
      {changed([](auto& f) { f.method = 8; }), "'x/data.pkl' is compressed (method 8)"},
      {changed([](auto& f) { f.flags = 1; }), "'x/data.pkl' is encrypted"},
      {changed([](auto& f) { f.header_name = "y/data.pkl"; }), "has another name in its header"},
      {changed([](auto& f) { f.header_name = std::string(1000, 'y'); }), "has another name in its header"},
      {changed([](auto& f) { f.size = 100; }), "has 100 bytes where 5 are left"},
      {changed([](auto& f) { f.size = 0xfffffffe; }), "where 5 are left"},
      {changed([](auto& f) { f.header_offset = 3; }), "has no header where it should be"},
      {changed([](auto& f) { f.header_offset = 0xfffffffe; }), "has its header outside"},
      {changed([](auto& f) { f.checksum = 12345; }), "do not fit their checksum"},
      {changed([](auto& f) { f.name = "data.pkl"; }), "without a data.pkl"},
      {changed([](auto& f) { f.name = "a/b/data.pkl"; }), "without a data.pkl"},
      {zip_of({pickle, pickle}), "'x/data.pkl' stands there twice"},
      {zip_of({pickle, {"y/data.pkl", "x"}}), "two folders with a data.pkl"},
      {zip_of({pickle, {"x/constants.pkl", "x"}}), "a TorchScript archive"},
      {with_end([](auto& end) { end.disk = 1; }), "several disks"},
      {with_end([](auto& end) { end.entries = 2; }), "2 zip entries, where"},
      {with_end([](auto& end) { end.entries = 0; }), "mostly filler"},
      {with_end([](auto& end) { end.records_bytes = 40; }), "1 zip entries, where 40 bytes"},
      {with_end([](auto& end) { end.records_bytes = 50; }), "leaves the directory"},
      {with_end([](auto& end) { end.records_bytes = 0xfffffff0; }), "which leaves the archive"},
      {with_end([](auto& end) { end.records_offset += 1; }), "which leaves the archive"},
      {with_end([](auto& end) { end.records_offset -= 1; }), "a zip directory record that is none"},
      {with_end([](auto& end) {
         end.zip64 = true;
         end.end64_offset = 1000000;
       }),
       "zip64 end of directory leaves"},
      {with_end([](auto& end) {
         end.zip64 = true;
         end.end64_offset = 3;
       }),
       "no zip64 end of directory where"},
      {with_end([](auto& end) {
         end.zip64 = true;
         end.disk = 1;
       }),
       "several disks"},
      {with_end([](auto& end) {
         end.zip64 = true;
         end.entries = std::uint64_t{1} << 60;
       }),
       "zip entries, where"},
      {with_end([](auto& end) {
         end.zip64 = true;
         end.records_bytes = std::uint64_t{1} << 60;
       }),
       "which leaves"},
  };
  for (const auto& [bytes, cause] : cases) {
    SCOPED_TRACE(cause);
    EXPECT_THAT(error_of(bytes), HasSubstr(cause));
  }
}

// A file of `records_bytes` bytes of directory, nearly all of it a hole.
std::string hollow_archive(const std::filesystem::path& path, std::uint64_t records_bytes) {
  const std::string start = "PK\x03\x04";
  const std::string end = zip_of({}, [&](ZipEnd& fields) {
    fields.zip64 = true;
    fields.entries = records_bytes / 4096 + 1;
    fields.records_bytes = records_bytes;
    fields.records_offset = start.size();
    fields.end64_offset = start.size() + records_bytes;
  });
  std::ofstream(path, std::ios::binary) << start;
  std::filesystem::resize_file(path, start.size() + records_bytes);
  std::ofstream(path, std::ios::binary | std::ios::app) << end;
  return path.string();
}

TEST(ZipDirectoryTest, ADirectoryIsNotReadAtAnySize) {
  const dbg::test::TempFolder folder;
  const std::string path = hollow_archive(folder / "hollow.pt", std::uint64_t{3} << 30);
  EXPECT_THAT([&] { dbg::codec::read_archive_file(path); },
              testing::ThrowsMessage<dbg::IoError>(
                  HasSubstr("a zip directory of 3221225472 bytes, where 1073741824 are read at most")));
}

TEST(ZipDirectoryTest, WithoutMemoryForTheDirectoryItIsAnIoError) {
  if (!dbg::test::kMemoryLimitWorks) GTEST_SKIP() << "a sanitizer ends the process where an allocation fails";
  const dbg::test::TempFolder folder;
  const std::string path = hollow_archive(folder / "hollow.pt", std::uint64_t{1} << 30);
  const dbg::test::MemoryLimit limit(std::size_t{256} << 20);
  EXPECT_THAT([&] { dbg::codec::read_archive_file(path); },
              testing::ThrowsMessage<dbg::IoError>(HasSubstr("no memory for 1073741824 bytes of a zip")));
}

}  // namespace
