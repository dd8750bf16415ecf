// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A value as a `.pt` archive, writing half: the zip that default torch.load reads.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "codec/byte_sink.h"
#include "codec/pickle_writer.h"
#include "codec/tensor_bytes.h"

namespace dbg::codec {

/// How an archive is written.
struct ArchiveOptions {
  /// Writes the zip's CRC-32 of each entry. torch never looks at it; zip tools and dbg's own reader do. An archive
  /// written without carries 0 there.
  bool checksum = true;
};

/// Writes the opcodes of an archive's root: a value of its own making, whose tensors go through the emitter.
using RootWriter = std::function<void(PickleWriter&, const TensorEmitter&)>;

/// A value encoded, but for the large bytes: those stay in the tensors' memory until written.
///
/// Format: a zip of uncompressed entries that start at multiples of 64 bytes,
/// - `archive/data.pkl`: a protocol 2 pickle of the value. A tensor is `torch._utils._rebuild_tensor_v2` of a legacy
///   storage class, or for dtypes that have none `_rebuild_tensor_v3` of `torch.storage.UntypedStorage`; a sparse one
///   is `_rebuild_sparse_tensor` of its parts: coalesced, but for dtypes that torch can't add up (uint16, fp8 ...),
///   which are written as they are, with that flag False. No other globals, but `complex` and `torch.device`.
/// - `archive/byteorder`: `little` or `big`
/// - `archive/data/<n>`: the bytes of the n-th tensor met. Never more than its elements, and where one is repeated
///   (expand) less; a tensor that is met again, itself or another with the same elements of the same memory, shares
///   them, as with torch.save. requires_grad is not kept.
/// - `archive/version`: `3\n`
/// Equal values make equal bytes.
///
/// Threads: one thread at a time; what it was made of must not be changed before it is written.
class Archive {
 public:
  /// Encodes `root`. Copies only tensors whose elements do not lie densely in host memory; waits for their device.
  /// Throws: ConfigError with the text of `refusal_of(root)`; what torch throws when it can't copy a tensor.
  explicit Archive(const c10::IValue& root, const ArchiveOptions& options = {});
  /// Encodes what `write_root` writes. Throws: what it throws, and as above.
  explicit Archive(const RootWriter& write_root, const ArchiveOptions& options = {});

  /// How long the archive will be. Costs a walk over the entries, not over their bytes.
  std::uint64_t size_bytes() const;

  /// Writes the archive; small ones in one piece.
  /// Throws: IoError with the errno of the sink's first failure and the bytes that were wanted.
  void write_to(ByteSink& sink) const;

 private:
  int write_entries(ByteSink& sink, bool checksum) const;
  void emit_strided(PickleWriter& out, std::size_t index);
  void emit_sparse(PickleWriter& out, const at::Tensor& tensor);
  /// Keeps a tensor's bytes as the next entry, whose index it returns.
  std::size_t add(const at::Tensor& tensor);

  ArchiveOptions options_;
  std::string pickle_;
  std::vector<TensorBytes> tensors_;
};

/// Encodes and writes at once; see Archive for what it throws.
void write_archive(const c10::IValue& root, ByteSink& sink, const ArchiveOptions& options = {});

/// The archive in memory.
/// Throws: as Archive's constructor.
std::string archive_bytes(const c10::IValue& root, const ArchiveOptions& options = {});

}  // namespace dbg::codec
