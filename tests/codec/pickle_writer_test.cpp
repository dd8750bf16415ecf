// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Facts about the pickles we write. The expected bytes are what Python's own pickle.dumps(value, 2) gives, but for the
// memo that we leave out; tests/interop loads what is written here with the real torch.load.
#include "codec/pickle_writer.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "codec/tensor_bytes.h"
#include "dbg/error.h"

namespace dbg::codec {
namespace {

using std::string_literals::operator""s;
using testing::HasSubstr;
using testing::StartsWith;

std::string pickled(const c10::IValue& value) {
  PickleWriter out;
  write_value(out, value, [](PickleWriter& writer, const at::Tensor&) { writer.text("tensor"); });
  return out.finish();
}

// The pickle of `value` without its header and its stop.
std::string body(const c10::IValue& value) {
  const std::string whole = pickled(value);
  EXPECT_EQ(whole.substr(0, 2), "\x80\x02");
  EXPECT_EQ(whole.back(), '.');
  return whole.substr(2, whole.size() - 3);
}

std::string text_body(std::string_view text) {
  return body(c10::IValue(std::string(text)));
}

c10::List<c10::IValue> list_of(std::vector<c10::IValue> items) {
  c10::List<c10::IValue> list(c10::AnyType::get());
  for (c10::IValue& item : items) list.push_back(std::move(item));
  return list;
}

TEST(PickleWriterTest, ScalarsAreThoseOfPython) {
  EXPECT_EQ(body(c10::IValue()), "N");
  EXPECT_EQ(body(true), "\x88");
  EXPECT_EQ(body(false), "\x89");
  EXPECT_EQ(body(0.5), "G\x3f\xe0\0\0\0\0\0\0"s);
  EXPECT_EQ(body(-std::numeric_limits<double>::infinity()), "G\xff\xf0\0\0\0\0\0\0"s);
}

TEST(PickleWriterTest, IntegersTakeTheShortestForm) {
  EXPECT_EQ(body(std::int64_t{0}), "K\0"s);
  EXPECT_EQ(body(std::int64_t{255}), "K\xff");
  EXPECT_EQ(body(std::int64_t{256}), "M\0\1"s);
  EXPECT_EQ(body(std::int64_t{65535}), "M\xff\xff");
  EXPECT_EQ(body(std::int64_t{65536}), "J\0\0\1\0"s);
  EXPECT_EQ(body(std::int64_t{-1}), "J\xff\xff\xff\xff");
  EXPECT_EQ(body(std::int64_t{2147483647}), "J\xff\xff\xff\x7f");
  EXPECT_EQ(body(std::int64_t{2147483648}), "\x8a\x08\0\0\0\x80\0\0\0\0"s);
  EXPECT_EQ(body(std::int64_t{-2147483649}), "\x8a\x08\xff\xff\xff\x7f\xff\xff\xff\xff"s);
  EXPECT_EQ(body(std::numeric_limits<std::int64_t>::min()), "\x8a\x08\0\0\0\0\0\0\0\x80"s);
}

TEST(PickleWriterTest, UnsignedIntegersBeyondInt64StayPositive) {
  PickleWriter out;
  out.unsigned_integer(std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(out.finish(), "\x80\x02\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\0."s);
}

TEST(PickleWriterTest, ComplexIsACallOfTheBuiltin) {
  EXPECT_EQ(body(c10::complex<double>(1, -2)),
            "c__builtin__\ncomplex\nq\0G\x3f\xf0\0\0\0\0\0\0G\xc0\0\0\0\0\0\0\0\x86R"s);
}

TEST(PickleWriterTest, DevicesAreCallsOfTorchDevice) {
  EXPECT_EQ(body(at::Device(at::kCPU)), "ctorch\ndevice\nq\0X\3\0\0\0cpu\x85R"s);
  EXPECT_EQ(body(at::Device(at::kCUDA, 3)), "ctorch\ndevice\nq\0X\4\0\0\0cudaK\3\x86R"s);
}

TEST(PickleWriterTest, ContainersKeepOrder) {
  EXPECT_EQ(body(list_of({})), "]");
  EXPECT_EQ(body(list_of({std::int64_t{1}, c10::IValue()})), "](K\1Ne");
  EXPECT_EQ(body(c10::ivalue::Tuple::create({})), ")");
  EXPECT_EQ(body(c10::ivalue::Tuple::create({c10::IValue(std::int64_t{1})})), "K\1\x85");
  EXPECT_EQ(body(c10::ivalue::Tuple::create({c10::IValue(std::int64_t{1}), c10::IValue(true)})), "K\1\x88\x86");
  EXPECT_EQ(body(c10::ivalue::Tuple::create(std::vector<c10::IValue>(3, c10::IValue()))), "NNN\x87");
  EXPECT_EQ(body(c10::ivalue::Tuple::create(std::vector<c10::IValue>(4, c10::IValue()))), "(NNNNt");
  c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
  EXPECT_EQ(body(dict), "}");
  dict.insert("b", std::int64_t{1});
  dict.insert("a", std::int64_t{2});
  EXPECT_EQ(body(dict), "}(X\1\0\0\0bK\1X\1\0\0\0aK\2u"s);
}

TEST(PickleWriterTest, TypedContainersAreWrittenPlainly) {
  EXPECT_EQ(body(c10::List<std::int64_t>({1, 2})), "](K\1K\2e");
  EXPECT_EQ(body(c10::List<bool>({true})),
            "](\x88"
            "e");
  EXPECT_EQ(body(c10::List<double>({0.0})), "](G\0\0\0\0\0\0\0\0e"s);
  EXPECT_EQ(body(c10::List<std::string>({"a"})), "](X\1\0\0\0ae"s);
  EXPECT_EQ(body(c10::List<at::Tensor>({at::ones({1})})), "](X\6\0\0\0tensore"s);
  c10::Dict<std::int64_t, bool> dict;
  dict.insert(7, true);
  EXPECT_EQ(body(dict), "}(K\7\x88u");
  c10::Dict<bool, double> by_bool;
  by_bool.insert(false, 0.0);
  EXPECT_EQ(body(by_bool), "}(\x89G\0\0\0\0\0\0\0\0u"s);
  EXPECT_EQ(body(c10::IValue(c10::SymInt(5))), "K\5");
  const auto named = c10::ivalue::Tuple::createNamed(
      {c10::IValue(true)}, c10::TupleType::createNamed(c10::QualifiedName("Point"), std::vector<std::string>{"x"},
                                                       std::vector<c10::TypePtr>{c10::BoolType::get()}));
  EXPECT_EQ(body(named), "\x88\x85");
}

TEST(PickleWriterTest, TextThatIsUtf8IsKeptAsItIs) {
  for (const std::string& text : {""s, "abc"s, "a\0b"s, "\xc2\x80"s, "\xe4\xb8\xad\xe6\x96\x87"s, "\xed\x9f\xbf"s,
                                  "\xee\x80\x80"s, "\xf0\x9f\x98\x80"s, "\xf4\x8f\xbf\xbf"s}) {
    std::string expected = "X.\0\0\0"s;
    expected[1] = static_cast<char>(text.size());
    expected += text;
    EXPECT_EQ(text_body(text), expected);
  }
}

TEST(PickleWriterTest, BytesThatAreNotUtf8BecomeLoneSurrogates) {
  EXPECT_EQ(text_body("\xff"), "X\3\0\0\0\xed\xb3\xbf"s);
  EXPECT_EQ(text_body("a\x80z"), "X\5\0\0\0a\xed\xb2\x80z"s);
  // Overlong, a surrogate in UTF-8's clothes, beyond the last code point, cut off: each byte for itself.
  EXPECT_EQ(text_body("\xc0\xaf"), "X\6\0\0\0\xed\xb3\x80\xed\xb2\xaf"s);
  EXPECT_EQ(text_body("\xe0\x9f\xbf").size(), 5u + 9u);
  EXPECT_EQ(text_body("\xed\xb3\xbf").size(), 5u + 9u);
  EXPECT_EQ(text_body("\xf0\x8f\xbf\xbf").size(), 5u + 12u);
  EXPECT_EQ(text_body("\xf4\x90\x80\x80").size(), 5u + 12u);
  EXPECT_EQ(text_body("\xe4\xb8").size(), 5u + 6u);
}

TEST(PickleWriterTest, BytesHaveTheirOwnOpcodes) {
  PickleWriter out(4);
  out.bytes("ab");
  const std::string long_bytes(256, 'x');
  out.bytes(long_bytes);
  std::string expected =
      "\x80\x04"
      "C\2abB\0\1\0\0"s;
  expected += long_bytes;
  expected += '.';
  EXPECT_EQ(out.finish(), expected);
}

TEST(PickleWriterTest, RepeatedGlobalsAreReferredTo) {
  PickleWriter out;
  for (int i = 0; i < 2; ++i) out.global("m", "f");
  EXPECT_EQ(out.finish(),
            "\x80\x02"
            "cm\nf\nq\0h\0."s);
}

TEST(PickleWriterTest, MoreThan256GlobalsTakeTheLongForm) {
  PickleWriter out;
  for (int i = 0; i < 257; ++i) out.global("m", std::to_string(i));
  out.global("m", "256");
  EXPECT_THAT(out.finish(), testing::EndsWith("cm\n256\nr\0\1\0\0j\0\1\0\0."s));
}

TEST(PickleWriterTest, OtherKindsAreRefusedWithTheirPlace) {
  c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
  dict.insert("ok", std::int64_t{1});
  dict.insert("bad", list_of({c10::IValue(), c10::IValue(at::ones({1}).storage())}));
  EXPECT_EQ(refusal_of(dict).value_or(""), "['bad'][1]: a value of kind Storage, which has no plain form in Python");
  try {
    pickled(dict);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.what(), refusal_of(dict).value());
  }
  EXPECT_EQ(refusal_of(c10::IValue(std::int64_t{1})), std::nullopt);
}

TEST(PickleWriterTest, DictKeysOfOtherKindsAreRefused) {
  c10::Dict<at::Tensor, bool> by_tensor;
  by_tensor.insert(at::ones({1}), true);
  EXPECT_EQ(refusal_of(by_tensor).value_or(""), "a dict with a key of kind Tensor");
}

TEST(PickleWriterTest, KeysInMessagesAreBoundedAndOnOneLine) {
  c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
  dict.insert("a\n" + std::string(1000, 'x'), at::ones({1}).storage());
  const std::string reason = refusal_of(dict).value();
  EXPECT_THAT(reason, StartsWith("['a?xxx"));
  EXPECT_LT(reason.size(), 200u);
}

TEST(PickleWriterTest, DeepNestingIsRefusedAndSoIsAListInsideItself) {
  c10::IValue value = std::int64_t{1};
  for (int i = 0; i < kMaxDepth; ++i) value = list_of({value});
  EXPECT_EQ(refusal_of(value), std::nullopt);
  EXPECT_EQ(pickled(value).size(), 2u + 3u * kMaxDepth + 2u + 1u);
  EXPECT_THAT(refusal_of(list_of({value})).value_or(""), HasSubstr("nested deeper"));
  auto inside_itself = list_of({});
  inside_itself.push_back(inside_itself);
  inside_itself.push_back(inside_itself);
  EXPECT_THAT(refusal_of(inside_itself).value_or(""), HasSubstr("inside itself"));
  EXPECT_THROW(pickled(inside_itself), ConfigError);
  inside_itself.clear();  // or it keeps itself alive
}

TEST(PickleWriterTest, AValueThatGrowsByDoublingIsRefused) {
  c10::IValue value = std::int64_t{1};
  for (int i = 0; i < 64; ++i) value = list_of({value, value});
  EXPECT_THAT(refusal_of(value).value_or(""), HasSubstr("parts"));
}

TEST(TensorRefusalTest, NamesWhatATensorLacks) {
  EXPECT_EQ(refusal_of(at::Tensor()).value_or(""), "an undefined tensor");
  EXPECT_THAT(refusal_of(at::empty({2}, at::kMeta)).value_or(""), HasSubstr("meta device"));
  EXPECT_THAT(refusal_of(at::quantize_per_tensor(at::ones({2}), 0.1, 0, at::kQInt8)).value_or(""),
              HasSubstr("quantised tensor (QInt8)"));
  EXPECT_THAT(refusal_of(at::_nested_tensor_from_tensor_list({at::ones({2}), at::ones({3})})).value_or(""),
              HasSubstr("nested tensor"));
  at::Tensor freed = at::ones({100});
  freed.storage().unsafeGetStorageImpl()->reset();
  freed.storage().unsafeGetStorageImpl()->set_nbytes(0);
  EXPECT_THAT(refusal_of(freed).value_or(""), HasSubstr("holds 0 bytes where its sizes need 400"));
  EXPECT_EQ(refusal_of(at::ones({100})), std::nullopt);
  EXPECT_EQ(refusal_of(at::empty({0})), std::nullopt);
  EXPECT_EQ(refusal_of(at::ones({2, 2}).to_sparse()), std::nullopt);
}

TEST(TensorRefusalTest, PlacesThatNoStorageHasAreRefused) {
  const auto placed = [](std::vector<std::int64_t> sizes, std::vector<std::int64_t> strides, std::int64_t offset) {
    at::Tensor tensor = at::ones({4});
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
    tensor.unsafeGetTensorImpl()->set_storage_offset(offset);
    return refusal_of(tensor).value_or("taken");
  };
  constexpr std::int64_t kLarge = std::int64_t{1} << 62;
  EXPECT_THAT(placed({2, 3}, {3, 1}, 0), HasSubstr("holds 16 bytes where its sizes need 24"));
  // These add or multiply up to a place inside, once they have gone round.
  EXPECT_THAT(placed({5}, {kLarge}, 0), HasSubstr("lie in no storage"));
  EXPECT_THAT(placed({3, 3}, {kLarge, kLarge}, 0), HasSubstr("lie in no storage"));
  EXPECT_THAT(placed({2}, {kLarge}, 0), HasSubstr("lie in no storage"));
  EXPECT_THAT(placed({2}, {1}, -2), HasSubstr("sizes [2], strides [1], offset -2"));
}

TEST(TensorRefusalTest, ASparseTensorIsRefusedForItsParts) {
  const at::Tensor values = at::quantize_per_tensor(at::ones({1}), 0.1, 0, at::kQInt8);
  EXPECT_NE(refusal_of(values), std::nullopt);
  EXPECT_THAT(refusal_of(at::empty({2, 2}, at::TensorOptions().device(at::kMeta).layout(at::kSparse))).value_or(""),
              HasSubstr("meta"));
}

}  // namespace
}  // namespace dbg::codec
