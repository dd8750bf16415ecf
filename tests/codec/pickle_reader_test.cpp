// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Tests of the pickle reader on pickles written opcode by opcode: every opcode, every refusal, hostile ones.
#include "codec/pickle_reader.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "codec/archive_reader.h"
#include "codec/pickle_bytes_maker.h"
#include "codec/pickle_reading.h"
#include "dbg/error.h"

namespace {

using dbg::codec::read_pickle_bytes;
using dbg::codec::ReadLimits;
using dbg::codec::Refusal;
using testing::HasSubstr;
using namespace dbg::test::pickled;  // NOLINT: the whole file is about them

TEST(PickleReaderTest, Scalars) {
  EXPECT_TRUE(read(whole("N")).isNone());
  EXPECT_TRUE(read(whole("\x88")).toBool());
  EXPECT_FALSE(read(whole("\x89")).toBool());
  EXPECT_EQ(read(whole("K\xff")).toInt(), 255);
  EXPECT_EQ(read(whole("M\xff\xff")).toInt(), 65535);
  EXPECT_EQ(read(whole("J\xfe\xff\xff\xff")).toInt(), -2);
  EXPECT_EQ(read(whole(real(-0.5))).toDouble(), -0.5);
  EXPECT_EQ(read(whole(text("gr\xc3\xbc\xc3\x9f"))).toStringRef(), "gr\xc3\xbc\xc3\x9f");
  EXPECT_EQ(read(whole(std::string("\x8c\x02hi"))).toStringRef(), "hi");
  EXPECT_EQ(read(whole("\x8d" + little_endian(2, 8) + "hi")).toStringRef(), "hi");
  EXPECT_EQ(read(whole(call(global("builtins", "complex"), real(1) + real(-2)))).toComplexDouble(),
            c10::complex<double>(1, -2));
  EXPECT_EQ(read(whole(call(global("torch", "device"), text("cuda") + "K\x03"))).toDevice(), c10::Device("cuda:3"));
}

TEST(PickleReaderTest, LongIntegersUpTo64BitsInAnyLength) {
  EXPECT_EQ(read(whole(std::string("\x8a\x00", 2))).toInt(), 0);
  EXPECT_EQ(read(whole("\x8a\x01\xff")).toInt(), -1);
  EXPECT_EQ(read(whole(std::string("\x8a\x02\xff\x00", 4))).toInt(), 255);
  EXPECT_EQ(read(whole(std::string("\x8a\x02\x00\x80", 4))).toInt(), -32768);
}

TEST(PickleReaderTest, LongIntegersAtTheEdgeOf64Bits) {
  const auto long1 = [](const std::string& digits) { return whole("\x8a" + little_endian(digits.size(), 1) + digits); };
  constexpr auto least = std::numeric_limits<std::int64_t>::min();
  constexpr auto most = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(read(long1(little_endian(static_cast<std::uint64_t>(least), 8))).toInt(), least);
  EXPECT_EQ(read(long1(little_endian(static_cast<std::uint64_t>(most), 8))).toInt(), most);
  EXPECT_EQ(read(long1(little_endian(1, 8) + std::string(3, '\0'))).toInt(), 1);
  EXPECT_EQ(read(long1(std::string(12, '\xff'))).toInt(), -1);
  EXPECT_EQ(read(whole("\x8b" + little_endian(3, 4) + "\x01\x02\x03")).toInt(), 0x030201);
  for (const std::string& digits :
       {little_endian(std::uint64_t{1} << 63, 8) + std::string(1, '\0'), little_endian(0, 8) + "\x01",
        std::string(8, '\0') + "\xff", std::string(200, '\x7f')}) {
    EXPECT_THAT(error_of(long1(digits)), HasSubstr("an integer beyond 64 bits"));
  }
}

TEST(PickleReaderTest, Containers) {
  const c10::IValue value = read(whole(dict(
      text("list") + list("K\x01" + text("a") + "N") + text("tuple") + std::string("K\x01K\x02\x86") + text("one") +
      "K\x01\x85" + text("three") + "NNN\x87" + text("none") + ")" + text("inner") + dict("K\x07" + text("x")))));
  const auto top = value.toGenericDict();
  EXPECT_EQ(top.size(), 6u);
  const auto entries = top.at("list").toList();
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries.get(0).toInt(), 1);
  EXPECT_EQ(entries.get(1).toStringRef(), "a");
  EXPECT_TRUE(entries.get(2).isNone());
  EXPECT_EQ(top.at("tuple").toTupleRef().elements()[1].toInt(), 2);
  EXPECT_EQ(top.at("one").toTupleRef().size(), 1u);
  EXPECT_EQ(top.at("three").toTupleRef().size(), 3u);
  EXPECT_EQ(top.at("none").toTupleRef().size(), 0u);
  EXPECT_EQ(top.at("inner").toGenericDict().at(7).toStringRef(), "x");
}

