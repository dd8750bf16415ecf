// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Named tensors of a safetensors file.
#include "dbg/safetensors.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <unordered_map>
#include <utility>

#include "base/formatted.h"
#include "codec/byte_source.h"
#include "codec/safetensors_header.h"
#include "dbg/error.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "bytes are read as they stand in the file");

namespace dbg {

struct SafetensorsFile::Impl {
  explicit Impl(const std::string& file)
      : path(file),
        source(codec::ByteSource::file("safetensors file", file)),
        header(codec::read_safetensors_header(source)) {
    for (const auto& info : header.tensors) by_name.emplace(info.name, &info);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  std::string path;
  codec::ByteSource source;
  const codec::SafetensorsHeader header;
  std::unordered_map<std::string_view, const SafetensorsInfo*> by_name;
};

SafetensorsFile::SafetensorsFile(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

SafetensorsFile SafetensorsFile::open(const std::string& path) {
  return SafetensorsFile(std::make_shared<const Impl>(path));
}

const std::vector<SafetensorsInfo>& SafetensorsFile::tensors() const noexcept {
  return impl_->header.tensors;
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> names;
  names.reserve(tensors().size());
  for (const auto& info : tensors()) names.push_back(info.name);
  return names;
}

bool SafetensorsFile::contains(std::string_view name) const noexcept {
  return impl_->by_name.count(name) != 0;
}

const SafetensorsInfo& SafetensorsFile::info(std::string_view name) const {
  const auto found = impl_->by_name.find(name);
  if (found == impl_->by_name.end()) {
    throw ConfigError(formatted("safetensors file '{}' has no tensor '{}'; it has {}, the first '{}'", impl_->path,
                                codec::printable(name), tensors().size(),
                                tensors().empty() ? "" : codec::printable(tensors().front().name)));
  }
  return *found->second;
}

at::Tensor SafetensorsFile::tensor(std::string_view name) const {
  const SafetensorsInfo& found = info(name);
  if (found.dtype == at::ScalarType::Undefined) {
    impl_->source.fail(found.offset_bytes, formatted("tensor '{}' is of dtype {}, which this torch does not have",
                                                     codec::printable(name), found.file_dtype));
  }
  at::Tensor tensor;
  try {
    tensor = at::empty(found.shape, at::TensorOptions(found.dtype).device(at::kCPU));
  } catch (const c10::Error&) {
    impl_->source.fail(found.offset_bytes, formatted("no memory for the {} bytes of tensor '{}'", found.size_bytes,
                                                     codec::printable(name)));
  }
  impl_->source.read(found.offset_bytes, tensor.mutable_data_ptr(), found.size_bytes);
  return tensor;
}

const std::map<std::string, std::string>& SafetensorsFile::metadata() const noexcept {
  return impl_->header.metadata;
}

}  // namespace dbg
