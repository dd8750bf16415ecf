// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Writes archives of every dtype and container and has Python's default torch.load judge them, bit by bit.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/formatted.h"
#include "codec/archive.h"
#include "dbg/dump_record.h"

namespace dbg::codec {
namespace {

using json = nlohmann::json;

std::string hex(std::string_view bytes) {
  std::string text;
  for (const unsigned char byte : bytes) text += formatted("{:02x}", byte);
  return text;
}

// The elements in row-major order, read one by one through the strides: no torch kernel has a say.
std::string elements_of(const at::Tensor& tensor) {
  const auto* base = static_cast<const char*>(tensor.const_data_ptr());
  const std::size_t width = tensor.element_size();
  std::string bytes;
  const std::function<void(std::int64_t, std::int64_t)> walk = [&](std::int64_t dim, std::int64_t offset) {
    if (dim == tensor.dim()) {
      bytes.append(base + offset * static_cast<std::int64_t>(width), width);
      return;
    }
    for (std::int64_t i = 0; i < tensor.size(dim); ++i) walk(dim + 1, offset + i * tensor.stride(dim));
  };
  walk(0, 0);
  return bytes;
}

// `dtype` is Python's word for it, stated by the test and not taken from the code under test.
json tensor_of(const at::Tensor& tensor, const std::string& dtype) {
  json expected{
      {"kind", "tensor"}, {"dtype", dtype}, {"shape", tensor.sizes().vec()}, {"hex", hex(elements_of(tensor))}};
  if (tensor.is_non_overlapping_and_dense()) expected["stride"] = tensor.strides().vec();
  return expected;
}

json integer(std::int64_t value) {
  return {{"kind", "int"}, {"text", std::to_string(value)}};
}
json real(double value) {
  return {{"kind", "float"}, {"bits", formatted("{:016x}", std::bit_cast<std::uint64_t>(value))}};
}
json boolean(bool value) {
  return {{"kind", "bool"}, {"value", value}};
}
json text(std::string_view value) {
  return {{"kind", "str"}, {"hex", hex(value)}};
}
json none() {
  return {{"kind", "none"}};
}
json sequence(const char* kind, std::vector<json> items) {
  return {{"kind", kind}, {"items", std::move(items)}};
}

// The folder of cases; removed at the end.
class CodecInteropTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "dbg-codec-interop-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override {
    if (!HasFailure()) std::filesystem::remove_all(folder_);
  }

  void add(const std::string& name, const c10::IValue& value, const json& expected) {
    SCOPED_TRACE(name);
    const std::string bytes = archive_bytes(value, {.checksum = count_ % 2 == 0});
    std::ofstream(folder_ / (name + ".pt"), std::ios::binary) << bytes;
    std::ofstream(folder_ / (name + ".json")) << expected.dump();
    ++count_;
  }

  // A record as write_record makes it.
  void add_record() {
    const at::Tensor tensor = at::arange(6).view({2, 3}).t();
    c10::impl::GenericDict meta(c10::StringType::get(), c10::AnyType::get());
    meta.insert("name", std::string("x"));
    meta.insert("step", std::int64_t{2});
    write_record(folder_ / "record.pt", {tensor, meta});
    const json meta_json{
        {"kind", "dict"},
        {"items", json::array({json::array({text("name"), text("x")}), json::array({text("step"), integer(2)})})}};
    const json expected{{"kind", "dict"},
                        {"items", json::array({json::array({text("value"), tensor_of(tensor, "int64")}),
                                               json::array({text("meta"), meta_json})})}};
    std::ofstream(folder_ / "record.json") << expected.dump();
    ++count_;
  }

  void add_every_dtype_in_every_form();
  void add_special_views();
  void add_sparse_tensors();
  void add_every_container_and_scalar();

  // Runs the judge; its output becomes the failure's text.
  void judge() {
    const char* python = std::getenv("DBG_TEST_PYTHON");
    const char* source = std::getenv("DBG_TEST_SOURCE_DIR");
    ASSERT_TRUE(python != nullptr && source != nullptr) << "run by ctest, which sets DBG_TEST_PYTHON";
    const std::string command =
        formatted("'{}' '{}/tests/interop/codec_judge.py' '{}' 2>&1", python, source, folder_.string());
    FILE* pipe = ::popen(command.c_str(), "r");
    ASSERT_NE(pipe, nullptr);
    std::string output;
    char piece[4096];
    while (const std::size_t got = std::fread(piece, 1, sizeof piece, pipe)) output.append(piece, got);
    EXPECT_EQ(::pclose(pipe), 0) << output << "\nfolder kept: " << folder_;
    EXPECT_NE(output.find(formatted("{} archives read", count_)), std::string::npos) << output;
  }