TEST(PickleReaderTest, SingleEntryOpcodesAndPops) {
  EXPECT_EQ(read(whole("]K\x01"
                       "aK\x02"
                       "a"))
                .toList()
                .size(),
            2u);
  EXPECT_EQ(read(whole("}" + text("k") + "K\x01s")).toGenericDict().at("k").toInt(), 1);
  EXPECT_EQ(read(whole("K\x05K\x06"
                       "0"))
                .toInt(),
            5);
  EXPECT_EQ(read(whole("K\x05(K\x06K\x07"
                       "1"))
                .toInt(),
            5);
  EXPECT_EQ(read(whole("K\x05(0")).toInt(), 5) << "a mark is popped like a value";
  EXPECT_EQ(read(whole("K\x05"
                       "2\x86"))
                .toTupleRef()
                .elements()[1]
                .toInt(),
            5);
}

TEST(PickleReaderTest, DictsKeepOrderAndTypesOfKeys) {
  const auto kinds = [](const std::string& entries) {
    return read(whole(dict(entries))).toGenericDict().keyType()->kind();
  };
  EXPECT_EQ(kinds(""), c10::TypeKind::StringType);
  EXPECT_EQ(kinds(text("a") + "N"), c10::TypeKind::StringType);
  EXPECT_EQ(kinds("K\x01N"), c10::TypeKind::IntType);
  EXPECT_EQ(kinds("\x88N"), c10::TypeKind::BoolType);
  EXPECT_EQ(kinds(real(0.5) + "N"), c10::TypeKind::FloatType);
  EXPECT_EQ(kinds(call(global("builtins", "complex"), real(1) + real(2)) + "N"), c10::TypeKind::ComplexType);
  EXPECT_EQ(kinds(text("a") + "NK\x01N"), c10::TypeKind::AnyType);
  EXPECT_NO_THROW(read(whole(dict(text("a") + "NK\x01N"))).type());
  std::string order;
  const auto value = read(whole(dict(text("z") + "N" + text("a") + "N" + text("m") + "N" + text("a") + "K\x01")));
  for (const auto& entry : value.toGenericDict()) order += entry.key().toStringRef();
  EXPECT_EQ(order, "zam");
  EXPECT_EQ(value.toGenericDict().at("a").toInt(), 1) << "the last of two equal keys counts";
}

TEST(PickleReaderTest, OrderedDictInItsForms) {
  const std::string type = global("collections", "OrderedDict");
  EXPECT_EQ(read(whole(call(type, "") + "(" + text("a") + "K\x01u")).toGenericDict().at("a").toInt(), 1);
  EXPECT_EQ(read(whole(type + ")\x81(" + text("a") + "K\x01u")).toGenericDict().at("a").toInt(), 1);
  EXPECT_EQ(read(whole(call(type, list(list(text("a") + "K\x01"))))).toGenericDict().at("a").toInt(), 1);
  EXPECT_EQ(read(whole(call(type, "") + "}b")).toGenericDict().size(), 0u) << "its attributes are dropped";
  EXPECT_THAT(error_of(whole(call(type, "K\x01"))), HasSubstr("something else than pairs"));
  EXPECT_THAT(error_of(whole(call(type, list("K\x01")))), HasSubstr("something else than pairs"));
}

