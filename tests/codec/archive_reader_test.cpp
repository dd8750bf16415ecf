// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Tests of the archive reader: both formats, tensors of every form, byte orders, and archives that lie.
#include "codec/archive_reader.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "codec/archive.h"
#include "codec/archive_reading.h"
#include "codec/crc32.h"
#include "codec/pickle_bytes_maker.h"
#include "codec/zip_maker.h"
#include "dbg/error.h"
#include "support/temp_folder.h"

namespace {

using dbg::codec::archive_bytes;
using dbg::codec::read_archive_bytes;
using dbg::codec::read_archive_file;
using dbg::codec::ReadLimits;
using dbg::codec::Refusal;
using dbg::test::error_of;
using dbg::test::read;
using dbg::test::zip_of;
using dbg::test::ZipEnd;
using dbg::test::ZipFields;
using testing::HasSubstr;
using namespace dbg::test::pickled;  // NOLINT: the whole file is about them

std::string refusal_of(const std::string& bytes) {
  std::vector<Refusal> refusals;
  read_archive_bytes(bytes.data(), bytes.size(), {}, &refusals);
  return refusals.size() == 1 ? refusals[0].path + ": " + refusals[0].reason : "not one refusal";
}

/// An archive of this pickle body and storage "0".
std::string archive(std::string_view body, std::string_view data = "", std::string_view byteorder = "little") {
  return zip_of({{"archive/data.pkl", whole(body)},
                 {"archive/byteorder", std::string(byteorder)},
                 {"archive/data/0", std::string(data)}});
}

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

const std::string four_floats = bytes_of<float>({1, 2, 3, 4});  // NOLINT: built once, before main

TEST(ArchiveReaderTest, ReadsWhatTheWriterWrites) {
  c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
  dict.insert("tensor", at::arange(24, at::kFloat).reshape({2, 3, 4}).transpose(0, 2));
  dict.insert("complex", c10::complex<double>(1, 2));
  dict.insert("text", "a\x80");
  dict.insert("sparse", at::eye(3).to_sparse());
  dict.insert("csr", at::eye(3).to_sparse_csr());
  dict.insert("device", c10::Device("cuda:1"));
  for (const bool checksum : {true, false}) {
    const auto back = read(archive_bytes(dict, {.checksum = checksum})).toGenericDict();
    EXPECT_TRUE(at::equal(back.at("tensor").toTensor(), dict.at("tensor").toTensor()));
    EXPECT_EQ(back.at("tensor").toTensor().strides(), dict.at("tensor").toTensor().strides());
    EXPECT_EQ(back.at("complex").toComplexDouble(), c10::complex<double>(1, 2));
    EXPECT_EQ(back.at("text").toStringRef(), "a\x80");
    EXPECT_TRUE(back.at("sparse").toTensor().is_coalesced());
    EXPECT_TRUE(at::equal(back.at("sparse").toTensor().to_dense(), at::eye(3)));
    EXPECT_EQ(back.at("csr").toTensor().layout(), at::Layout::SparseCsr);
    EXPECT_TRUE(at::equal(back.at("csr").toTensor().to_dense(), at::eye(3)));
    EXPECT_EQ(back.at("device").toDevice(), c10::Device("cuda:1"));
  }
}

TEST(ArchiveReaderTest, ReadsAFileAndNamesItInErrors) {
  const dbg::test::TempFolder folder;
  const std::string path = folder / "x.pt";
  const std::string bytes = archive_bytes(at::arange(100000));
  std::ofstream(path, std::ios::binary) << bytes;
  EXPECT_TRUE(at::equal(read_archive_file(path).toTensor(), at::arange(100000)));
  std::filesystem::resize_file(path, bytes.size() / 2);
  EXPECT_THAT([&] { read_archive_file(path); }, testing::ThrowsMessage<dbg::IoError>(testing::AllOf(
                                                    HasSubstr("'" + path + "', byte "), HasSubstr("cut"))));
  EXPECT_THAT([&] { read_archive_file(folder / "absent.pt"); },
              testing::ThrowsMessage<dbg::IoError>(HasSubstr("No such file")));
  EXPECT_THAT([&] { read_archive_file(folder.path().string()); },
              testing::ThrowsMessage<dbg::IoError>(HasSubstr("not a regular file")));
}

TEST(ArchiveReaderTest, ValuesDoNotNeedTheFileAfterwards) {
  std::string bytes = archive(tensor_v2(storage("FloatStorage", "0", 4), 0, "K\x04", "K\x01"), four_floats);
  const auto tensor = read(bytes).toTensor();
  bytes.assign(bytes.size(), '\xff');
  EXPECT_TRUE(at::equal(tensor, at::tensor({1.F, 2.F, 3.F, 4.F})));
}

TEST(ArchiveReaderTest, TensorsOverOneStorageShareIt) {
  const std::string first = tensor_v2(storage("FloatStorage", "0", 4), 0, "K\x02K\x02", "K\x02K\x01");
  const std::string second = tensor_v2(storage("FloatStorage", "0", 4), 1, "K\x02", "K\x02");
  const auto both = read(archive(tuple(first + second), four_floats)).toTuple()->elements();
  at::Tensor square = both[0].toTensor();
  EXPECT_TRUE(at::equal(both[1].toTensor(), at::tensor({2.F, 4.F})));
  square.fill_(7);
  EXPECT_TRUE(at::equal(both[1].toTensor(), at::tensor({7.F, 7.F})));
}

TEST(ArchiveReaderTest, StridesOfEveryKind) {
  const auto strided = [](std::int64_t offset, std::string_view sizes, std::string_view strides) {
    return read(archive(tensor_v2(storage("FloatStorage", "0", 4), offset, sizes, strides), four_floats)).toTensor();
  };
  EXPECT_EQ(strided(3, "", "").item<float>(), 4);
  EXPECT_TRUE(at::equal(strided(0, "K\x02K\x02", "K\x01K\x02"), at::tensor({1.F, 3.F, 2.F, 4.F}).reshape({2, 2})));
  EXPECT_TRUE(at::equal(strided(1, "K\x03K\x02", std::string("K\0K\0", 4)), at::full({3, 2}, 2.F))) << "expanded";
  EXPECT_TRUE(
      at::equal(strided(0, "K\x03K\x02", "K\x01K\x01"), at::tensor({1.F, 2.F, 2.F, 3.F, 3.F, 4.F}).reshape({3, 2})));
  EXPECT_EQ(strided(14, std::string("K\0K\x02", 4), "K\x04K\x01").sizes(), (at::IntArrayRef{0, 2}))
      << "an empty slice may begin past the end";
  EXPECT_FALSE(strided(0, "K\x04", "K\x01").requires_grad());
}

TEST(ArchiveReaderTest, PlacesOutsideTheStorageAreErrors) {
  const auto error = [](std::int64_t offset, const std::string& sizes, const std::string& strides) {
    return error_of(archive(tensor_v2(storage("FloatStorage", "0", 4), offset, sizes, strides), four_floats));
  };
  EXPECT_THAT(error(1, "K\x04", "K\x01"), HasSubstr("leaves its storage of 16 bytes"));
  EXPECT_THAT(error(0, "K\x02", "K\x04"), HasSubstr("leaves its storage of 16 bytes"));
  EXPECT_THAT(error(0, "K\x05", "K\x01"), HasSubstr("leaves its storage"));
  EXPECT_THAT(error(-1, "K\x04", "K\x01"), HasSubstr("a negative offset"));
  EXPECT_THAT(error(0, integer(-1), "K\x01"), HasSubstr("a negative size or stride"));
  EXPECT_THAT(error(3, "K\x02", integer(-1)), HasSubstr("a negative size or stride"));
  EXPECT_THAT(error(0, integer(std::int64_t{1} << 62), std::string("K\0", 2)), HasSubstr("overflows"));
  EXPECT_THAT(error(0, integer(std::int64_t{1} << 32) + integer(std::int64_t{1} << 32), std::string("K\0K\0", 4)),
              HasSubstr("overflows"));
  EXPECT_THAT(error(0, "K\x03", integer(INT64_MAX)), HasSubstr("overflows"));
  EXPECT_THAT(error(INT64_MAX, "K\x01", "K\x01"), HasSubstr("leaves its storage"));
  // Wrapped around, the reaches of these dimensions would add up to nothing.
  EXPECT_THAT(error(0, "K\x02K\x02K\x02", integer(INT64_MAX) + integer(INT64_MAX) + "K\x02"), HasSubstr("overflows"));
  EXPECT_THAT(error(0, std::string("K\0", 2) + integer(INT64_MAX), "K\x01K\x01"), HasSubstr("overflows"));
  EXPECT_THAT(error(0, "K\x04K\x01", "K\x01"), HasSubstr("2 sizes and 1 strides"));
  EXPECT_THAT(error(0, "N", "K\x01"), HasSubstr("a tuple of integers is wanted"));
  EXPECT_THAT(error(0, std::string(200, 'N'), "K\x01"), HasSubstr("more than 64 dimensions"));
  ReadLimits limits;
  limits.max_tensor_bytes = 1 << 20;
  EXPECT_THAT(error_of(archive(tensor_v2(storage("FloatStorage", "0", 4), 0, integer(1 << 20), std::string("K\0", 2)),
                               four_floats),
                       limits),
              HasSubstr("a tensor of 4194304 bytes is above the limit of 1048576"));
}

TEST(ArchiveReaderTest, StorageSizesAreHeldAgainstTheEntry) {
  EXPECT_THAT(error_of(archive(tensor_v2(storage("FloatStorage", "0", 5), 0, "K\x04", "K\x01"), four_floats)),
              HasSubstr("storage '0' has 16 bytes and the pickle counts on 20"));
  EXPECT_THAT(error_of(archive(tensor_v2(storage("FloatStorage", "0", INT64_MAX), 0, "K\x04", "K\x01"), four_floats)),
              HasSubstr("a storage whose size overflows"));
  EXPECT_THAT(error_of(archive(tensor_v2(storage("FloatStorage", "7", 4), 0, "K\x04", "K\x01"), four_floats)),
              HasSubstr("the archive has no entry 'archive/data/7'"));
  ReadLimits limits;
  limits.max_tensor_bytes = 15;
  EXPECT_THAT(error_of(archive(tensor_v2(storage("FloatStorage", "0", 4), 0, "K\x01", "K\x01"), four_floats), limits),
              HasSubstr("a storage of 16 bytes is above the limit"));
}

TEST(ArchiveReaderTest, EveryDtypeInEveryForm) {
  for (int i = 0; i < static_cast<int>(at::ScalarType::NumOptions); ++i) {
    const auto dtype = static_cast<at::ScalarType>(i);
    const auto name = dbg::codec::dtype_name(dtype);
    if (!name) continue;
    SCOPED_TRACE(name->python);
    const std::size_t width = c10::elementSize(dtype);
    std::string data(width * 3, '\0');
    for (std::size_t k = 0; k < data.size(); ++k) data[k] = static_cast<char>(dtype == at::kBool ? k % 2 : 17 * k + 3);
    const auto expect = [&](const at::Tensor& tensor) {
      EXPECT_EQ(tensor.scalar_type(), dtype);
      EXPECT_EQ(tensor.sizes(), (at::IntArrayRef{3}));
      EXPECT_EQ(std::memcmp(tensor.const_data_ptr(), data.data(), data.size()), 0);
    };
    const std::string untyped = storage("UntypedStorage", "0", static_cast<std::int64_t>(data.size()));
    const std::string by_v3 = tensor_v3(untyped, 0, "K\x03", "K\x01", name->python);
    expect(read(archive(by_v3, data)).toTensor());
    expect(read(stream(by_v3, static_cast<std::int64_t>(data.size()), data)).toTensor());
    if (name->legacy_storage.empty()) continue;
    const std::string by_v2 = tensor_v2(storage(name->legacy_storage, "0", 3), 0, "K\x03", "K\x01");
    expect(read(archive(by_v2, data)).toTensor());
    expect(read(stream(by_v2, 3, data)).toTensor());
  }
}

TEST(ArchiveReaderTest, BigEndianArchivesAreTurned) {
  const auto read_big = [](const std::string& body, const std::string& data) {
    return read(archive(body, data, "big")).toTensor();
  };
  std::string data = four_floats;
  std::reverse(data.begin(), data.end());
  EXPECT_TRUE(at::equal(read_big(tensor_v2(storage("FloatStorage", "0", 4), 0, "K\x04", "K\x01"), data),
                        at::tensor({4.F, 3.F, 2.F, 1.F})));
  EXPECT_TRUE(at::equal(
      at::view_as_real(read_big(tensor_v2(storage("ComplexFloatStorage", "0", 2), 0, "K\x02", "K\x01"), data)),
      at::tensor({4.F, 3.F, 2.F, 1.F}).reshape({2, 2})));
  EXPECT_TRUE(at::equal(read_big(tensor_v3(storage("UntypedStorage", "0", 4), 0, "K\x02", "K\x01", "uint16"),
                                 std::string("\x01\x02\x00\x03", 4))
                            .to(at::kInt),
                        at::tensor({0x0102, 0x0003}, at::kInt)));
  EXPECT_TRUE(at::equal(read_big(tensor_v2(storage("ByteStorage", "0", 2), 0, "K\x02", "K\x01"), "\x01\x02"),
                        at::tensor({1, 2}, at::kByte)));
  EXPECT_THAT(error_of(archive("N", "", "middle")), HasSubstr("unknown byte order 'middle'"));
  EXPECT_TRUE(read(zip_of({{"a/data.pkl", whole("N")}})).isNone()) << "none is little";
}

TEST(ArchiveReaderTest, ParametersAndTensorsWithAttributes) {
  const std::string plain = tensor_v2(storage("FloatStorage", "0", 4), 0, "K\x04", "K\x01");
  const std::string hooks = call(global("collections", "OrderedDict"), "");
  const std::string function = global("m", "loader");
  const std::string bodies[] = {
      call(global("torch._utils", "_rebuild_parameter"), plain + "\x88" + hooks),
      call(global("torch._utils", "_rebuild_parameter_with_state"),
           plain + "\x88" + hooks + dict(text("f") + function)),
      call(global("torch._tensor", "_rebuild_from_type_v2"),
           global("torch._utils", "_rebuild_tensor_v2") + global("torch", "Tensor") +
               tuple(storage("FloatStorage", "0", 4) + integer(0) + "K\x04\x85K\x01\x85\x89" + hooks) + "}"),
      plain + "}b",
  };
  for (const std::string& body : bodies) {
    const auto tensor = read(archive(body, four_floats)).toTensor();
    EXPECT_TRUE(at::equal(tensor, at::tensor({1.F, 2.F, 3.F, 4.F})));
    EXPECT_FALSE(tensor.requires_grad());
  }
  const std::string subclass = call(global("torch._tensor", "_rebuild_from_type_v2"),
                                    global("torch._utils", "_rebuild_tensor_v2") + global("m", "Sub") + ")}");
  EXPECT_EQ(refusal_of(archive(list(subclass))), "[0]: an object of 'm.Sub'");
  const std::string by_other =
      call(global("torch._tensor", "_rebuild_from_type_v2"), global("m", "f") + global("torch", "Tensor") + ")}");
  EXPECT_EQ(refusal_of(archive(list(by_other))), "[0]: a tensor made by 'm.f'");
}

TEST(ArchiveReaderTest, ConjugateAndNegativeViewsAreResolved) {
  const auto with = [](const std::string& flags) {
    return read(archive(tensor_v2(storage("ComplexFloatStorage", "0", 2), 0, "K\x02", "K\x01", dict(flags)),
                        four_floats))
        .toTensor();
  };
  const auto expect = [](const at::Tensor& tensor, std::vector<float> values) {
    EXPECT_FALSE(tensor.is_conj());
    EXPECT_FALSE(tensor.is_neg());
    EXPECT_EQ(std::memcmp(tensor.const_data_ptr(), values.data(), 16), 0);
  };
  expect(with(text("conj") + "\x88"), {1, -2, 3, -4});
  expect(with(text("neg") + "\x88"), {-1, -2, -3, -4});
  expect(with(text("conj") + "\x88" + text("neg") + "\x88"), {-1, 2, -3, 4});
  expect(with(text("conj") + "\x89"), {1, 2, 3, 4});
  // Many views of one storage share what it is resolved into.
  std::string many;
  for (int i = 0; i < 20; ++i) {
    many += tensor_v2(storage("ComplexFloatStorage", "0", 2), i % 2, "K\x01", "K\x01", dict(text("conj") + "\x88"));
  }
  const auto views = read(archive(list(many), four_floats)).toList();
  EXPECT_TRUE(views.get(0).toTensor().is_alias_of(views.get(19).toTensor()));
  EXPECT_EQ(at::view_as_real(views.get(19).toTensor()).select(1, 1).item<float>(), -4);
  // An expanded view claims gigabytes; resolving it must not make them.
  const auto expanded =
      read(archive(tensor_v2(storage("ComplexFloatStorage", "0", 2), 0, integer(std::int64_t{1} << 30),
                             std::string("K\0", 2), dict(text("conj") + "\x88")),
                   four_floats))
          .toTensor();
  EXPECT_EQ(expanded.storage().nbytes(), 16u);
  EXPECT_EQ(expanded.stride(0), 0);
}

TEST(ArchiveReaderTest, SparseTensorsAreCheckedIndexByIndex) {
  const auto sparse = [](const std::string& layout, const std::string& parts) {
    return call(global("torch._utils", "_rebuild_sparse_tensor"),
                call(global("torch.serialization", "_get_layout"), text(layout)) + tuple(parts));
  };
  const auto coo = [&](std::vector<std::int64_t> indices, const std::string& more, const std::string& sizes) {
    const std::string parts = tensor_v2(storage("LongStorage", "0", 4), 0, "K\x01K\x02", "K\x02K\x01") +
                              tensor_v2(storage("FloatStorage", "1", 2), 0, "K\x02", "K\x01") + tuple(sizes) + more;
    return zip_of({{"a/data.pkl", whole(sparse("torch.sparse_coo", parts))},
                   {"a/data/0", bytes_of(indices)},
                   {"a/data/1", four_floats}});
  };
  const auto good = read(coo({0, 2, 0, 0}, "\x88", "K\x03")).toTensor();
  EXPECT_TRUE(at::equal(good.to_dense(), at::tensor({1.F, 0.F, 2.F})));
  EXPECT_FALSE(read(coo({2, 0, 0, 0}, "\x89", "K\x03")).toTensor().is_coalesced());
  EXPECT_TRUE(at::equal(read(coo({2, 0, 0, 0}, "", "K\x03")).toTensor().to_dense(), at::tensor({2.F, 0.F, 1.F})));
  EXPECT_THAT(error_of(coo({0, 3, 0, 0}, "\x89", "K\x03")), HasSubstr("a torch.sparse_coo tensor that is none"));
  EXPECT_THAT(error_of(coo({-1, 2, 0, 0}, "\x89", "K\x03")), HasSubstr("a torch.sparse_coo tensor that is none"));
  EXPECT_THAT(error_of(coo({2, 0, 0, 0}, "\x88", "K\x03")), HasSubstr("a torch.sparse_coo tensor that is none"))
      << "claims to be sorted";
  EXPECT_THAT(error_of(coo({0, 2, 0, 0}, "\x89", "K\x03K\x03")), HasSubstr("a torch.sparse_coo tensor that is none"));
  EXPECT_THAT(error_of(coo({0, 2, 0, 0}, "\x89", integer(-3))), HasSubstr("overflow"));
  EXPECT_THAT(error_of(coo({0, 2, 0, 0}, "\x89NN", "K\x03")), HasSubstr("too few or many parts"));

  const std::string csr_parts = tensor_v2(storage("LongStorage", "0", 4), 0, "K\x03", "K\x01") +
                                tensor_v2(storage("LongStorage", "0", 4), 1, "K\x02", "K\x01") +
                                tensor_v2(storage("FloatStorage", "1", 2), 0, "K\x02", "K\x01") + tuple("K\x02K\x03");
  const auto csr = [&](std::vector<std::int64_t> indices) {
    return zip_of({{"a/data.pkl", whole(sparse("torch.sparse_csr", csr_parts))},
                   {"a/data/0", bytes_of(indices)},
                   {"a/data/1", four_floats}});
  };
  EXPECT_EQ(read(csr({0, 1, 2, 0})).toTensor().layout(), at::Layout::SparseCsr);
  EXPECT_THAT(error_of(csr({0, 1, 3, 0})), HasSubstr("a torch.sparse_csr tensor that is none"));
  EXPECT_THAT(error_of(csr({0, 3, 2, 0})), HasSubstr("a torch.sparse_csr tensor that is none"));
  EXPECT_EQ(refusal_of(archive(list(sparse("torch._mkldnn", "")))), "[0]: a sparse tensor of layout 'torch._mkldnn'");

  // Parts that are sparse themselves have no storage to look at.
  const std::string part = tensor_v2(storage("FloatStorage", "1", 2), 0, "K\x02", "K\x01");
  const std::string sparse_part = sparse("torch.sparse_csr", csr_parts);
  for (const std::string& parts : {sparse_part + part, part + sparse_part}) {
    EXPECT_THAT(error_of(zip_of({{"a/data.pkl", whole(sparse("torch.sparse_coo", parts + tuple("K\x03")))},
                                 {"a/data/0", bytes_of<std::int64_t>({0, 1, 2, 0})},
                                 {"a/data/1", four_floats}})),
                HasSubstr("a sparse tensor made of sparse parts"));
  }

  // Many tensors may share their indices.
  std::string many;
  for (int i = 0; i < 20; ++i) many += sparse("torch.sparse_csr", csr_parts);
  EXPECT_EQ(read(zip_of({{"a/data.pkl", whole(list(many))},
                         {"a/data/0", bytes_of<std::int64_t>({0, 1, 2, 0})},
                         {"a/data/1", four_floats}}))
                .toList()
                .size(),
            20u);

  // Indices expanded out of eight bytes into 8 GiB: checking them would take minutes.
  const std::string expanded =
      tensor_v2(storage("LongStorage", "0", 1), 0, "K\x01" + integer(1 << 30), std::string("K\0K\0", 4)) +
      tensor_v2(storage("FloatStorage", "1", 1), 0, integer(1 << 30), std::string("K\0", 2)) + tuple("K\x03");
  EXPECT_THAT(error_of(zip_of({{"a/data.pkl", whole(sparse("torch.sparse_coo", expanded))},
                               {"a/data/0", bytes_of<std::int64_t>({0})},
                               {"a/data/1", four_floats}})),
              HasSubstr("overlap in memory"));
}

TEST(ArchiveReaderTest, RefusesTensorsOfOtherKindsByName) {
  const std::string quantised = call(global("torch._utils", "_rebuild_qtensor"), storage("QInt8Storage", "0", 4));
  EXPECT_EQ(refusal_of(archive(list(quantised), "1234")), "[0]: an object of 'torch._utils._rebuild_qtensor'");
  EXPECT_EQ(refusal_of(archive(list(tensor_v2(storage("QInt8Storage", "0", 4), 0, "K\x04", "K\x01")), "1234")),
            "[0]: a quantised tensor");
  EXPECT_EQ(
      refusal_of(archive(list(tensor_v3(storage("UntypedStorage", "0", 4), 0, "K\x04", "K\x01", "float3")), "1234")),
      "[0]: a tensor of dtype 'torch.float3', which this torch does not have");
  EXPECT_EQ(refusal_of(archive(list(storage("FloatStorage", "0", 4)), four_floats)), "[0]: a bare storage");
  EXPECT_THAT(error_of(archive(storage("FloatStorage", "0", 4), four_floats)), HasSubstr("a bare storage"));
  EXPECT_EQ(refusal_of(archive(
                list(call(global("torch._utils", "_rebuild_parameter"), call(global("m", "C"), "") + "\x88" + "N")))),
            "[0]: an object of 'm.C'");
}

TEST(ArchiveReaderTest, OlderStreams) {
  const std::string body = tensor_v2(storage("FloatStorage", "0", 4), 1, "K\x03", "K\x01");
  const std::string bytes = stream(body, 4, four_floats);
  EXPECT_TRUE(at::equal(read(bytes).toTensor(), at::tensor({2.F, 3.F, 4.F})));
  EXPECT_TRUE(
      read(stream("N", 0, "").substr(0, stream("N", 0, "").size() - 8 - whole(list(text("0"))).size()) + whole("]"))
          .isNone());
  EXPECT_THAT(error_of(bytes.substr(0, bytes.size() - 1)),
              HasSubstr("storage '0' has 4 elements of 4 bytes where 15 bytes are left"));
  EXPECT_THAT(error_of(bytes.substr(0, bytes.size() - 17)), HasSubstr("8 bytes are needed here and 7 are left"));
  EXPECT_THAT(error_of(stream(body, -1, four_floats)), HasSubstr("has -1 elements"));
  EXPECT_THAT(error_of(stream(body, INT64_MAX, four_floats)), HasSubstr("has 9223372036854775807 elements"));
  EXPECT_THAT(error_of(stream(body, 3, four_floats)),
              HasSubstr("storage '0' has 12 bytes and the pickle counts on 16"));
  EXPECT_THAT(error_of(stream("N", 4, four_floats)), HasSubstr("is in the stream and not in its pickle"));
  EXPECT_THAT(error_of(stream(tensor_v2(storage("FloatStorage", "0", 4), 0, "K\x04", "K\x01") + "0" +
                                  tensor_v2(storage("FloatStorage", "1", 4), 0, "K\x04", "K\x01"),
                              4, four_floats)),
              HasSubstr("storage '1' is not in the stream"));
  EXPECT_THAT(error_of(whole("N")), HasSubstr("no torch.save stream"));
  const std::string magic = bytes.substr(0, 15);
  EXPECT_THAT(error_of(magic + whole("K\x05")), HasSubstr("another version than 1001"));
  const auto after_root = bytes.substr(0, bytes.size() - 24 - whole(list(text("0"))).size());
  EXPECT_THAT(error_of(after_root + whole("N")), HasSubstr("without its list of storages"));
  EXPECT_THAT(error_of(after_root + whole(list("N"))), HasSubstr("whose key is no text"));
  EXPECT_THAT(error_of(after_root + whole(list(text("0") + text("0"))) + little_endian(0, 16)),
              HasSubstr("stands there twice"));
}

TEST(ArchiveReaderTest, OlderStreamOfALongPickleInAFile) {
  // Longer than the block that a file is read by, twice.
  const dbg::test::TempFolder folder;
  const std::string path = folder / "x.pt";
  std::string entries;
  for (int i = 0; i < 50000; ++i) entries += text("entry " + std::to_string(i));
  const std::string body = tuple(list(entries) + tensor_v2(storage("FloatStorage", "0", 4), 0, "K\x04", "K\x01"));
  std::ofstream(path, std::ios::binary) << stream(body, 4, four_floats);
  const auto value = read_archive_file(path).toTuple()->elements();
  EXPECT_EQ(value[0].toList().get(49999).toStringRef(), "entry 49999");
  EXPECT_EQ(value[1].toTensor().sum().item<float>(), 10);
  ReadLimits limits;
  limits.max_pickle_bytes = 1000;
  EXPECT_THAT([&] { read_archive_file(path, limits); },
              testing::ThrowsMessage<dbg::IoError>(HasSubstr("longer than the limit of 1000 bytes")));
}

TEST(ArchiveReaderTest, DamageIsFoundByChecksum) {
  std::string bytes = archive_bytes(at::arange(1000));
  const std::string elements = bytes_of<std::int64_t>({500, 501});
  const auto at = bytes.find(elements);
  ASSERT_NE(at, std::string::npos);
  bytes[at] ^= 1;
  EXPECT_THAT(error_of(bytes), HasSubstr("zip entry 'archive/data/0' do not fit their checksum"));
}

TEST(ArchiveReaderTest, PickleErrorsNameTheByteInTheFile) {
  const std::string bytes = archive("t");
  const auto pickle = bytes.find("\x80\x02t.");
  EXPECT_THAT(error_of(bytes), HasSubstr("byte " + std::to_string(pickle + 2) + ": there is no mark here"));
}

TEST(ArchiveReaderTest, ThePickleEndsWithItsEntry) {
  // Without its stop, the pickle would run on into the entry that follows.
  EXPECT_THAT(error_of(zip_of({{"x/data.pkl", "\x80\x02N"}, {"x/version", "."}})),
              HasSubstr("needs 1 bytes here and 0 are left"));
}

TEST(ArchiveReaderTest, EveryCutOfAnArchiveIsAnIoError) {
  c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
  dict.insert("value", at::arange(5));
  dict.insert("meta", "x");
  const std::string bytes = archive_bytes(dict);
  for (std::size_t size = 0; size < bytes.size(); ++size) EXPECT_NE(error_of(bytes.substr(0, size)), "") << size;
  const std::string old = stream(tensor_v2(storage("FloatStorage", "0", 4), 0, "K\x04", "K\x01"), 4, four_floats);
  for (std::size_t size = 0; size < old.size(); ++size) EXPECT_NE(error_of(old.substr(0, size)), "") << size;
}

TEST(ArchiveReaderTest, NoMutationDoesMoreThanThrowIoError) {
  c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
  dict.insert("value", at::arange(5));
  dict.insert("sparse", at::eye(2).to_sparse());
  dict.insert("meta", "x");
  const std::string starts[] = {
      archive_bytes(dict, {.checksum = false}),
      stream(tensor_v2(storage("FloatStorage", "0", 4), 0, "K\x04", "K\x01"), 4, four_floats),
      zip_of({{"x/data.pkl", whole("K\x05")}}, [](ZipEnd& end) { end.zip64 = true; }),
  };
  std::mt19937 random(5);
  ReadLimits limits;
  limits.max_items = 10000;
  for (const std::string& start : starts) {
    for (int round = 0; round < 1500; ++round) {
      std::string changed = start;
      for (unsigned i = 0; i <= random() % 3; ++i) changed[random() % changed.size()] = static_cast<char>(random());
      try {
        read_archive_bytes(changed.data(), changed.size(), limits);
      } catch (const dbg::IoError&) {
      }
    }
  }
}

}  // namespace
