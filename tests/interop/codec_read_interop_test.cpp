// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Reads what torch.save, pickle, safetensors and SGLang's own dumper wrote, and compares it bit by bit.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/formatted.h"
#include "codec/archive_reader.h"
#include "dbg/safetensors.h"
#include "support/temp_folder.h"

namespace {

using json = nlohmann::json;
using dbg::formatted;

std::string hex(std::string_view bytes) {
  std::string text;
  for (const unsigned char byte : bytes) text += formatted("{:02x}", byte);
  return text;
}

/// Appends the elements in row-major order, by strides alone: no torch kernel has a say.
void append_elements(const at::Tensor& tensor, std::int64_t dim, const char* from, std::string& out) {
  const auto width = static_cast<std::int64_t>(tensor.element_size());
  if (dim == tensor.dim()) {
    out.append(from, static_cast<std::size_t>(width));
    return;
  }
  for (std::int64_t i = 0; i < tensor.size(dim); ++i) {
    append_elements(tensor, dim + 1, from + i * tensor.stride(dim) * width, out);
  }
}

/// Python's word for a dtype, stated here and not taken from the code under test.
std::string python_dtype(at::ScalarType dtype) {
  static const std::map<std::string, std::string> others{{"Byte", "uint8"},
                                                         {"Char", "int8"},
                                                         {"Short", "int16"},
                                                         {"Int", "int32"},
                                                         {"Long", "int64"},
                                                         {"Half", "float16"},
                                                         {"Float", "float32"},
                                                         {"Double", "float64"},
                                                         {"Bool", "bool"},
                                                         {"BFloat16", "bfloat16"},
                                                         {"ComplexFloat", "complex64"},
                                                         {"ComplexDouble", "complex128"},
                                                         {"ComplexHalf", "complex32"}};
  std::string name = c10::toString(dtype);
  if (const auto found = others.find(name); found != others.end()) return found->second;
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name;
}

/// What was read, in the words of the Python side.
json told(const c10::IValue& value);

json told_tensor(const at::Tensor& tensor) {
  EXPECT_TRUE(tensor.device().is_cpu());
  EXPECT_FALSE(tensor.requires_grad() || tensor.is_conj() || tensor.is_neg());
  if (tensor.layout() != at::kStrided) {
    static const std::map<at::Layout, std::string> layouts{{at::kSparse, "torch.sparse_coo"},
                                                           {at::kSparseCsr, "torch.sparse_csr"},
                                                           {at::kSparseCsc, "torch.sparse_csc"},
                                                           {at::kSparseBsr, "torch.sparse_bsr"},
                                                           {at::kSparseBsc, "torch.sparse_bsc"}};
    const std::string layout = layouts.at(tensor.layout());
    return {{"kind", "sparse"}, {"layout", layout}, {"dense", told_tensor(tensor.to_dense())}};
  }
  std::string elements;
  if (tensor.numel() != 0) append_elements(tensor, 0, static_cast<const char*>(tensor.const_data_ptr()), elements);
  return {{"kind", "tensor"},
          {"dtype", python_dtype(tensor.scalar_type())},
          {"shape", tensor.sizes().vec()},
          {"stride", tensor.strides().vec()},
          {"hex", hex(elements)}};
}

json told_real(double value) {
  return {{"kind", "float"}, {"bits", formatted("{:016x}", std::bit_cast<std::uint64_t>(value))}};
}

json told(const c10::IValue& value) {
  if (value.isTensor()) return told_tensor(value.toTensor());
  if (value.isNone()) return {{"kind", "none"}};
  if (value.isBool()) return {{"kind", "bool"}, {"value", value.toBool()}};
  if (value.isInt()) return {{"kind", "int"}, {"text", std::to_string(value.toInt())}};
  if (value.isDouble()) return told_real(value.toDouble());
  if (value.isComplexDouble()) {
    const auto number = value.toComplexDouble();
    return {{"kind", "complex"}, {"real", told_real(number.real())}, {"imag", told_real(number.imag())}};
  }
  if (value.isDevice()) return {{"kind", "device"}, {"text", value.toDevice().str()}};
  if (value.isString()) return {{"kind", "str"}, {"hex", hex(value.toStringRef())}};
  json items = json::array();
  if (value.isTuple()) {
    for (const auto& item : value.toTupleRef().elements()) items.push_back(told(item));
    return {{"kind", "tuple"}, {"items", items}};
  }
  if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) items.push_back(told(item));
    return {{"kind", "list"}, {"items", items}};
  }
  if (value.isGenericDict()) {
    for (const auto& entry : value.toGenericDict()) items.push_back({told(entry.key()), told(entry.value())});
    return {{"kind", "dict"}, {"items", items}};
  }
  return {{"kind", value.tagKind()}};
}

