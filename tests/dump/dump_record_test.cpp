// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Facts about record files: what is written, what is listed, what is refused.
#include "dump/dump_record.h"

#include <ATen/ATen.h>
#include <caffe2/serialize/inline_container.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "codec/archive.h"
#include "codec/archive_reader.h"
#include "codec/pickle_bytes_maker.h"
#include "codec/pickle_writer.h"
#include "codec/zip_writer.h"
#include "dbg/error.h"
#include "dump/atomic_file.h"
#include "support/log_capture.h"
#include "support/temp_folder.h"

namespace dbg {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

c10::impl::GenericDict text_dict() {
  return c10::impl::GenericDict(c10::StringType::get(), c10::AnyType::get());
}

std::string contents_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

DumpRecord record_of(const c10::IValue& value) {
  auto meta = text_dict();
  meta.insert("name", std::string("x"));
  meta.insert("step", std::int64_t{0});
  return {value, meta};
}

class DumpRecordTest : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (temp_ / name).string(); }
  test::TempFolder temp_;
};

TEST_F(DumpRecordTest, IsADictOfValueAndMeta) {
  const at::Tensor tensor = at::arange(3).to(at::kFloat);
  write_record(path("x.pt"), record_of(tensor));
  caffe2::serialize::PyTorchStreamReader reader(path("x.pt"));
  const auto [pickle, size] = reader.getRecord("data.pkl");
  const std::string text(static_cast<const char*>(pickle.get()), size);
  EXPECT_LT(text.find("value"), text.find("meta"));
  EXPECT_THAT(text, HasSubstr("}(X"));
  const auto [data, data_size] = reader.getRecord("data/0");
  ASSERT_EQ(data_size, 12u);
  EXPECT_EQ(std::memcmp(data.get(), tensor.const_data_ptr(), data_size), 0);
}

// The examples in the header that owns the format.
TEST_F(DumpRecordTest, TheDescribedExampleIsARecord) {
  const char* source = std::getenv("DBG_TEST_SOURCE_DIR");
  ASSERT_NE(source, nullptr) << "run by ctest, which sets DBG_TEST_SOURCE_DIR";
  std::istringstream header(contents_of(std::string(source) + "/include/dbg/dump_record.h"));
  std::string dict, name;
  for (std::string line; std::getline(header, line);) {
    if (const auto start = line.find("{\"value\": "); start != std::string::npos) dict = line.substr(start);
    if (const auto start = line.find("step=0___"); start != std::string::npos) name = line.substr(start);
  }
  ASSERT_FALSE(name.empty());
  ASSERT_FALSE(dict.empty());
  for (const auto& [from, to] : {std::pair{"<the value>", "null"}, std::pair{", ...", ""}}) {
    ASSERT_NE(dict.find(from), std::string::npos) << dict;
    dict.replace(dict.find(from), std::string_view(from).size(), to);
  }
  const auto described = nlohmann::ordered_json::parse(dict);
  auto meta = text_dict();
  for (const auto& [key, value] : described.at("meta").items()) {
    meta.insert(key,
                value.is_string() ? c10::IValue(value.get<std::string>()) : c10::IValue(value.get<std::int64_t>()));
  }
  write_record(path(name), {c10::IValue(), meta});
  EXPECT_THAT(list_records(temp_.path()), ElementsAre(path(name)));
  const c10::impl::GenericDict root = codec::read_archive_file(path(name)).toGenericDict();
  ASSERT_EQ(root.size(), described.size());
  for (const auto& [key, value] : described.items()) EXPECT_TRUE(root.contains(key)) << key;
  EXPECT_EQ(root.at("meta").toGenericDict().size(), described.at("meta").size());
  EXPECT_EQ(root.at("meta").toGenericDict().at("name").toStringRef(), "x");
}

TEST_F(DumpRecordTest, WorksWithoutAFolderInThePath) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(temp_.path());
  write_record("x.pt", record_of(true));
  std::filesystem::current_path(before);
  EXPECT_TRUE(std::filesystem::exists(path("x.pt")));
}

TEST_F(DumpRecordTest, NeverReplaces) {
  write_record(path("x.pt"), record_of(true));
  const auto size = std::filesystem::file_size(path("x.pt"));
  try {
    write_record(path("x.pt"), record_of(at::ones({100})));
    FAIL();
  } catch (const IoError& error) {
    EXPECT_EQ(error.code(), EEXIST);
    EXPECT_THAT(error.what(), HasSubstr(path("x.pt")));
  }
  EXPECT_EQ(std::filesystem::file_size(path("x.pt")), size);
  EXPECT_FALSE(dumping::store_record(temp_.path(), "x.pt", record_of(true)).is_stored);
  EXPECT_EQ(dumping::store_record(temp_.path(), "y.pt", record_of(true)).size_bytes, size);
}

