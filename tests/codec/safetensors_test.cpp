// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Tests of the safetensors reader against files written byte by byte.
#include "dbg/safetensors.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "dbg/error.h"
#include "support/memory_limit.h"
#include "support/temp_folder.h"

namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class SafetensorsTest : public testing::Test {
 protected:
  void write_raw(const std::string& bytes) const { std::ofstream(path_, std::ios::binary) << bytes; }

  /// A file of this header text and this data.
  void write(const std::string& header, const std::string& data) const {
    std::string length(8, '\0');
    for (std::size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(header.size() >> (8 * i) & 0xff);
    write_raw(length + header + data);
  }

  dbg::SafetensorsFile open() const { return dbg::SafetensorsFile::open(path_.string()); }

  /// What opening says; fails the test when it goes through.
  std::string refusal() const {
    try {
      open();
    } catch (const dbg::IoError& error) {
      EXPECT_THAT(error.what(), HasSubstr(path_.string()));
      return error.what();
    }
    ADD_FAILURE() << "opened";
    return {};
  }

  dbg::test::TempFolder folder_;
  std::filesystem::path path_ = folder_ / "model.safetensors";
};

template <class T>
std::string bytes_of(std::initializer_list<T> values) {
  std::string out(values.size() * sizeof(T), '\0');
  std::memcpy(out.data(), std::data(values), out.size());
  return out;
}

TEST_F(SafetensorsTest, ReadsNamesShapesValuesAndMetadata) {
  // The example of the format's description in dbg/safetensors.h, with two tensors in the other order of their bytes.
  write(R"({"__metadata__":{"format":"pt"},"b":{"dtype":"I16","shape":[2],"data_offsets":[24,28]},)"
        R"("a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}   )",
        bytes_of<float>({0, 1, 2, 3, 4, 5}) + bytes_of<std::int16_t>({-7, 7}));
  const auto file = open();
  EXPECT_THAT(file.names(), ElementsAre("a", "b"));
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_TRUE(at::equal(file.tensor("a"), at::arange(6, at::kFloat).reshape({2, 3})));
  EXPECT_TRUE(at::equal(file.tensor("b"), at::tensor({-7, 7}, at::kShort)));
  EXPECT_EQ(file.info("b").size_bytes, 4u);
  EXPECT_TRUE(file.contains("a"));
  EXPECT_FALSE(file.contains("c"));
}

TEST_F(SafetensorsTest, TensorOutlivesTheFile) {
  write(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})", "abc");
  at::Tensor tensor;
  {
    const auto file = open();
    tensor = file.tensor("a");
  }
  std::filesystem::remove(path_);
  EXPECT_TRUE(at::equal(tensor, at::tensor({97, 98, 99}, at::kByte)));
}

TEST_F(SafetensorsTest, ScalarEmptyAndNoTensors) {
  write(
      R"({"e":{"dtype":"F64","shape":[0,4],"data_offsets":[8,8]},"s":{"dtype":"F64","shape":[],"data_offsets":[0,8]}})",
      bytes_of<double>({0.5}));
  const auto file = open();
  EXPECT_EQ(file.tensor("s").dim(), 0);
  EXPECT_EQ(file.tensor("s").item<double>(), 0.5);
  EXPECT_EQ(file.tensor("e").sizes(), (at::IntArrayRef{0, 4}));
  write("{}", "");
  EXPECT_TRUE(open().names().empty());
}