/// Where two of them part first, and how.
std::string difference(const json& read, const json& written, const std::string& path = "") {
  if (read == written) return "";
  if (read.is_object() && written.is_object() && read["kind"] == written["kind"] && read.contains("items") &&
      read["items"].size() == written["items"].size()) {
    for (std::size_t i = 0; i < read["items"].size(); ++i) {
      const json& got = read["items"][i];
      const json& want = written["items"][i];
      const std::string inner = path + formatted("[{}]", i);
      const bool is_pair = got.is_array();
      if (is_pair && got[0] != want[0]) return inner + ": key " + got[0].dump() + " for " + want[0].dump();
      const std::string found = is_pair ? difference(got[1], want[1], inner) : difference(got, want, inner);
      if (!found.empty()) return found;
    }
  }
  return path + ": " + read.dump().substr(0, 400) + " for " + written.dump().substr(0, 400);
}

class CodecReadInteropTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new dbg::test::TempFolder;  // gone with the suite
    const char* python = std::getenv("DBG_TEST_PYTHON");
    const char* source = std::getenv("DBG_TEST_SOURCE_DIR");
    const char* sglang = std::getenv("DBG_TEST_SGLANG_DIR");
    ASSERT_TRUE(python != nullptr && source != nullptr && sglang != nullptr) << "run by ctest, which sets them";
    const std::string command = formatted("'{}' '{}/tests/interop/codec_writer.py' '{}' '{}' 2>&1", python, source,
                                          folder_->path().string(), sglang);
    FILE* pipe = ::popen(command.c_str(), "r");
    ASSERT_NE(pipe, nullptr);
    char piece[4096];
    while (const std::size_t got = std::fread(piece, 1, sizeof piece, pipe)) output_.append(piece, got);
    ASSERT_EQ(::pclose(pipe), 0) << output_;
  }
  static void TearDownTestSuite() { delete folder_; }

  static json described(const std::filesystem::path& file) {
    std::ifstream in(std::filesystem::path(file).replace_extension(".json"));
    return json::parse(in);
  }

  /// Reads each file whose name begins so, and holds it against its description.
  static void compare(const std::string& start, int at_least) {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_->path())) {
      const std::filesystem::path& path = entry.path();
      const bool is_archive = path.extension() == ".pt";
      if ((!is_archive && path.extension() != ".pkl") || path.filename().string().rfind(start, 0) != 0) continue;
      SCOPED_TRACE(path.filename());
      ++count;
      std::vector<dbg::codec::Refusal> refusals;
      c10::IValue value;
      if (is_archive) {
        value = dbg::codec::read_archive_file(path.string(), {}, &refusals);
      } else {
        std::ifstream in(path, std::ios::binary);
        const std::string bytes(std::istreambuf_iterator<char>(in), {});
        value = dbg::codec::read_pickle_bytes(bytes.data(), bytes.size(), {}, &refusals);
      }
      const json expected = described(path);
      EXPECT_EQ(difference(told(value), expected["value"]), "");
      std::vector<std::vector<std::string>> listed;
      for (const auto& refusal : refusals) listed.push_back({refusal.path, refusal.reason});
      std::sort(listed.begin(), listed.end());
      EXPECT_EQ(json(listed), expected["refusals"]);
    }
    EXPECT_GE(count, at_least);
  }

  static inline dbg::test::TempFolder* folder_ = nullptr;
  static inline std::string output_;
};

TEST_F(CodecReadInteropTest, ZipArchivesOfEveryProtocol) {
  compare("zip-", 4 * 5);
}

TEST_F(CodecReadInteropTest, OlderStreamsOfEveryProtocol) {
  compare("stream-", 4 * 5);
}

TEST_F(CodecReadInteropTest, BarePicklesOfEveryProtocol) {
  compare("wire-", 4 * 7);
}

TEST_F(CodecReadInteropTest, DefaultsAndNoChecksums) {
  compare("default", 1);
  compare("without-checksum", 1);
  compare("tensor-alone", 1);
  compare("large", 1);
}

TEST_F(CodecReadInteropTest, RecordsOfTheTwin) {
  compare("twin-", 7);
}

TEST_F(CodecReadInteropTest, SafetensorsOfThePackage) {
  const auto path = *folder_ / "every.safetensors";
  const auto file = dbg::SafetensorsFile::open(path.string());
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.metadata().at("n"), "grüße");
  std::map<std::string, json> expected;
  const json written = described(path);
  for (const json& item : written["value"]["items"]) {
    std::string name;
    const std::string digits = item[0]["hex"];
    for (std::size_t i = 0; i < digits.size(); i += 2) {
      name.push_back(static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16)));
    }
    expected[name] = item[1];
  }
  EXPECT_EQ(file.tensors().size(), expected.size());
  EXPECT_GT(expected.size(), 50u);
  for (const auto& info : file.tensors()) {
    SCOPED_TRACE(info.name);
    EXPECT_EQ(difference(told_tensor(file.tensor(info.name)), expected[info.name]), "");
  }
}

}  // namespace