TEST(PickleReaderTest, NamesOnTheListCountOnlyWithTheirModule) {
  const std::pair<const char*, const char*> others[] = {
      {"evil", "OrderedDict"},       {"torch", "OrderedDict"},
      {"collections", "Size"},       {"os", "system"},
      {"builtins", "eval"},          {"torch", "load"},
      {"torch.storage", "float32"},  {"torch.hub", "load"},
      {"builtins", "getattr"},       {"", "OrderedDict"},
      {"torch._utils", ""},          {"torch", ""},
      {"torch", "_load_from_bytes"}, {"numpy.core.multiarray", "_reconstruct"}};
  for (const auto& [module, name] : others) {
    const std::string full = std::string(module) + "." + name;
    EXPECT_THAT(refusals_of(whole(list(call(global(module, name), text("x"))))),
                testing::ElementsAre("[0]: an object of '" + full + "'"));
  }
}

TEST(PickleReaderTest, SizeIsATuple) {
  EXPECT_EQ(read(whole(call(global("torch", "Size"), tuple("K\x02K\x03")))).toTupleRef().elements()[1].toInt(), 3);
  EXPECT_EQ(read(whole(call(global("torch", "Size"), ""))).toTupleRef().size(), 0u);
}

TEST(PickleReaderTest, MemoInAllItsForms) {
  const auto twice = [](const std::string& put, const std::string& get) {
    const auto value = read(whole("(" + text("a") + put + get + "t"));
    return value.toTupleRef().elements()[0] == value.toTupleRef().elements()[1];
  };
  EXPECT_TRUE(twice(std::string("q\x07", 2), std::string("h\x07", 2)));
  EXPECT_TRUE(twice("r" + little_endian(300, 4), "j" + little_endian(300, 4)));
  EXPECT_TRUE(twice("\x94", std::string("h\x00", 2)));
  EXPECT_EQ(read(whole(std::string("(K\x01\x94K\x02\x94h\x00h\x01t", 12))).toTupleRef().elements()[3].toInt(), 2);
  EXPECT_THAT(error_of(whole("h\x01")), HasSubstr("nothing is memoized as 1"));
  EXPECT_THAT(error_of(whole("Nr" + little_endian(0xffffffff, 4))), HasSubstr("memo number 4294967295"));
}

TEST(PickleReaderTest, FramesAndGlobalsOfProtocol4) {
  // pickletools of pickle.dumps({"a": OrderedDict()}, 4), written out.
  const std::string body = std::string(
      "}\x94\x8c\x01"
      "a\x94\x8c\x0b"
      "collections\x94\x8c\x0bOrderedDict\x94\x93\x94)R\x94s.");
  const std::string bytes = "\x80\x04\x95" + little_endian(body.size(), 8) + body;
  EXPECT_EQ(read(bytes).toGenericDict().at("a").toGenericDict().size(), 0u);
  EXPECT_THAT(error_of("\x80\x04\x95" + little_endian(body.size() + 1, 8) + body), HasSubstr("a frame of"));
  EXPECT_THAT(error_of("\x80\x06N."), HasSubstr("protocol 6 is above 5"));
}

TEST(PickleReaderTest, SharedContainersBecomeEqualOnes) {
  auto list_of_two = read(whole("]q\x01K\x01"
                                "a0](h\x01h\x01"
                                "e"))
                         .toList();
  ASSERT_EQ(list_of_two.size(), 2u);
  EXPECT_FALSE(list_of_two.get(0).toList().is(list_of_two.get(1).toList()));
  EXPECT_EQ(list_of_two.get(1).toList().size(), 1u);
}

