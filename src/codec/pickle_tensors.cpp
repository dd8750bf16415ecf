// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Answering the calls in a pickle without calling.
#include "codec/pickle_tensors.h"

#include <ATen/ops/conj_physical.h>
#include <c10/core/Device.h>
#include <c10/util/complex.h>

#include <algorithm>
#include <utility>

#include "base/formatted.h"
#include "base/windowed_storage.h"
#include "codec/pickle_text.h"
#include "codec/tensor_bytes.h"

namespace dbg::codec {
namespace {

MadeByCall refused(std::string reason) {
  return {std::nullopt, std::move(reason)};
}

MadeByCall made(c10::IValue value) {
  return {std::move(value), {}};
}

}  // namespace

const MadeByCall& PickleTensors::call(std::size_t index, const PickleStep* path) {
  path_ = path;
  return answered(index);
}

const MadeByCall& PickleTensors::answered(std::size_t index) {
  const auto found = made_.find(index);
  if (found != made_.end()) return found->second;
  const PickleCall& call = graph_.calls[index];
  MadeByCall result;
  if (call.role == PickleRole::load_from_bytes) {
    const PickledValue& loaded = stream(index);
    const auto* value = std::get_if<c10::IValue>(&loaded);
    result = value != nullptr ? made(*value) : refused("a bare storage");
  } else {
    result = answer(call);
  }
  return made_.emplace(index, std::move(result)).first->second;
}

MadeByCall PickleTensors::answer(const PickleCall& call) {
  switch (call.role) {
    case PickleRole::complex:
      return make_complex(call);
    case PickleRole::device:
      return make_device(call);
    case PickleRole::tensor_metadata:
      return make_tensor_metadata(call);
    case PickleRole::layout:
      return refused("a torch layout");
    case PickleRole::bytes_maker:
      return refused("bytes");
    case PickleRole::rebuild_tensor_v2:
    case PickleRole::rebuild_tensor_v3:
      return make_strided_tensor(call);
    case PickleRole::rebuild_parameter:
      // (data, requires_grad, hooks)
      return tensor_of(arguments_of(call, 3, 3)[0], call);
    case PickleRole::rebuild_parameter_with_state:
      // (data, requires_grad, hooks, Python attributes)
      return tensor_of(arguments_of(call, 4, 4)[0], call);
    case PickleRole::rebuild_sparse:
      return make_sparse_tensor(call);
    case PickleRole::rebuild_from_type:
      return make_typed(call);
    default:
      fail(call, "a call that has no answer");
  }
}

MadeByCall PickleTensors::make_complex(const PickleCall& call) const {
  double parts[2];
  const Arguments& given = arguments_of(call, 2, 2);
  for (std::size_t i = 0; i < 2; ++i) {
    if (given[i].kind == PickleKind::real) {
      parts[i] = given[i].real;
    } else if (given[i].kind == PickleKind::integer) {
      parts[i] = static_cast<double>(given[i].integer);
    } else {
      fail(call, "a complex number of something else than two numbers");
    }
  }
  return made(c10::complex<double>(parts[0], parts[1]));
}

MadeByCall PickleTensors::make_tensor_metadata(const PickleCall& call) const {
  const Arguments& given = arguments_of(call, 3, 3);
  const bool has_dtype =
      given[1].kind == PickleKind::global && graph_.globals[given[1].index].role == PickleRole::dtype;
  if (!has_dtype) fail(call, "a TensorMetadata without a dtype");
  const auto name = dtype_name(graph_.globals[given[1].index].dtype);
  if (!name) fail(call, "a TensorMetadata of a dtype without elements");
  std::vector<c10::IValue> fields;
  fields.emplace_back(std::string(text_of(given[0], call)));
  fields.emplace_back(name->python);
  fields.emplace_back(integers_of(given[2], call));
  auto type = c10::TupleType::createNamed(
      c10::QualifiedName("TensorMetadata"), std::vector<std::string>{"device", "dtype", "size"},
      std::vector<c10::TypePtr>{c10::StringType::get(), c10::StringType::get(), c10::ListType::ofInts()});
  return made(c10::ivalue::Tuple::createNamed(std::move(fields), std::move(type)));
}

MadeByCall PickleTensors::make_device(const PickleCall& call) const {
  const Arguments& given = arguments_of(call, 1, 2);
  std::string name(text_of(given[0], call).substr(0, 64));
  if (given.size() == 2) {
    if (given[1].kind != PickleKind::integer) fail(call, "a torch.device whose index is no integer");
    name += formatted(":{}", given[1].integer);
  }
  try {
    return made(c10::Device(name));
  } catch (const std::exception&) {
    return refused(formatted("a torch.device '{}', which this torch does not know", printable(name)));
  }
}

MadeByCall PickleTensors::make_strided_tensor(const PickleCall& call) {
  // (storage, offset, size, stride, requires_grad, hooks[, dtype in v3][, metadata])
  const bool has_dtype = call.role == PickleRole::rebuild_tensor_v3;
  const std::size_t plain = has_dtype ? 7 : 6;
  const Arguments& given = arguments_of(call, plain, plain + 1);

  c10::ScalarType dtype = c10::ScalarType::Undefined;
  if (has_dtype) {
    const PickleRef ref = given[6];
    if (ref.kind != PickleKind::global) fail(call, "a tensor whose dtype is none");
    const PickleGlobal& global = graph_.globals[ref.index];
    if (global.role != PickleRole::dtype) {
      return refused(formatted("a tensor of dtype '{}', which this torch does not have", graph_.name_of(global)));
    }
    dtype = global.dtype;
  }

  PickledStorage storage;
  if (given[0].kind == PickleKind::storage) {
    const PickleStorage& pickled = graph_.storages[given[0].index];
    if (!has_dtype) dtype = pickled.dtype;
    // A storage without a dtype is one of bytes.
    if (dtype == c10::ScalarType::Undefined) dtype = c10::ScalarType::Byte;
    if (c10::isQIntType(dtype)) return refused("a quantised tensor");
    std::int64_t size_bytes = 0;
    const auto element_bytes =
        pickled.dtype == c10::ScalarType::Undefined ? 1 : static_cast<std::int64_t>(c10::elementSize(pickled.dtype));
    if (__builtin_mul_overflow(pickled.elements, element_bytes, &size_bytes)) {
      graph_.bytes.fail(pickled.offset, "a storage whose size overflows");
    }
    storage.storage = environment_.storage(graph_.text_of(pickled.key), static_cast<std::uint64_t>(size_bytes), dtype);
  } else if (given[0].kind == PickleKind::call && graph_.calls[given[0].index].role == PickleRole::load_from_bytes) {
    const auto* loaded = std::get_if<PickledStorage>(&stream(given[0].index));
    if (loaded == nullptr) fail(call, "a tensor whose storage is none");
    storage = *loaded;
    if (!has_dtype) dtype = storage.dtype;
    if (dtype == c10::ScalarType::Undefined) dtype = c10::ScalarType::Byte;
    if (c10::isQIntType(dtype)) return refused("a quantised tensor");
  } else {
    fail(call, "a tensor whose storage is none");
  }

  StridedPlaces places;
  if (given[1].kind != PickleKind::integer) fail(call, "a tensor whose offset is no integer");
  places.offset = given[1].integer;
  places.sizes = integers_of(given[2], call);
  places.strides = integers_of(given[3], call);
  if (const auto problem = problem_of(places, dtype, storage.storage.nbytes(), limits_.max_tensor_bytes)) {
    fail(call, *problem);
  }

  const PickleRef metadata = given.size() > plain ? given[plain] : PickleRef();
  const bool conjugate = is_flag_set(metadata, "conj");
  const bool negate = is_flag_set(metadata, "neg");
  if (conjugate || negate) {
    try {
      storage.storage = resolved(storage.storage, dtype, conjugate, negate, call);
    } catch (const c10::Error&) {
      return refused(
          formatted("a conjugate or negative view of {}, which this torch can't resolve", c10::toString(dtype)));
    }
  }
  return made(make_strided(std::move(storage.storage), dtype, std::move(places)));
}

MadeByCall PickleTensors::make_sparse_tensor(const PickleCall& call) {
  // (layout, (indices, values, size[, is_coalesced])) or (layout, (compressed indices, plain indices, values, size))
  const Arguments& given = arguments_of(call, 2, 2);
  const bool is_layout = given[0].kind == PickleKind::call && graph_.calls[given[0].index].role == PickleRole::layout;
  if (!is_layout || given[1].kind != PickleKind::tuple) fail(call, "a sparse tensor without layout or parts");
  const PickleCall& named = graph_.calls[given[0].index];
  const std::string_view name = text_of(arguments_of(named, 1, 1)[0], named);
  const auto layout = sparse_layout_called(name);
  if (!layout) return refused(formatted("a sparse tensor of layout '{}'", printable(name)));

  const Arguments& data = graph_.sequences[given[1].index];
  const std::size_t parts_count = *layout == at::Layout::Sparse ? 2 : 3;
  const bool has_flag = *layout == at::Layout::Sparse && data.size() == 4;
  if (!has_flag && data.size() != parts_count + 1) fail(call, "a sparse tensor of too few or many parts");
  std::vector<at::Tensor> parts;
  for (std::size_t i = 0; i < parts_count; ++i) {
    const MadeByCall part = tensor_of(data[i], call);
    if (!part.value) return refused(formatted("a sparse tensor with {}", part.reason));
    // What follows asks the parts for their storages, which sparse ones don't have.
    if (part.value->toTensor().layout() != at::kStrided) fail(call, "a sparse tensor made of sparse parts");
    parts.push_back(part.value->toTensor());
    base::load_whole(parts.back().storage());
  }
  const bool is_coalesced = has_flag && data[3].kind == PickleKind::boolean && data[3].index != 0;
  const auto sizes = integers_of(data[parts_count], call);
  // Checking the indices goes through them all, for each tensor again.
  for (std::size_t i = 0; i + 1 < parts_count; ++i) spend_checked(parts[i].storage().nbytes(), call);
  try {
    return made(make_sparse(*layout, parts, sizes, is_coalesced));
  } catch (const c10::Error& error) {
    fail(call, formatted("a {} tensor that is none: {}", name, printable(error.what_without_backtrace(), 300)));
  }
}

MadeByCall PickleTensors::make_typed(const PickleCall& call) {
  // (function, class, its arguments, Python attributes): a tensor with attributes, or of a class of its own.
  const Arguments& given = arguments_of(call, 4, 4);
  if (given[0].kind != PickleKind::global || given[1].kind != PickleKind::global ||
      given[2].kind != PickleKind::tuple) {
    fail(call, "a typed tensor without function, class or arguments");
  }
  const PickleGlobal& type = graph_.globals[given[1].index];
  if (type.role != PickleRole::plain_tensor_class) {
    return refused(formatted("an object of '{}'", graph_.name_of(type)));
  }
  const PickleRole role = graph_.globals[given[0].index].role;
  switch (role) {
    case PickleRole::rebuild_tensor_v2:
    case PickleRole::rebuild_tensor_v3:
    case PickleRole::rebuild_sparse:
      return answer({role, given[2].index, call.offset});
    default:
      return refused(formatted("a tensor made by '{}'", graph_.name_of(graph_.globals[given[0].index])));
  }
}

MadeByCall PickleTensors::tensor_of(PickleRef ref, const PickleCall& call) {
  if (ref.kind == PickleKind::object) return refused(describe_refused(graph_, ref));
  if (ref.kind != PickleKind::call) fail(call, "a tensor is wanted here");
  if (budget_.depth == 0) fail(call, budget_.depth_spent("calls"));
  --budget_.depth;
  MadeByCall inner = answered(ref.index);
  ++budget_.depth;
  if (inner.value && !inner.value->isTensor()) fail(call, "a tensor is wanted here");
  return inner;
}

PickledStorage PickleTensors::storage(std::size_t index) {
  const PickleStorage& pickled = graph_.storages[index];
  const auto dtype = pickled.dtype == c10::ScalarType::Undefined ? c10::ScalarType::Byte : pickled.dtype;
  std::int64_t size_bytes = 0;
  if (__builtin_mul_overflow(pickled.elements, static_cast<std::int64_t>(c10::elementSize(dtype)), &size_bytes)) {
    graph_.bytes.fail(pickled.offset, "a storage whose size overflows");
  }
  return {environment_.storage(graph_.text_of(pickled.key), static_cast<std::uint64_t>(size_bytes), dtype),
          pickled.dtype};
}

const PickledValue& PickleTensors::stream(std::size_t index) {
  const auto found = streams_.find(index);
  if (found != streams_.end()) return found->second;
  const PickleCall& call = graph_.calls[index];
  if (budget_.depth == 0) fail(call, budget_.depth_spent("streams"));
  --budget_.depth;
  std::string decoded;
  PickledValue value = environment_.stream(bytes_of(arguments_of(call, 1, 1)[0], call, decoded));
  ++budget_.depth;
  return streams_.emplace(index, std::move(value)).first->second;
}

std::string_view PickleTensors::bytes_of(PickleRef ref, const PickleCall& call, std::string& decoded) const {
  if (ref.kind == PickleKind::bytes) return graph_.text_of(graph_.spans[ref.index]);
  if (ref.kind == PickleKind::call && graph_.calls[ref.index].role == PickleRole::bytes_maker) {
    // Protocol 2 has no bytes: _codecs.encode(text, "latin1") stands for them.
    const PickleCall& maker = graph_.calls[ref.index];
    const Arguments& given = arguments_of(maker, 2, 2);
    auto bytes = decode_latin1(text_of(given[0], maker));
    if (!bytes || text_of(given[1], maker) != "latin1") fail(maker, "bytes in an unknown encoding");
    spend_checked(bytes->size(), maker);
    decoded = *std::move(bytes);
    return decoded;
  }
  fail(call, "bytes are wanted here");
}

const PickleTensors::Arguments& PickleTensors::arguments_of(const PickleCall& call, std::size_t least,
                                                            std::size_t most) const {
  const Arguments& given = graph_.sequences[call.arguments];
  if (given.size() < least || given.size() > most) {
    fail(call, formatted("a call with {} arguments instead of {}", given.size(), least));
  }
  return given;
}

std::vector<std::int64_t> PickleTensors::integers_of(PickleRef ref, const PickleCall& call) const {
  if (ref.kind != PickleKind::tuple && ref.kind != PickleKind::list) fail(call, "a tuple of integers is wanted here");
  const Arguments& entries = graph_.sequences[ref.index];
  if (entries.size() > 64) fail(call, "a tensor of more than 64 dimensions");
  std::vector<std::int64_t> out;
  for (const PickleRef entry : entries) {
    if (entry.kind != PickleKind::integer) fail(call, "a tuple of integers is wanted here");
    out.push_back(entry.integer);
  }
  return out;
}

c10::Storage PickleTensors::resolved(const c10::Storage& storage, c10::ScalarType dtype, bool conjugate, bool negate,
                                     const PickleCall& call) {
  const auto key = std::tuple(storage.data(), dtype, conjugate, negate);
  const auto found = resolved_.find(key);
  if (found != resolved_.end()) return found->second;
  if (budget_.tensor_bytes < storage.nbytes()) {
    fail(call, budget_.tensor_bytes_spent("a conjugate or negative view of a storage", storage.nbytes()));
  }
  budget_.tensor_bytes -= storage.nbytes();
  base::load_whole(storage);
  // All the storage and not the view: an expanded view of a few bytes would become as large as it claims to be.
  const auto elements = static_cast<std::int64_t>(storage.nbytes() / c10::elementSize(dtype));
  at::Tensor flat = make_strided(storage, dtype, {0, {elements}, {1}});
  if (conjugate && c10::isComplexType(dtype)) flat = at::conj_physical(flat);
  if (negate) flat = negated(flat);
  return resolved_.emplace(key, flat.storage()).first->second;
}

void PickleTensors::spend_checked(std::uint64_t bytes, const PickleCall& call) const {
  if (budget_.checked_bytes < bytes) fail(call, budget_.checked_bytes_spent());
  budget_.checked_bytes -= bytes;
}

std::string_view PickleTensors::text_of(PickleRef ref, const PickleCall& call) const {
  if (ref.kind != PickleKind::text) fail(call, "text is wanted here");
  return graph_.text_of(graph_.spans[ref.index]);
}

bool PickleTensors::is_flag_set(PickleRef metadata, std::string_view name) const {
  if (metadata.kind != PickleKind::dict) return false;
  const Arguments& entries = graph_.sequences[metadata.index];
  // torch writes two flags at most; a long dict would be searched for every tensor.
  for (std::size_t i = 0; i + 1 < std::min<std::size_t>(entries.size(), 8); i += 2) {
    const bool is_named = entries[i].kind == PickleKind::text && graph_.text_of(graph_.spans[entries[i].index]) == name;
    if (is_named && entries[i + 1].kind == PickleKind::boolean) return entries[i + 1].index != 0;
  }
  return false;
}

}  // namespace dbg::codec
