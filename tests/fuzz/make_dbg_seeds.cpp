// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Writes the seeds that come from dbg's own writer, and those that no writer writes. Run by hand when the format
// changes: make_dbg_seeds FOLDER
#include <ATen/ATen.h>

#include <fstream>
#include <string>

#include "codec/archive.h"
#include "codec/pickle_bytes_maker.h"
#include "codec/zip_maker.h"

namespace {

c10::impl::GenericDict record_of(const c10::IValue& value) {
  c10::impl::GenericDict meta(c10::StringType::get(), c10::AnyType::get());
  meta.insert("name", "attn_out");
  meta.insert("step", 0);
  c10::impl::GenericDict record(c10::StringType::get(), c10::AnyType::get());
  record.insert("value", value);
  record.insert("meta", meta);
  return record;
}

at::Tensor not_coalesced() {
  const at::Tensor indices = at::tensor({1, 1}, at::kLong).reshape({1, 2});
  return at::_sparse_coo_tensor_unsafe(indices, at::ones({2}, at::kByte).view(at::kFloat8_e5m2), {2},
                                       at::TensorOptions(at::kFloat8_e5m2), false);
}

// A sparse tensor whose values are sparse.
std::string sparse_of_sparse() {
  using namespace dbg::test::pickled;  // NOLINT: little else is about them
  const auto sparse = [](const std::string& layout, const std::string& parts) {
    return call(global("torch._utils", "_rebuild_sparse_tensor"),
                call(global("torch.serialization", "_get_layout"), text(layout)) + tuple(parts));
  };
  const std::string csr = sparse(
      "torch.sparse_csr", tensor_v2(storage("LongStorage", "0", 4), 0, "K\x03", "K\x01") +
                              tensor_v2(storage("LongStorage", "0", 4), 1, "K\x02", "K\x01") +
                              tensor_v2(storage("LongStorage", "0", 4), 0, "K\x02", "K\x01") + tuple("K\x02K\x03"));
  const std::string index = tensor_v2(storage("LongStorage", "0", 4), 0, std::string("K\x01K\x01"), "K\x01K\x01");
  std::string numbers;
  for (const std::uint64_t number : {0, 1, 2, 0}) numbers += little_endian(number, 8);
  return dbg::test::zip_of(
      {{"a/data.pkl", whole(sparse("torch.sparse_coo", index + csr + tuple("K\x03")))}, {"a/data/0", numbers}});
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto write = [&](const std::string& name, const std::string& bytes) {
    std::ofstream(std::string(argv[1]) + "/record/" + name, std::ios::binary) << bytes;
  };
  // Without checksums, but for one: what is changed shall get past them.
  const dbg::codec::ArchiveOptions plain{.checksum = false};
  const auto tensor = record_of(at::arange(6, at::kFloat).reshape({2, 3}));
  write("dbg-record.pt", dbg::codec::archive_bytes(tensor, plain));
  write("dbg-checksum.pt", dbg::codec::archive_bytes(tensor));
  const auto more = c10::ivalue::Tuple::create(
      {at::eye(2).to_sparse(), at::eye(2).to_sparse_csr(), not_coalesced(), c10::complex<double>(1, 2), "a\x80"});
  write("dbg-more.pt", dbg::codec::archive_bytes(record_of(more), plain));
  write("made-sparse-of-sparse.pt", sparse_of_sparse());
  return 0;
}