TEST_F(DumpRecordTest, RefusalsNameThePlaceAndLeaveNothing) {
  auto value = text_dict();
  value.insert("hidden", at::empty({2}, at::kMeta));
  try {
    write_record(path("x.pt"), record_of(value));
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "['value']['hidden']: a tensor on the meta device, which has no values");
  }
  EXPECT_THROW(write_record(path("x.pt"), DumpRecord{true, c10::IValue()}), ConfigError);
  c10::Dict<std::int64_t, bool> by_int;
  by_int.insert(1, true);
  EXPECT_THROW(write_record(path("x.pt"), DumpRecord{true, by_int}), ConfigError);
  EXPECT_TRUE(std::filesystem::is_empty(temp_.path()));
}

TEST_F(DumpRecordTest, FailuresNamePathBytesAndCause) {
  class FullDisk final : public dumping::FileSystem {
   public:
    ssize_t write(int, const void*, std::size_t) noexcept override { return -ENOSPC; }
  } full;
  try {
    dumping::store_record(temp_.path(), "x.pt", record_of(at::ones({1000})), {}, full);
    FAIL();
  } catch (const IoError& error) {
    EXPECT_EQ(error.code(), ENOSPC);
    const auto size = dumping::store_record(temp_.path(), "y.pt", record_of(at::ones({1000}))).size_bytes;
    EXPECT_THAT(error.what(), HasSubstr(path("x.pt")));
    EXPECT_THAT(error.what(), HasSubstr(std::to_string(size) + " bytes"));
    EXPECT_THAT(error.what(), HasSubstr("No space left on device (ENOSPC)"));
  }
  for (const char* bad : {"", ".", "..", "a/b"})
    EXPECT_THROW(dumping::store_record(temp_.path(), bad, record_of(true)), IoError);
}

TEST_F(DumpRecordTest, ComesBackAsWritten) {
  auto value = text_dict();
  value.insert("tensor", at::arange(6).view({2, 3}).t());
  value.insert("list", c10::List<std::int64_t>({1, 2}));
  write_record(path("x.pt"), record_of(value));
  const DumpRecord read = read_record(path("x.pt"));
  EXPECT_TRUE(at::equal(read.value.toGenericDict().at("tensor").toTensor(), at::arange(6).view({2, 3}).t()));
  EXPECT_EQ(read.value.toGenericDict().at("list").toListRef().size(), 2u);
  EXPECT_EQ(read.meta.toGenericDict().size(), 2u);
  EXPECT_EQ(read.meta.toGenericDict().at("name").toStringRef(), "x");
  EXPECT_EQ(read.meta.toGenericDict().at("step").toInt(), 0);
  // Written again it is the same file.
  write_record(path("y.pt"), read);
  EXPECT_EQ(contents_of(path("y.pt")), contents_of(path("x.pt")));
}

TEST_F(DumpRecordTest, FilesThatAreNoRecordsAreErrors) {
  std::ofstream(path("text.pt")) << "hello";
  std::ofstream(path("empty.pt")).flush();
  std::ofstream(path("tensor.pt")) << codec::archive_bytes(at::ones({3}));
  std::ofstream(path("list.pt")) << codec::archive_bytes(c10::List<std::string>({"value", "meta"}));
  auto only_value = text_dict();
  only_value.insert("value", true);
  std::ofstream(path("only_value.pt")) << codec::archive_bytes(only_value);
  auto only_meta = text_dict();
  only_meta.insert("meta", text_dict());
  std::ofstream(path("only_meta.pt")) << codec::archive_bytes(only_meta);
  for (const char* name :
       {"text.pt", "empty.pt", "tensor.pt", "list.pt", "only_value.pt", "only_meta.pt", "missing.pt"}) {
    try {
      read_record(path(name));
      ADD_FAILURE() << name;
    } catch (const IoError& error) {
      EXPECT_THAT(error.what(), HasSubstr(path(name)));
    }
  }
}

// As a copy that was broken off, or a disk that was full, leaves a file: whatever its length, the message says which
// file it is, where in it reading ended and that bytes are missing.
TEST_F(DumpRecordTest, EveryCutOfARecordNamesFileByteAndCause) {
  auto value = text_dict();
  value.insert("tensor", at::arange(5));
  value.insert("view", at::arange(12).view({3, 4}).t());
  write_record(path("whole.pt"), record_of(value));
  write_record(path("unsummed.pt"), record_of(value), {.checksum = false});
  namespace pickled = test::pickled;
  const std::string tensor = pickled::tensor_v2(pickled::storage("FloatStorage", "0", 4), 0, "K\x04", "K\x01");
  std::ofstream(path("stream.pt"), std::ios::binary) << pickled::stream(
      pickled::dict(pickled::text("value") + tensor + pickled::text("meta") + "}"), 4, std::string(16, 'x'));
  for (const char* name : {"whole.pt", "unsummed.pt", "stream.pt"}) {
    const std::string file = path(name);
    ASSERT_NO_THROW(read_record(file)) << name;
    for (std::uintmax_t size = std::filesystem::file_size(file); size-- > 0;) {
      std::filesystem::resize_file(file, size);
      std::string said;
      try {
        read_record(file);
      } catch (const IoError& error) {
        said = error.what();
      }
      const std::string start = "file '" + file + "', byte ";
      ASSERT_THAT(said, StartsWith(start)) << name << " of " << size << " bytes";
      const std::string rest = said.substr(start.size());
      const std::size_t digits = rest.find_first_not_of("0123456789");
      ASSERT_GT(digits, 0u) << said;
      EXPECT_LE(std::stoull(rest.substr(0, digits)), size) << said;
      EXPECT_THAT(rest.substr(digits), AllOf(StartsWith(": "), AnyOf(HasSubstr(" are left"), HasSubstr("it is cut"),
                                                                     HasSubstr("too short"))))
          << said;
    }
  }
}