  std::filesystem::path folder_;
  int count_ = 0;
};

struct Named {
  at::ScalarType dtype;
  const char* python;
};

constexpr Named kDtypes[] = {
    {at::kByte, "uint8"},
    {at::kChar, "int8"},
    {at::kShort, "int16"},
    {at::kInt, "int32"},
    {at::kLong, "int64"},
    {at::kHalf, "float16"},
    {at::kFloat, "float32"},
    {at::kDouble, "float64"},
    {at::kComplexHalf, "complex32"},
    {at::kComplexFloat, "complex64"},
    {at::kComplexDouble, "complex128"},
    {at::kBool, "bool"},
    {at::kBFloat16, "bfloat16"},
    {at::ScalarType::Bits1x8, "bits1x8"},
    {at::ScalarType::Bits2x4, "bits2x4"},
    {at::ScalarType::Bits4x2, "bits4x2"},
    {at::ScalarType::Bits8, "bits8"},
    {at::ScalarType::Bits16, "bits16"},
    {at::kFloat8_e5m2, "float8_e5m2"},
    {at::kFloat8_e4m3fn, "float8_e4m3fn"},
    {at::kFloat8_e5m2fnuz, "float8_e5m2fnuz"},
    {at::kFloat8_e4m3fnuz, "float8_e4m3fnuz"},
    {at::kUInt16, "uint16"},
    {at::kUInt32, "uint32"},
    {at::kUInt64, "uint64"},
    {at::ScalarType::UInt1, "uint1"},
    {at::ScalarType::UInt4, "uint4"},
    {at::ScalarType::UInt7, "uint7"},
};

// A tensor whose bytes are a fixed pattern (0 and 1 where the dtype has no other values).
at::Tensor patterned(at::IntArrayRef sizes, at::ScalarType dtype) {
  at::Tensor tensor = at::empty(sizes, dtype);
  auto* bytes = static_cast<unsigned char*>(tensor.data_ptr());
  for (std::size_t i = 0; i < tensor.nbytes(); ++i) {
    bytes[i] = static_cast<unsigned char>(dtype == at::kBool ? (i % 3 == 0) : (i * 37 + 11));
  }
  return tensor;
}

void CodecInteropTest::add_every_dtype_in_every_form() {
  std::vector<Named> dtypes(std::begin(kDtypes), std::end(kDtypes));
  // Younger than the oldest torch that we build with.
  for (int i = 0; i < static_cast<int>(at::ScalarType::NumOptions); ++i) {
    const auto dtype = static_cast<at::ScalarType>(i);
    if (at::toString(dtype) == std::string_view("Float8_e8m0fnu")) dtypes.push_back({dtype, "float8_e8m0fnu"});
    if (at::toString(dtype) == std::string_view("Float4_e2m1fn_x2")) dtypes.push_back({dtype, "float4_e2m1fn_x2"});
    if (at::toString(dtype) == std::string_view("Int4")) dtypes.push_back({dtype, "int4"});
  }
  for (const Named& named : dtypes) {
    const std::string dtype = named.python;
    const auto check = [&](const char* form, const at::Tensor& tensor) {
      add(dtype + "-" + form, tensor, tensor_of(tensor, dtype));
    };
    const at::Tensor cube = patterned({2, 3, 4, 5}, named.dtype);
    check("whole", cube);
    check("scalar", patterned({}, named.dtype));
    check("empty", patterned({0, 3}, named.dtype));
    check("one", patterned({1, 1}, named.dtype));
    check("transposed", cube.transpose(1, 3));
    check("dense-slice", cube[1]);
    check("column", cube.select(3, 2));
    check("stepped", cube.slice(3, 0, 5, 2));
    check("expanded", patterned({1, 3}, named.dtype).expand({4, 3}));
    check("overlapping", patterned({6}, named.dtype).as_strided({3, 4}, {1, 1}));
    check("channels-last", patterned({2, 5, 4, 3}, named.dtype).permute({0, 3, 1, 2}));
  }
}