TEST(PickleReaderTest, RefusesEntriesByPathAndReadsTheRest) {
  const std::string bytes_by_protocol2 = call(global("_codecs", "encode"), text("x") + text("latin1"));
  const std::string pickle =
      whole(dict(text("value") +
                 dict(text("a") + list("K\x01K\x02K\x03" + bytes("xyz")) + "N" + "K\x01" + tuple("K\x01") + "K\x01" +
                      text("k-1") + bytes_by_protocol2 + text("ok") + "K\x07") +
                 text("set") + "\x8f(K\x01\x90" + text("frozen") + "(K\x01\x91" + text("old set") +
                 call(global("__builtin__", "set"), list("K\x01")) + text("big") + "\x8a\x09" + little_endian(0, 8) +
                 "\x01" + text("array") + call(global("numpy", "ndarray"), "K\x01") + "K\x01" + "b" + text("class") +
                 global("os", "system") + text("dtype") + global("torch", "float32") + text("bytearray") + "\x96" +
                 little_endian(1, 8) + "x" + text("surrogate") + text("\xed\xa0\x80") + text("module") +
                 tuple(text("module") + "N") + "Q" + text("layout") +
                 call(global("torch.serialization", "_get_layout"), text("torch.strided")) + "K\x05" + "K\x06"));
  std::vector<Refusal> refusals;
  const auto value = read_pickle_bytes(pickle.data(), pickle.size(), {}, &refusals).toGenericDict();
  std::vector<std::string> out;
  for (const auto& refusal : refusals) out.push_back(refusal.path + ": " + refusal.reason);
  EXPECT_THAT(out, testing::ElementsAre("value['a'][3]: bytes", "value[None]: a dict key that is None",
                                        "value[a tuple]: a dict key that is a tuple", "value['k-1']: bytes",
                                        "set: a set", "frozen: a set", "['old set']: a set",
                                        "big: an integer beyond 64 bits", "array: an object of 'numpy.ndarray'",
                                        "class: 'os.system' itself", "dtype: 'torch.float32' itself",
                                        "bytearray: bytes", "surrogate: text with a lone surrogate",
                                        "module: a persistent id that is no storage", "layout: a torch layout"));
  EXPECT_EQ(value.size(), 2u);
  EXPECT_EQ(value.at(5).toInt(), 6);
  const auto inner = value.at("value").toGenericDict();
  EXPECT_EQ(inner.at("ok").toInt(), 7);
  ASSERT_EQ(inner.at("a").toList().size(), 4u) << "the others keep their places";
  EXPECT_TRUE(inner.at("a").toList().get(3).isNone());
}

TEST(PickleReaderTest, NamedTuplesAreObjectsOfTheirClass) {
  EXPECT_THAT(refusals_of(whole(dict(text("point") + global("m", "Point") + tuple("K\x01K\x02") + "\x81" +
                                     text("size") + call(global("torch", "Size"), tuple("K\x02"))))),
              testing::ElementsAre("point: an object of 'm.Point'"));
}

TEST(PickleReaderTest, RefusedRootIsAnError) {
  EXPECT_THAT(error_of(whole(bytes("x"))), HasSubstr("the value itself can't be read: bytes"));
  EXPECT_THAT(error_of(whole(call(global("os", "system"), text("true")))), HasSubstr("an object of 'os.system'"));
}

TEST(PickleReaderTest, ContentsOfRefusedObjectsAreDropped) {
  const std::string object = call(global("m", "C"), "");
  EXPECT_THAT(refusals_of(whole(list(object +
                                     "K\x01"
                                     "a" +
                                     object + "(K\x01K\x02u" + object + "}b" + object + ")R" + global("m", "D") +
                                     ")\x81" + global("m", "E") +
                                     ")}\x92"
                                     "K\x05"))),
              testing::ElementsAre("[0]: an object of 'm.C'", "[1]: an object of 'm.C'", "[2]: an object of 'm.C'",
                                   "[3]: an object of 'm.C'", "[4]: an object of 'm.D'", "[5]: an object of 'm.E'"));
}

