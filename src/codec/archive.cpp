// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Tensors as torch.load rebuilds them, and the entries of the zip around.
#include "codec/archive.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/DimVector.h>
#include <c10/util/Exception.h>

#include <bit>
#include <cerrno>
#include <string_view>
#include <unordered_map>

#include "base/errno_text.h"
#include "base/formatted.h"
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

// Where a strided tensor's elements lie, and how they are read: two tensors of one place are one run of bytes. Holds
// only while the value that is encoded does, for its memory would be another's later.
struct Place {
  explicit Place(const at::Tensor& tensor)
      : storage(tensor.storage().unsafeGetStorageImpl()),
        offset(tensor.storage_offset()),
        dtype(tensor.scalar_type()),
        is_conj(tensor.is_conj()),
        is_neg(tensor.is_neg()),
        sizes(tensor.sizes()),
        strides(tensor.strides()) {}
  bool operator==(const Place&) const = default;

  const void* storage;
  std::int64_t offset;
  c10::ScalarType dtype;
  bool is_conj;
  bool is_neg;
  c10::DimVector sizes;
  c10::DimVector strides;
};

struct PlaceHash {
  std::size_t operator()(const Place& place) const noexcept {
    std::size_t hash = std::hash<const void*>()(place.storage);
    const auto add = [&hash](std::int64_t number) { hash = hash * 1099511628211u + static_cast<std::size_t>(number); };
    add(place.offset);
    for (const std::int64_t size : place.sizes) add(size);
    for (const std::int64_t stride : place.strides) add(stride);
    return hash;
  }
};

}  // namespace

Archive::Archive(const c10::IValue& root, const ArchiveOptions& options)
    : Archive([&root](PickleWriter& out, const TensorEmitter& emit) { write_value(out, root, emit); }, options) {}

Archive::Archive(const RootWriter& write_root, const ArchiveOptions& options) : options_(options) {
  const at::NoGradGuard no_grad;
  PickleWriter out;
  std::unordered_map<Place, std::size_t, PlaceHash> met;
  write_root(out, [&](PickleWriter& writer, const at::Tensor& tensor) {
    if (tensor.layout() != c10::kStrided) {
      emit_sparse(writer, tensor);
    } else if (tensor._is_zerotensor() || !tensor.unsafeGetTensorImpl()->has_storage()) {
      emit_strided(writer, add(tensor));
    } else {
      const auto [known, is_new] = met.try_emplace(Place(tensor), tensors_.size());
      emit_strided(writer, is_new ? add(tensor) : known->second);
    }
  });
  pickle_ = out.finish();
}

std::size_t Archive::add(const at::Tensor& tensor) {
  tensors_.emplace_back(tensor);
  return tensors_.size() - 1;
}

void Archive::emit_strided(PickleWriter& out, std::size_t index) {
  const TensorBytes& bytes = tensors_[index];
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
  out.text(std::to_string(index));
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
  for (const at::Tensor& part : sparse_parts(sparse)) {
    emit_strided(out, add(part));  // a part may be made here, and gone before the next
  }
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
    throw IoError(formatted("{} bytes could not be written: {}", size_bytes(), base::errno_text(error)), error);
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