TEST_F(SafetensorsTest, EveryDtype) {
  const std::pair<const char*, at::ScalarType> dtypes[] = {
      {"BOOL", at::kBool},     {"U8", at::kByte},
      {"I8", at::kChar},       {"F8_E5M2", at::kFloat8_e5m2},
      {"I16", at::kShort},     {"F8_E4M3", at::kFloat8_e4m3fn},
      {"U16", at::kUInt16},    {"F8_E5M2FNUZ", at::kFloat8_e5m2fnuz},
      {"F16", at::kHalf},      {"F8_E4M3FNUZ", at::kFloat8_e4m3fnuz},
      {"BF16", at::kBFloat16}, {"F8_E8M0", at::ScalarType::Float8_e8m0fnu},
      {"I32", at::kInt},       {"U32", at::kUInt32},
      {"F32", at::kFloat},     {"C64", at::kComplexFloat},
      {"F64", at::kDouble},    {"I64", at::kLong},
      {"U64", at::kUInt64},
  };
  for (const auto& [name, dtype] : dtypes) {
    SCOPED_TRACE(name);
    const std::size_t size_bytes = 3 * c10::elementSize(dtype);
    std::string data(size_bytes, '\0');
    for (std::size_t i = 0; i < size_bytes; ++i) data[i] = static_cast<char>(dtype == at::kBool ? i % 2 : i + 1);
    write(std::string(R"({"t":{"dtype":")") + name + R"(","shape":[3],"data_offsets":[0,)" +
              std::to_string(size_bytes) + "]}}",
          data);
    const at::Tensor tensor = open().tensor("t");
    EXPECT_EQ(tensor.scalar_type(), dtype);
    EXPECT_EQ(std::memcmp(tensor.const_data_ptr(), data.data(), size_bytes), 0);
  }
}

TEST_F(SafetensorsTest, PacksF4InPairsAndRefusesOnlyTheTensorThatTorchHasNoDtypeFor) {
  write(
      R"({"four":{"dtype":"F4","shape":[2,4],"data_offsets":[0,4]},"six":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[4,7]}})",
      "1234567");
  const auto file = open();
  EXPECT_THAT(file.info("four").shape, ElementsAre(2, 2));
  if (file.info("four").dtype != at::ScalarType::Undefined) {
    EXPECT_EQ(std::memcmp(file.tensor("four").const_data_ptr(), "1234", 4), 0);
  }
  EXPECT_THAT([&] { file.tensor("six"); },
              testing::ThrowsMessage<dbg::IoError>(testing::AllOf(HasSubstr("'six'"), HasSubstr("F6_E2M3"))));
}

TEST_F(SafetensorsTest, UnknownNameIsAConfigErrorThatSaysWhatThereIs) {
  write(R"({"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})", "x");
  const auto file = open();
  EXPECT_THAT([&] { file.tensor("b"); },
              testing::ThrowsMessage<dbg::ConfigError>(testing::AllOf(HasSubstr("'b'"), HasSubstr("'a'"))));
}

TEST_F(SafetensorsTest, RefusesFilesThatAreNoneOrCut) {
  EXPECT_THAT(refusal(), HasSubstr("No such file"));
  write_raw("");
  EXPECT_THAT(refusal(), HasSubstr("8 bytes are needed here and 0 are left"));
  write_raw("1234567");
  EXPECT_THAT(refusal(), HasSubstr("byte 0"));
  write_raw(std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10));
  EXPECT_THAT(refusal(), HasSubstr("header length 9223372036854775807 is above 100000000"));
  write_raw(std::string("\x10\0\0\0\0\0\0\0{}", 10));
  EXPECT_THAT(refusal(), HasSubstr("header length 16 is above the 2 bytes that follow"));
  write_raw(std::string("\x01\0\0\0\0\0\0\0{", 9));
  EXPECT_THAT(refusal(), HasSubstr("no valid JSON"));
  write(" {}", "");
  EXPECT_THAT(refusal(), HasSubstr("does not begin with '{'"));
}

TEST_F(SafetensorsTest, RefusesAFolderAndAFifoAtOnce) {
  std::filesystem::create_directory(path_);
  EXPECT_THAT(refusal(), HasSubstr("regular file"));
  std::filesystem::remove(path_);
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT(refusal(), HasSubstr("regular file"));
}