TEST(PickleReaderTest, ListsAThousandRefusalsAndCountsTheRest) {
  std::string entries;
  for (int i = 0; i < 1500; ++i) entries += bytes("");
  const auto refusals = refusals_of(whole(list(entries)));
  ASSERT_EQ(refusals.size(), 1001u);
  EXPECT_EQ(refusals.back(), ": and 500 more");
}

TEST(PickleReaderTest, TextGetsTheBytesThatSurrogateescapeHid) {
  EXPECT_EQ(read(whole(text("a\xed\xb2\x80\xed\xb3\xbf"))).toStringRef(), "a\x80\xff");
  for (const char* wrong : {"\x80", "\xc0\x80", "\xe0\x80\x80", "\xf4\x90\x80\x80", "\xc3", "\xc3(", "\xff"}) {
    EXPECT_THAT(error_of(whole(text(wrong))), HasSubstr("text that is not UTF-8"));
  }
}

TEST(PickleReaderTest, PicklesThatAreNoneAreErrorsWithAPlace) {
  const std::pair<std::string, const char*> cases[] = {
      {"", "byte 0: the pickle needs 1 bytes here and 0 are left"},
      {"\x80", "byte 1"},
      {"\x80\x02", "byte 2"},
      {"\x80\x02N", "byte 3: the pickle needs 1 bytes here"},
      {whole("N") + "N", "byte 4: there are bytes after the end"},
      {whole(""), "more or less than one value"},
      {whole("NN"), "more or less than one value"},
      {whole("N("), "more or less than one value"},
      {whole("X\xff\xff\xff\xff"), "needs 4294967295 bytes here"},
      {whole("\x8d" + std::string(8, '\xff')), "needs 18446744073709551615 bytes here"},
      {whole("\x8b\xff\xff\xff\xff"), "needs 4294967295 bytes here"},
      {whole("\x8e" + little_endian(std::uint64_t{1} << 62, 8)), "needs 4611686018427387904 bytes here"},
      {whole("I1\n"), "opcode 0x49 is none that is read"},
      {whole("\x97"), "opcode 0x97"},
      {whole("\x82\x01"), "opcode 0x82"},
      {whole("t"), "there is no mark here"},
      {whole("e"), "there is no mark here"},
      {whole("0"), "the stack is empty"},
      {whole("\x85"), "the stack is empty"},
      {whole("N(\x85"), "the stack is empty"},
      {whole("NN"
             "a"),
       "entries are added to something else"},
      {whole("NNNs"), "entries are added to something else"},
      {whole("}(NNNu"), "a key without a value"},
      {whole("N)R"), "no global is called"},
      {whole(global("collections", "OrderedDict") + "NR"), "arguments are no tuple"},
      {whole("NNb"), "state is set"},
      {whole("N)\x81"), "an object of no class"},
      {whole("NN\x93"), "a global whose name is no text"},
      {whole("c" + std::string(5000, 'a')), "a global name without an end"},
      {whole(text(std::string(2000, 'a')) + text("b") + "\x93"), "a global name without an end"},
      {whole(call(global("builtins", "complex"), "N")), "a call with 1 arguments"},
      {whole(call(global("builtins", "complex"), "NN")), "something else than two numbers"},
      {whole(call(global("torch", "Size"), "K\x01")), "a torch.Size of something else"},
      {whole(call(global("torch", "device"), "K\x01")), "text is wanted here"},
      {whole(tuple(text("storage") + "N") + "Q"), "a persistent id of a storage that is not"},
      {whole(tuple(text("storage") + global("os", "x") + text("0") + text("cpu") + "K\x01") + "Q"),
       "'os.x' is no storage class"},
      {whole(storage("FloatStorage", "0", -1)), "a persistent id of a storage that is not"},
  };
  for (const auto& [bytes, cause] : cases) {
    SCOPED_TRACE(cause);
    EXPECT_THAT(error_of(bytes), HasSubstr(cause));
  }
}

