// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Writes the seeds that come from dbg's own writer. Run by hand when the format changes: make_dbg_seeds FOLDER
#include <ATen/ATen.h>

#include <fstream>
#include <string>

#include "codec/archive.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::string folder = std::string(argv[1]) + "/record/";
  c10::impl::GenericDict meta(c10::StringType::get(), c10::AnyType::get());
  meta.insert("name", "attn_out");
  meta.insert("step", 0);
  c10::impl::GenericDict record(c10::StringType::get(), c10::AnyType::get());
  record.insert("value", at::arange(6, at::kFloat).reshape({2, 3}));
  record.insert("meta", meta);
  std::ofstream(folder + "dbg-record.pt", std::ios::binary) << dbg::codec::archive_bytes(record, {.checksum = false});
  std::ofstream(folder + "dbg-checksum.pt", std::ios::binary) << dbg::codec::archive_bytes(record);
  record.insert("value", c10::ivalue::Tuple::create({at::eye(2).to_sparse(), c10::complex<double>(1, 2), "a\x80"}));
  std::ofstream(folder + "dbg-more.pt", std::ios::binary) << dbg::codec::archive_bytes(record, {.checksum = false});
  return 0;
}