void CodecInteropTest::add_special_views() {
  const at::Tensor complex = patterned({3, 4}, at::kComplexFloat);
  add("conj", complex.conj(), tensor_of(at::conj_physical(complex), "complex64"));
  add("conj-slice", complex.conj().select(1, 1), tensor_of(at::conj_physical(complex.select(1, 1)), "complex64"));
  add("conj-double", patterned({3}, at::kComplexDouble).conj(),
      tensor_of(at::conj_physical(patterned({3}, at::kComplexDouble)), "complex128"));
  add("conj-half", patterned({3}, at::kComplexHalf).conj(),
      tensor_of(patterned({3}, at::kComplexHalf).conj().resolve_conj(), "complex32"));
  const at::Tensor finite = at::complex(at::arange(4).to(at::kFloat), at::arange(4).to(at::kFloat));
  add("neg", at::imag(finite.conj()), tensor_of(at::neg(at::imag(finite)).contiguous(), "float32"));
  add("zero", at::_efficientzerotensor({2, 2}, at::kFloat), tensor_of(at::zeros({2, 2}), "float32"));
  const at::Tensor values = patterned({4}, at::kFloat);
  add("leaf", values.clone().set_requires_grad(true), tensor_of(values, "float32"));
  add("graph", values.clone().set_requires_grad(true) * 1, tensor_of(values * 1, "float32"));
  add("channels-last", patterned({2, 3, 4, 5}, at::kFloat).contiguous(at::MemoryFormat::ChannelsLast),
      tensor_of(patterned({2, 3, 4, 5}, at::kFloat).contiguous(at::MemoryFormat::ChannelsLast), "float32"));
  add("many-dims", patterned({1, 2, 1, 2, 1, 2, 1, 2, 1, 2}, at::kShort),
      tensor_of(patterned({1, 2, 1, 2, 1, 2, 1, 2, 1, 2}, at::kShort), "int16"));
  // Repeated elements, and a tensor met again: as torch.save has it.
  json repeated = tensor_of(values.view({4, 1}).expand({4, 1000}), "float32");
  repeated["stride"] = {1, 0};
  repeated["storage_bytes"] = 16;
  add("repeated", values.view({4, 1}).expand({4, 1000}), repeated);
  const json once = tensor_of(values, "float32");
  json again = sequence("list", {once, once, once});
  again["storages"] = 1;
  add("met-again", c10::List<at::Tensor>({values, values, values.view({4})}), again);
  // Larger than the pieces that the checksum is taken in.
  add("large", at::arange(1 << 18), tensor_of(at::arange(1 << 18), "int64"));
  add("view-of-million", at::arange(1000000).slice(0, 10, 13), tensor_of(at::arange(10, 13), "int64"));
}

void CodecInteropTest::add_sparse_tensors() {
  const auto sparse = [&](const char* layout, const at::Tensor& tensor, const at::Tensor& dense) {
    add(layout, tensor,
        {{"kind", "sparse"}, {"layout", formatted("torch.{}", layout)}, {"dense", tensor_of(dense, "float32")}});
  };
  at::Tensor dense = at::zeros({4, 6});
  dense[1][2] = 3;
  dense[3][0] = -1;
  const at::Tensor indices = at::tensor({1, 3, 1, 2, 0, 2}, at::kLong).view({2, 3});
  at::Tensor summed = at::zeros({4, 6});
  summed[1][2] = 6;
  summed[3][0] = 5;
  sparse("sparse_coo", at::sparse_coo_tensor(indices, at::tensor({1.f, 5.f, 5.f}), {4, 6}), summed);
  sparse("sparse_csr", dense.to_sparse_csr(), dense);
  sparse("sparse_csc", dense.to_sparse_csc(), dense);
  sparse("sparse_bsr", dense.to_sparse_bsr({2, 3}), dense);
  sparse("sparse_bsc", dense.to_sparse_bsc({2, 3}), dense);
}