TEST(PickleReaderTest, ErrorsNameTheByte) {
  EXPECT_THAT(error_of(whole("NN"
                             "a")),
              HasSubstr("byte 4: entries are added"));
}

TEST(PickleReaderTest, TensorOutOfBytesInThePickle) {
  const std::string inner =
      stream(storage("FloatStorage", "0", 4), 4, std::string("\0\0\x80\x3f\0\0\0\x40\0\0\x40\x40\0\0\x80\x40", 16));
  const std::string loaded = call(global("torch.storage", "_load_from_bytes"), bytes(inner));
  const auto tensor = read(whole(tensor_v2(loaded, 1, "K\x02", "K\x02"))).toTensor();
  EXPECT_TRUE(at::equal(tensor, at::tensor({2.F, 4.F})));
  // As in protocol 2, which has no bytes.
  std::string latin1;
  for (const char c : inner) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80) {
      latin1.push_back(c);
    } else {
      latin1.push_back(static_cast<char>(0xc0 | byte >> 6));
      latin1.push_back(static_cast<char>(0x80 | (byte & 0x3f)));
    }
  }
  const std::string encoded = call(global("_codecs", "encode"), text(latin1) + text("latin1"));
  const std::string again = call(global("torch.storage", "_load_from_bytes"), encoded);
  EXPECT_TRUE(at::equal(read(whole(tensor_v2(again, 1, "K\x02", "K\x02"))).toTensor(), tensor));
  // A whole tensor in the bytes, and a bare storage as the value.
  const std::string whole_tensor =
      stream(tensor_v2(storage("FloatStorage", "0", 4), 0, "K\x04", "K\x01"), 4, inner.substr(inner.size() - 16));
  EXPECT_EQ(read(whole(call(global("torch.storage", "_load_from_bytes"), bytes(whole_tensor))))
                .toTensor()
                .sum()
                .item<float>(),
            10);
  EXPECT_THAT(error_of(whole(loaded)), HasSubstr("a bare storage"));
}

TEST(PickleReaderTest, StorageWithoutAHome) {
  EXPECT_THAT(error_of(whole(tensor_v2(storage("FloatStorage", "0", 1), 0, "K\x01", "K\x01"))),
              HasSubstr("storage '0' is not in a pickle that stands alone"));
}

TEST(PickleReaderTest, NoRandomPickleDoesMoreThanThrowIoError) {
  const std::string start =
      whole(dict(text("a") + list("K\x01" + bytes("xyz")) + text("b") + call(global("collections", "OrderedDict"), "") +
                 text("c") + tuple("NN") + text("d") +
                 tensor_v2(call(global("torch.storage", "_load_from_bytes"),
                                bytes(stream(storage("ByteStorage", "0", 4), 4, "1234"))),
                           0, "K\x04", "K\x01")));
  std::mt19937 random(11);
  int read_whole = 0;
  ReadLimits limits;
  limits.max_items = 10000;
  limits.max_tensor_bytes = 1 << 20;
  for (int round = 0; round < 20000; ++round) {
    std::string changed = start;
    for (unsigned i = 0; i <= random() % 3; ++i) changed[random() % changed.size()] = static_cast<char>(random());
    if (random() % 4 == 0) changed.resize(random() % changed.size());
    try {
      read_pickle_bytes(changed.data(), changed.size(), limits);
      ++read_whole;
    } catch (const dbg::IoError&) {
    }
  }
  EXPECT_GT(read_whole, 200);
  EXPECT_LT(read_whole, 15000);
}

}  // namespace