TEST_F(DumpRecordTest, WhatCantBeHeldIsListed) {
  // {"value": {"a": set(), "b": 1}, "meta": {}}, as Python writes it.
  codec::PickleWriter pickle;
  pickle.empty_dict();
  pickle.mark();
  pickle.text("value");
  pickle.empty_dict();
  pickle.mark();
  pickle.text("a");
  pickle.global("__builtin__", "set");
  pickle.empty_list();
  pickle.tuple_of_last(1);
  pickle.reduce();
  pickle.text("b");
  pickle.integer(1);
  pickle.add_to_dict();
  pickle.text("meta");
  pickle.empty_dict();
  pickle.add_to_dict();
  const std::string bytes = pickle.finish();
  {
    dumping::AtomicFile file(temp_.path());
    codec::ZipWriter zip(file, true);
    zip.add("archive/data.pkl", bytes.data(), bytes.size());
    zip.add("archive/version", "3\n", 2);
    ASSERT_EQ(zip.finish(), 0);
    ASSERT_TRUE(file.publish("x.pt"));
  }
  std::vector<std::string> left_out;
  const DumpRecord read = read_record(path("x.pt"), &left_out);
  EXPECT_THAT(left_out, ElementsAre(AllOf(HasSubstr("['a']"), HasSubstr("set"))));
  EXPECT_EQ(read.value.toGenericDict().size(), 1u);
  EXPECT_EQ(read.value.toGenericDict().at("b").toInt(), 1);
  test::LogCapture log;
  read_record(path("x.pt"));
  EXPECT_EQ(log.count(path("x.pt")), 1u);
}

TEST_F(DumpRecordTest, ReadsWithinTheLimitsItIsGiven) {
  write_record(path("x.pt"), record_of(at::ones({100})));
  ReadLimits limits;
  limits.max_tensor_bytes = 399;
  EXPECT_THAT([&] { read_record(path("x.pt"), nullptr, limits); },
              testing::ThrowsMessage<IoError>(AllOf(HasSubstr(path("x.pt")), HasSubstr("a storage of 400 bytes"),
                                                    HasSubstr("read it with a larger ReadLimits::max_tensor_bytes"))));
  limits.max_tensor_bytes = 400;
  EXPECT_TRUE(at::equal(read_record(path("x.pt"), nullptr, limits).value.toTensor(), at::ones({100})));
}

TEST_F(DumpRecordTest, ListsRecordsInOrderAndNothingElse) {
  const std::vector<std::string> in_order = {
      "step=0___rank=0___dump_index=2___name=x.pt",  "step=0___rank=0___dump_index=10___name=a.pt",
      "step=0___rank=1___dump_index=1___name=x.pt",  "step=2___rank=0___dump_index=3___name=x___layer_id=3.pt",
      "step=10___rank=0___dump_index=4___name=x.pt",
  };
  for (auto name = in_order.rbegin(); name != in_order.rend(); ++name) write_record(path(*name), record_of(true));
  for (const char* foreign : {"model.pt", "step=1___rank=0.pt", "step=1___rank=x___dump_index=1.pt",
                              "step=1___rank=0___dump_index=1.txt", "step=1___rank=0___dump_index=1.pt.tmp",
                              ".step=1___rank=0___dump_index=1.pt", "step=1 ___rank=0___dump_index=1.pt"}) {
    std::ofstream(path(foreign)) << "x";
  }
  std::filesystem::create_directory(path("step=1___rank=0___dump_index=1.pt"));
  std::vector<std::string> expected;
  for (const std::string& name : in_order) expected.push_back(path(name));
  EXPECT_EQ(list_records(temp_.path()), expected);
}

TEST_F(DumpRecordTest, AMissingFolderCantBeListed) {
  try {
    list_records(path("missing"));
    FAIL();
  } catch (const IoError& error) {
    EXPECT_EQ(error.code(), ENOENT);
    EXPECT_THAT(error.what(), HasSubstr(path("missing")));
  }
}

}  // namespace
}  // namespace dbg
