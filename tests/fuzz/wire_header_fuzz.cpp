// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Whatever a peer of a weight sync sends as header and infos: a bucket that is taken, or an error with a reason; never
// more memory than the bucket and what it announces of it.
//
// An input is a header of 128 bytes, then the infos. Its checksums are put right, or nothing would get past them.
#include <ATen/ATen.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "broadcast/header.h"
#include "broadcast/sync_run.h"
#include "broadcast/weight_assembly.h"
#include "codec/crc32.h"
#include "dbg/error.h"
#include "dbg/model_weights.h"
#include "fuzz/fuzz_support.h"

namespace {

constexpr std::uint64_t kBucketBytes = 4096;

// Looks at what it is handed, and refuses what would be large.
class TouchingSink : public dbg::TensorMapSink {
 public:
  at::Tensor storage_for(const dbg::WeightInfo& weight) override {
    double elements = 1;
    for (const std::int64_t size : weight.shape) elements *= static_cast<double>(size);
    if (elements > 1e6) throw dbg::ConfigError("too large for this test");
    return {};
  }
  void take(const dbg::WeightInfo&, const at::Tensor& tensor, bool) override { dbg::fuzz::touch(tensor); }
};

void read(const dbg::broadcast::HeaderBytes& bytes, const std::vector<std::byte>& rest) {
  dbg::broadcast::ControlMessage message;
  message.header = dbg::broadcast::decode_header(bytes, {0, kBucketBytes});
  dbg::fuzz::demand(message.header.length <= kBucketBytes, "a payload larger than the bucket passes");
  dbg::fuzz::demand(dbg::broadcast::encode(message.header) == bytes, "what was read is written as something else");
  message.infos = rest;
  const auto infos = dbg::broadcast::infos_of(message.header, message.infos);
  dbg::fuzz::demand(dbg::broadcast::encode_infos(infos) == rest, "infos are written as something else");

  TouchingSink sink;
  const at::Tensor memory = at::zeros({static_cast<std::int64_t>(kBucketBytes)}, at::kByte);
  for (const dbg::Integrity integrity : {dbg::Integrity::none, dbg::Integrity::bucket}) {
    dbg::broadcast::WeightAssembly assembly({kBucketBytes, 256}, integrity, sink);
    if (message.header.kind == dbg::broadcast::MessageKind::commit) {
      assembly.finish(message.header);
      continue;
    }
    // The hash that a root would send, where the input's is another: it is compared, and nothing would get past it.
    try {
      dbg::broadcast::BucketCutter cutter({kBucketBytes, 256});
      for (const dbg::WeightInfo& info : infos) {
        for (const auto& piece : cutter.add(info)) {
          if (piece.bucket == 0 && piece.ends_bucket) message.header.plan_hash = piece.plan_hash;
        }
      }
      if (cutter.bucket() == 0) message.header.plan_hash = cutter.plan_hash();
    } catch (const dbg::ConfigError&) {
    }
    message.header.has_digests = integrity != dbg::Integrity::none;
    message.header.payload_digest = dbg::broadcast::digest_of(memory.const_data_ptr(), message.header.length);
    assembly.take(message, memory);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  dbg::broadcast::HeaderBytes bytes{};
  std::memcpy(bytes.data(), data, std::min(size, bytes.size()));
  std::vector<std::byte> infos;
  if (size > bytes.size()) {
    const auto* rest = reinterpret_cast<const std::byte*>(data) + bytes.size();
    infos.assign(rest, rest + (size - bytes.size()));
  }
  const std::uint32_t info_digest = dbg::codec::crc32(infos.data(), infos.size());
  std::memcpy(bytes.data() + 112, &info_digest, sizeof info_digest);
  const std::uint32_t checksum = dbg::codec::crc32(bytes.data(), bytes.size() - 4);
  std::memcpy(bytes.data() + bytes.size() - 4, &checksum, sizeof checksum);
  try {
    read(bytes, infos);
  } catch (const dbg::Error&) {
  } catch (const dbg::broadcast::ForeignFailure&) {
  }
  return 0;
}