TEST_F(SafetensorsTest, RefusesWrongOffsets) {
  const auto header = [](const std::string& a, const std::string& b) {
    return R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + a +
           R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + b + "}}";
  };
  write(header("[0,4]", "[4,9]"), "12345678");
  EXPECT_THAT(refusal(), HasSubstr("data_offsets [4, 9] do not lie in the 8 bytes"));
  write(header("[0,4]", "[8,4]"), "12345678");
  EXPECT_THAT(refusal(), HasSubstr("do not lie"));
  write(header("[0,4]", "[3,7]"), "12345678");
  EXPECT_THAT(refusal(), HasSubstr("an overlap"));
  write(header("[0,4]", "[5,9]"), "123456789");
  EXPECT_THAT(refusal(), HasSubstr("a gap"));
  write(header("[0,4]", "[4,8]"), "123456789");
  EXPECT_THAT(refusal(), HasSubstr("1 bytes after the last tensor"));
  write(header("[0,4]", "[4,7]"), "1234567");
  EXPECT_THAT(refusal(), HasSubstr("shape [4] of U8 does not make the 3 bytes"));
  write(header("[0,4]", "[4,8,8]"), "12345678");
  EXPECT_THAT(refusal(), HasSubstr("data_offsets of not two"));
}

TEST_F(SafetensorsTest, RefusesShapesThatOverflow) {
  for (const char* shape :
       {"[4294967296,4294967296]", "[18446744073709551615]", "[9223372036854775808,0]", "[0,4294967296,4294967296]"}) {
    SCOPED_TRACE(shape);
    write(std::string(R"({"a":{"dtype":"U8","shape":)") + shape + R"(,"data_offsets":[0,0]}})", "");
    EXPECT_THAT(refusal(), HasSubstr("does not make the 0 bytes"));
  }
  std::string many = "1";
  for (int i = 0; i < 64; ++i) many += ",1";
  write(R"({"a":{"dtype":"U8","shape":[)" + many + R"(],"data_offsets":[0,1]}})", "x");
  EXPECT_THAT(refusal(), HasSubstr("too many numbers"));
}

TEST_F(SafetensorsTest, RefusesHeadersOfAnotherShape) {
  const std::string entry = R"({"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  const std::pair<std::string, const char*> headers[] = {
      {R"({"a":)" + entry + R"(,"a":)" + entry + "}", "'a' stands there twice"},
      {R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "second key 'dtype'"},
      {R"({"a":{"dtype":"U8","shape":[1]}})", "lacks dtype, shape or data_offsets"},
      {R"({"a":{"dtype":"U9","shape":[1],"data_offsets":[0,1]}})", "unknown dtype 'U9'"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}})", "unknown or second key 'x'"},
      {R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", "a negative number"},
      {R"({"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})", "no integer"},
      {R"({"a":{"dtype":["U8"],"shape":[1],"data_offsets":[0,1]}})", "an array in the wrong place"},
      {R"({"a":{"dtype":"U8","shape":[[1]],"data_offsets":[0,1]}})", "an array in the wrong place"},
      {R"({"a":{"dtype":"U8","shape":"1","data_offsets":[0,1]}})", "a text in the wrong place"},
      {R"({"a":{"dtype":"U8","shape":{},"data_offsets":[0,1]}})", "an object in the wrong place"},
      {R"({"a":[]})", "an array in the wrong place"},
      {R"({"a":null})", "a null in the wrong place"},
      {R"({"a":true})", "a boolean in the wrong place"},
      {R"({"a":1})", "a number in the wrong place"},
      {R"({"__metadata__":{"k":1}})", "a number in the wrong place"},
      {R"({"__metadata__":{"k":"1","k":"2"}})", "metadata 'k' twice"},
      {R"({"__metadata__":{},"__metadata__":{}})", "stands there twice"},
      {R"({"a":)" + entry + "}x", "no valid JSON"},
      {R"({"a":)" + entry + ",}", "no valid JSON"},
      {"{\"\xff\":" + entry + "}", "no valid JSON"},
      {"{" + std::string(1000, '['), "no valid JSON"},
      {R"({"a":)" + std::string(100000, '['), "an array in the wrong place"},
  };
  for (const auto& [header, cause] : headers) {
    SCOPED_TRACE(header.substr(0, 100));
    write(header, "x");
    EXPECT_THAT(refusal(), HasSubstr(cause));
  }
}