void CodecInteropTest::add_every_container_and_scalar() {
  add("none", c10::IValue(), none());
  add("true", true, boolean(true));
  add("false", false, boolean(false));
  for (const std::int64_t value :
       {std::int64_t{0}, std::int64_t{-1}, std::int64_t{255}, std::int64_t{256}, std::int64_t{65535},
        std::int64_t{65536}, std::int64_t{2147483647}, std::int64_t{2147483648}, std::int64_t{-2147483648},
        std::int64_t{-2147483649}, std::numeric_limits<std::int64_t>::max(),
        std::numeric_limits<std::int64_t>::min()}) {
    add(formatted("int{}", value), value, integer(value));
  }
  int number = 0;
  for (const double value : {0.0, -0.0, 0.1, 1e308, 5e-324, std::numeric_limits<double>::infinity(),
                             -std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    add(formatted("float{}", number++), value, real(value));
  }
  add("complex", c10::complex<double>(1.5, -0.0), {{"kind", "complex"}, {"real", real(1.5)}, {"imag", real(-0.0)}});
  add("device", at::Device(at::kCUDA, 1), {{"kind", "device"}, {"text", "cuda:1"}});
  add("device-cpu", at::Device(at::kCPU), {{"kind", "device"}, {"text", "cpu"}});
  for (const std::string& value :
       {std::string(), std::string("abc"), std::string("a\0b", 3), std::string("\xe4\xb8\xad"),
        std::string("\xf0\x9f\x98\x80"), std::string("\xff\xfe"), std::string("ab\x80"), std::string("\xed\xb3\xbf"),
        std::string("\xc0\xaf\xf4\x90\x80\x80"), std::string(100000, 'x')}) {
    add(formatted("text{}", number++), value, text(value));
  }

  const at::Tensor tensor = patterned({2, 2}, at::kHalf);
  const json tensor_json = tensor_of(tensor, "float16");
  add("int-list", c10::List<std::int64_t>({1, -2}), sequence("list", {integer(1), integer(-2)}));
  add("double-list", c10::List<double>({1.5}), sequence("list", {real(1.5)}));
  add("bool-list", c10::List<bool>({true, false}), sequence("list", {boolean(true), boolean(false)}));
  add("text-list", c10::List<std::string>({"a"}), sequence("list", {text("a")}));
  add("tensor-list", c10::List<at::Tensor>({tensor, tensor}), sequence("list", {tensor_json, tensor_json}));
  add("empty-list", c10::List<std::int64_t>(), sequence("list", {}));
  for (int size = 0; size < 6; ++size) {
    add(formatted("tuple{}", size),
        c10::ivalue::Tuple::create(std::vector<c10::IValue>(static_cast<std::size_t>(size), true)),
        sequence("tuple", std::vector<json>(static_cast<std::size_t>(size), boolean(true))));
  }
  c10::Dict<std::int64_t, double> by_int;
  by_int.insert(3, 0.5);
  by_int.insert(-1, 1.5);
  add("dict-int", by_int,
      {{"kind", "dict"},
       {"items", json::array({json::array({integer(3), real(0.5)}), json::array({integer(-1), real(1.5)})})}});
  c10::Dict<double, bool> by_double;
  by_double.insert(0.5, true);
  add("dict-double", by_double, {{"kind", "dict"}, {"items", json::array({json::array({real(0.5), boolean(true)})})}});
  c10::Dict<bool, bool> by_bool;
  by_bool.insert(true, false);
  add("dict-bool", by_bool, {{"kind", "dict"}, {"items", json::array({json::array({boolean(true), boolean(false)})})}});

  c10::impl::GenericList mixed(c10::AnyType::get());
  c10::impl::GenericDict nested(c10::StringType::get(), c10::AnyType::get());
  std::vector<json> mixed_json;
  json items = json::array();
  for (const char* key : {"z", "a", "m", "\xff", ""}) {
    mixed.push_back(c10::ivalue::Tuple::create({c10::IValue(tensor), c10::IValue(std::string(key))}));
    mixed_json.push_back(sequence("tuple", {tensor_json, text(key)}));
    nested.insert(std::string(key), mixed.copy());
    items.push_back(json::array({text(key), sequence("list", mixed_json)}));
  }
  add("nested", nested, {{"kind", "dict"}, {"items", items}});
  c10::IValue deep = true;
  json deep_json = boolean(true);
  for (int i = 0; i < kMaxDepth; ++i) {
    c10::impl::GenericList list(c10::AnyType::get());
    list.push_back(deep);
    deep = list;
    deep_json = sequence("list", {deep_json});
  }
  add("deep", deep, deep_json);
  c10::impl::GenericList many(c10::AnyType::get());
  std::vector<json> many_json;
  for (int i = 0; i < 1000; ++i) {
    const at::Tensor element = at::full({i % 3}, i, at::kInt);
    many.push_back(element);
    many_json.push_back(tensor_of(element, "int32"));
  }
  add("many-tensors", many, sequence("list", many_json));
}

// One test, since importing torch costs Python more than all the cases; the judge names each case that fails.
TEST_F(CodecInteropTest, DefaultTorchLoadReadsEveryDtypeAndContainer) {
  add_every_dtype_in_every_form();
  add_special_views();
  add_sparse_tensors();
  add_every_container_and_scalar();
  add_record();
  EXPECT_GT(count_, 300);
  judge();
}

}  // namespace
}  // namespace dbg::codec
