// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Metadata as an object, then the tensors one by one.
#include "distributed/tensor_dict.h"

#include <ATen/ATen.h>

#include <limits>
#include <set>
#include <string_view>

#include "base/formatted.h"
#include "codec/pickle_graph.h"
#include "codec/tensor_bytes.h"
#include "distributed/object_bytes.h"
#include "distributed/p2p.h"
#include "distributed/wire_tensor.h"

namespace dbg::distributed {
namespace {

using std::chrono::milliseconds;

constexpr const char* kMetadataClass = "TensorMetadata";

void write_metadata(codec::PickleWriter& out, std::string_view key, const at::Tensor& tensor) {
  const auto dtype = codec::dtype_name(tensor.scalar_type());
  if (!dtype || tensor.layout() != c10::kStrided) {
    throw ConfigError(formatted("'{}' is a tensor of {} and layout {}; a tensor dict carries dense ones", key,
                                c10::toString(tensor.scalar_type()), static_cast<int>(tensor.layout())));
  }
  out.global("sglang.srt.distributed.parallel_state", kMetadataClass);
  out.text(c10::DeviceTypeName(tensor.device().type(), /*lower_case=*/true));
  out.global("torch", dtype->python);
  out.global("torch", "Size");
  const std::vector<std::int64_t> sizes = tensor.sizes().vec();
  out.integer_tuple(sizes.data(), sizes.size());
  out.tuple_of_last(1);
  out.reduce();
  out.tuple_of_last(3);
  out.reduce();
}

EncodedObject encode_metadata(const TensorDict& dict) {
  return encode_with([&] {
    std::set<std::string_view> keys;
    codec::PickleWriter out(kPickleProtocol);
    out.empty_list();
    out.mark();
    for (const auto& [key, value] : dict) {
      if (!keys.insert(key).second) throw ConfigError(formatted("a tensor dict with two values named '{}'", key));
      out.text(key);
      if (value.isTensor() && value.toTensor().defined()) {
        write_metadata(out, key, value.toTensor());
      } else {
        codec::write_value(out, value, emit_tensor_with_bytes);
      }
      out.tuple_of_last(2);
    }
    out.append_to_list();
    return out.finish();
  });
}

std::vector<at::Tensor> tensors_of(const TensorDict& dict) {
  std::vector<at::Tensor> tensors;
  for (const auto& [key, value] : dict) {
    if (value.isTensor() && value.toTensor().defined() && value.toTensor().numel() > 0) {
      tensors.push_back(value.toTensor());
    }
  }
  return tensors;
}

// The fields of `(device, dtype, size)` when `value` is what the reader makes of a TensorMetadata.
std::optional<std::vector<c10::IValue>> metadata_fields(const c10::IValue& value) {
  if (!value.isTuple()) return std::nullopt;
  const auto type = value.toTupleRef().type();
  if (!type->name() || type->name()->name() != kMetadataClass) return std::nullopt;
  const auto fields = value.toTupleRef().elements();
  return std::vector<c10::IValue>(fields.begin(), fields.end());
}

// Makes what a sender's dict announces: tensors without values yet.
class DictReader {
 public:
  DictReader(CollectiveCall& call, int source_in_group, const TensorDictOptions& options)
      : call_(call), source_(source_in_group), options_(options) {}

  TensorDict read(const at::Tensor& bytes) {
    const c10::IValue list = decode_object(call_, bytes, source_, options_.max_metadata_bytes);
    if (!list.isList()) refuse("no list of metadata, but " + list.tagKind());
    TensorDict dict;
    std::set<std::string> keys;
    for (const c10::IValue& entry : list.toListRef()) {
      const bool is_pair = entry.isTuple() && entry.toTupleRef().elements().size() == 2;
      if (!is_pair || !entry.toTupleRef().elements()[0].isString()) refuse("an entry that is no (name, value)");
      std::string key = entry.toTupleRef().elements()[0].toStringRef();
      if (!keys.insert(key).second) refuse("two values named '" + key + "'");
      const c10::IValue& value = entry.toTupleRef().elements()[1];
      const auto fields = metadata_fields(value);
      dict.emplace_back(std::move(key), fields ? c10::IValue(room_for(*fields)) : value);
    }
    return dict;
  }

 private:
  // The tensors' bytes are on their way, and nobody will take them: the group is of no more use.
  [[noreturn]] void refuse(std::string cause) {
    const std::vector<int> source = global_ranks(call_.half(), {source_});
    call_.break_group(CommErrorKind::handshake_mismatch, formatted("rank {} announces {}", source.front(), cause),
                      "see whether all ranks make the same calls in the same order", source);
  }

  at::Tensor room_for(const std::vector<c10::IValue>& fields) {
    const c10::ScalarType dtype = codec::find_pickle_global("torch", fields[1].toStringRef()).dtype;
    const std::vector<std::int64_t> sizes = fields[2].toIntVector();
    std::int64_t bytes = static_cast<std::int64_t>(c10::elementSize(dtype));
    for (const std::int64_t size : sizes) {
      if (size < 0) refuse(formatted("a tensor with a dimension of {}", size));
      if (size > 0 && bytes > options_.max_tensor_bytes / size) {
        refuse(formatted("a tensor above the limit of {} bytes", options_.max_tensor_bytes));
      }
      bytes *= size;
    }
    return at::empty(sizes, at::TensorOptions().dtype(dtype).device(device_of(fields[0].toStringRef())));
  }

