// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Tensors as torch.load rebuilds them, and the entries of the zip around.
#include "codec/archive.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <bit>
#include <cerrno>
#include <string_view>

#include "base/errno_text.h"
#include "codec/tensor_rebuild.h"
#include "codec/zip_writer.h"
#include "dbg/error.h"

namespace dbg::codec {
namespace {

constexpr std::string_view kByteOrder = std::endian::native == std::endian::little ? "little" : "big";
// The oldest version number that readers of today take.
constexpr std::string_view kVersion = "3\n";

class MemorySink final : public ByteSink {
 public:
  int write(const void* data, std::size_t size) noexcept override {
    try {
      bytes.append(static_cast<const char*>(data), size);
      return 0;
    } catch (...) {
      return ENOMEM;
    }
  }

  std::string bytes;
};

class CountingSink final : public ByteSink {
 public:
  int write(const void*, std::size_t size) noexcept override {
    size_bytes += size;
    return 0;
  }

  std::uint64_t size_bytes = 0;
};

// Coalesced where torch can: it adds up few of the younger dtypes.
at::Tensor coalesced(const at::Tensor& tensor) {
  try {
    return tensor.coalesce();
  } catch (const c10::NotImplementedError&) {
    return tensor;
  }
}

}  // namespace

Archive::Archive(const c10::IValue& root, const ArchiveOptions& options) : options_(options) {
  const at::NoGradGuard no_grad;
  PickleWriter out;
  write_value(out, root, [this](PickleWriter& writer, const at::Tensor& tensor) { emit_tensor(writer, tensor); });
  pickle_ = out.finish();
}

void Archive::emit_tensor(PickleWriter& out, const at::Tensor& tensor) {
  if (tensor.layout() == c10::kStrided) {
    emit_strided(out, tensor);
  } else {
    emit_sparse(out, tensor);
  }
}

void Archive::emit_strided(PickleWriter& out, const at::Tensor& tensor) {
  const TensorBytes& bytes = tensors_.emplace_back(tensor);
  const DtypeName name = dtype_name(bytes.dtype()).value();
  const bool is_legacy = !name.legacy_storage.empty();
  const std::size_t width = c10::elementSize(bytes.dtype());

  out.global("torch._utils", is_legacy ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
  out.mark();
  out.mark();
  out.text("storage");
  if (is_legacy) {
    out.global("torch", name.legacy_storage);
  } else {
    out.global("torch.storage", "UntypedStorage");
  }
  out.text(std::to_string(tensors_.size() - 1));
  out.text("cpu");
  out.unsigned_integer(is_legacy ? bytes.size_bytes() / width : bytes.size_bytes());
  out.tuple_of_marked();
  out.persistent_id();
  out.integer(0);  // offset into the storage
  out.integer_tuple(bytes.sizes().data(), bytes.sizes().size());
  out.integer_tuple(bytes.strides().data(), bytes.strides().size());
  out.boolean(false);                        // requires_grad
  out.global("collections", "OrderedDict");  // backward hooks: none
  out.empty_tuple();
  out.reduce();
  if (!is_legacy) out.global("torch", name.python);
  out.tuple_of_marked();
  out.reduce();
}

void Archive::emit_sparse(PickleWriter& out, const at::Tensor& tensor) {
  const bool is_coo = tensor.layout() == c10::kSparse;
  const at::Tensor sparse = is_coo ? coalesced(tensor.detach()) : tensor.detach();
  out.global("torch._utils", "_rebuild_sparse_tensor");
  out.global("torch.serialization", "_get_layout");
  out.text(sparse_layout_name(tensor.layout()));
  out.tuple_of_last(1);
  out.reduce();
  out.mark();
  for (const at::Tensor& part : sparse_parts(sparse)) emit_strided(out, part);
  out.integer_tuple(tensor.sizes().data(), tensor.sizes().size());
  if (is_coo) out.boolean(sparse.is_coalesced());
  out.tuple_of_marked();
  out.tuple_of_last(2);
  out.reduce();
}

int Archive::write_entries(ByteSink& sink, bool checksum) const {
  ZipWriter zip(sink, checksum);
  zip.add("archive/data.pkl", pickle_.data(), pickle_.size());
  zip.add("archive/byteorder", kByteOrder.data(), kByteOrder.size());
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    zip.add("archive/data/" + std::to_string(i), tensors_[i].data(), tensors_[i].size_bytes());
  }
  zip.add("archive/version", kVersion.data(), kVersion.size());
  return zip.finish();
}

std::uint64_t Archive::size_bytes() const {
  CountingSink sink;
  write_entries(sink, false);
  return sink.size_bytes;
}

void Archive::write_to(ByteSink& sink) const {
  const int error = write_entries(sink, options_.checksum);
  if (error != 0) {
    throw IoError(fmt::format("{} bytes could not be written: {}", size_bytes(), base::errno_text(error)), error);
  }
}

void write_archive(const c10::IValue& root, ByteSink& sink, const ArchiveOptions& options) {
  Archive(root, options).write_to(sink);
}

std::string archive_bytes(const c10::IValue& root, const ArchiveOptions& options) {
  const Archive archive(root, options);
  MemorySink sink;
  sink.bytes.reserve(archive.size_bytes());
  archive.write_to(sink);
  return std::move(sink.bytes);
}

}  // namespace dbg::codec