TEST_F(SafetensorsTest, ARefusalNamesItsByteInTheHeader) {
  const std::string a = R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  const auto place = [&](const std::string& header, const std::string& last) {
    write(header, "x");
    return HasSubstr("byte " + std::to_string(8 + header.find(last) + last.size() - 1) + ": ");
  };
  const auto wrong_value = place("{" + a + R"(,"b":null})", "null");
  EXPECT_THAT(refusal(), wrong_value);
  const auto second_key = place(R"({"a":{"dtype":"U8","dtype":"U8"}})", R"(8","dtype")");
  EXPECT_THAT(refusal(), second_key);
  const auto no_json = place("{" + a + ";}", ";");
  EXPECT_THAT(refusal(), no_json);
  const auto unknown_dtype = place("{" + a + R"(,"b":{"dtype":"U9","shape":[],"data_offsets":[1,1]}})", R"("b":{)");
  EXPECT_THAT(refusal(), unknown_dtype);
}

TEST_F(SafetensorsTest, WithoutMemoryForATensorTheErrorNamesIt) {
  if (!dbg::test::kMemoryLimitWorks) GTEST_SKIP() << "a sanitizer ends the process where an allocation fails";
  const std::uint64_t size_bytes = std::uint64_t{8} << 30;
  const std::string end = std::to_string(size_bytes);
  write(R"({"large":{"dtype":"U8","shape":[)" + end + R"(],"data_offsets":[0,)" + end + "]}}", "");
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) + size_bytes);  // takes no room on the disk
  const auto file = open();
  const dbg::test::MemoryLimit limit(std::size_t{1} << 30);
  EXPECT_THAT([&] { file.tensor("large"); },
              testing::ThrowsMessage<dbg::IoError>(HasSubstr("no memory for the 8589934592 bytes of tensor 'large'")));
}

TEST_F(SafetensorsTest, MessageStaysOneShortLineWhateverTheNameHolds) {
  write(R"({")" + std::string(5000, 'n') + R"(\n\u001b":{"dtype":"U9","shape":[1],"data_offsets":[0,1]}})", "x");
  const std::string text = refusal();
  EXPECT_LT(text.size(), 400u);
  EXPECT_EQ(text.find('\n'), std::string::npos);
}

TEST_F(SafetensorsTest, FileCutAfterOpeningIsAnError) {
  write(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", "abcd");
  const auto file = open();
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) - 2);
  EXPECT_THAT([&] { file.tensor("a"); }, testing::ThrowsMessage<dbg::IoError>(HasSubstr("cut while being read")));
}

TEST_F(SafetensorsTest, NoMutationOfAFileDoesMoreThanThrowIoError) {
  write(
      R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[0],"data_offsets":[8,8]}})",
      "12345678");
  std::string whole;
  {
    std::ifstream in(path_, std::ios::binary);
    whole.assign(std::istreambuf_iterator<char>(in), {});
  }
  std::mt19937 random(7);
  int opened = 0;
  for (int round = 0; round < 500; ++round) {
    std::string changed = whole;
    for (unsigned i = 0; i <= random() % 3; ++i) changed[random() % changed.size()] = static_cast<char>(random());
    if (random() % 4 == 0) changed.resize(random() % changed.size());
    write_raw(changed);
    try {
      const auto file = open();
      for (const auto& info : file.tensors()) file.tensor(info.name);
      ++opened;
    } catch (const dbg::IoError&) {
    }
  }
  EXPECT_GT(opened, 2);    // changed values and names
  EXPECT_LT(opened, 350);  // changed everything else
}

}  // namespace