  c10::Device device_of(const std::string& type) {
    if (type == "cpu") return at::kCPU;
    if (options_.device) return *options_.device;
    try {
      return c10::Device(type);
    } catch (const c10::Error&) {
      refuse("a tensor on '" + type.substr(0, 40) + "', which is no device here");
    }
  }

  CollectiveCall& call_;
  int source_;
  const TensorDictOptions& options_;
};

void broadcast_entry(CollectiveCall& call, const at::Tensor& tensor, int src_in_group) {
  const WireTensor carried(call, "broadcast_tensor_dict", tensor);
  std::vector<at::Tensor> tensors{carried.wire()};
  call.run({tensor.numel(), tensor.numel(), carried.wire().scalar_type(), -1,
            terms_of(call, call.is_compared() ? formatted("(from {}) ", src_in_group) : "", carried.dense())},
           [&](milliseconds left) {
             c10d::BroadcastOptions options;
             options.rootRank = src_in_group;
             options.timeout = left;
             return call.backend().broadcast(tensors, options);
           });
  if (call.half().rank_in_group != src_in_group) carried.copy_back();
}

// The call on the device half that belongs to one on the cpu half, made when the first tensor needs it: a group whose
// device half is broken can still pass CPU tensors.
class DeviceCall {
 public:
  DeviceCall(GroupHalf& half, std::string_view operation, const CallOptions& options)
      : half_(half), operation_(operation), options_(options) {}

  CollectiveCall& get(const CollectiveCall& cpu_call) {
    if (!call_) {
      CallOptions rest = options_;
      rest.timeout = cpu_call.left();
      call_.emplace(half_, operation_, rest);
    }
    return *call_;
  }

 private:
  GroupHalf& half_;
  std::string_view operation_;
  const CallOptions& options_;
  std::optional<CollectiveCall> call_;
};

int around(const GroupHalf& half, int distance) {
  return (half.rank_in_group + distance + half.size()) % half.size();
}

}  // namespace

TensorDict broadcast_tensor_dict(const GroupPair& group, const TensorDict& dict, int src_in_group,
                                 const TensorDictOptions& options) {
  constexpr std::string_view kOperation = "broadcast_tensor_dict";
  CollectiveCall call(group.cpu, kOperation, options);
  DeviceCall device_call(group.device, kOperation, options);
  require_member(group.cpu, kOperation, "src_in_group", src_in_group);
  const bool is_source = group.cpu.rank_in_group == src_in_group;
  const EncodedObject encoded = is_source ? encode_metadata(dict) : EncodedObject();
  const at::Tensor bytes = broadcast_bytes(call, encoded, src_in_group, options.max_metadata_bytes);
  encoded.rethrow_if_failed();
  TensorDict all = is_source ? dict : DictReader(call, src_in_group, options).read(bytes);
  for (const at::Tensor& tensor : tensors_of(all)) {
    broadcast_entry(tensor.is_cpu() ? call : device_call.get(call), tensor, src_in_group);
  }
  return all;
}

void send_tensor_dict(const GroupPair& group, const TensorDict& dict, std::optional<int> dst_in_group,
                      const TensorDictOptions& options) {
  constexpr std::string_view kOperation = "send_tensor_dict";
  CollectiveCall call(group.cpu, kOperation, options);
  DeviceCall device_call(group.device, kOperation, options);
  const int dst = dst_in_group.value_or(around(group.cpu, 1));
  require_other_member(group.cpu, kOperation, "dst_in_group", dst);
  const EncodedObject encoded = encode_metadata(dict);
  send_bytes(call, encoded, dst);
  encoded.rethrow_if_failed();
  for (const at::Tensor& tensor : tensors_of(dict)) {
    send_within(tensor.is_cpu() ? call : device_call.get(call), tensor, dst, kDefaultTag);
  }
}

TensorDict recv_tensor_dict(const GroupPair& group, std::optional<int> src_in_group, const TensorDictOptions& options) {
  constexpr std::string_view kOperation = "recv_tensor_dict";
  CollectiveCall call(group.cpu, kOperation, options);
  DeviceCall device_call(group.device, kOperation, options);
  const int src = src_in_group.value_or(around(group.cpu, -1));
  require_other_member(group.cpu, kOperation, "src_in_group", src);
  const at::Tensor bytes = recv_bytes(call, src, options.max_metadata_bytes);
  TensorDict dict = DictReader(call, src, options).read(bytes);
  for (const at::Tensor& tensor : tensors_of(dict)) {
    recv_within(tensor.is_cpu() ? call : device_call.get(call), tensor, src, kDefaultTag);
  }
  return dict;
}

}  // namespace dbg::distributed
