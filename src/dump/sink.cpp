// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A draft's meta, and copies of values.
#include "dump/sink.h"

#include <ATen/core/grad_mode.h>
#include <ATen/core/jit_type.h>
#include <c10/core/InferenceMode.h>

namespace dbg {
namespace {

c10::IValue to_dict(const ParallelState& state) {
  c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
  for (const ParallelAxis& axis : state.axes()) {
    dict.insert(axis.name + "_rank", static_cast<std::int64_t>(axis.rank));
    dict.insert(axis.name + "_size", static_cast<std::int64_t>(axis.size));
  }
  return dict;
}

void write_axes(codec::PickleWriter& out, const ParallelState& state) {
  out.empty_dict();
  if (state.empty()) return;
  out.mark();
  for (const ParallelAxis& axis : state.axes()) {
    out.text(axis.name + "_rank");
    out.integer(axis.rank);
    out.text(axis.name + "_size");
    out.integer(axis.size);
  }
  out.add_to_dict();
}

void write_tag(codec::PickleWriter& out, TagView value) {
  switch (value.kind()) {
    case TagKind::none:
      return out.none();
    case TagKind::boolean:
      return out.boolean(value.boolean());
    case TagKind::integer:
      return out.integer(value.integer());
    case TagKind::real:
      return out.real(value.real());
    case TagKind::text:
      return out.text(value.text());
  }
}

}  // namespace

c10::IValue to_ivalue(TagView value) {
  switch (value.kind()) {
    case TagKind::none:
      break;
    case TagKind::boolean:
      return c10::IValue(value.boolean());
    case TagKind::integer:
      return c10::IValue(value.integer());
    case TagKind::real:
      return c10::IValue(value.real());
    case TagKind::text:
      return c10::IValue(std::string(value.text()));
  }
  return c10::IValue();
}

c10::IValue deep_copy(const c10::IValue& value) {
  // A copy made in inference mode would be an inference tensor: of little use to whoever looks at it later.
  const c10::InferenceMode ordinary(false);
  if (value.isTensor() && !value.toTensor().defined()) return value;
  const at::NoGradGuard no_grad;
  return value.deepcopy();
}

DumpRecord RecordDraft::record() const {
  c10::impl::GenericDict meta(c10::StringType::get(), c10::AnyType::get());
  meta.reserve(pairs.size() + extra_meta.size());
  for (const auto& [key, tag] : pairs) meta.insert_or_assign(std::string(key), to_ivalue(tag));
  for (const MetaEntry& entry : extra_meta) {
    meta.insert_or_assign(std::string(entry.key), entry.axes == nullptr ? to_ivalue(entry.tag) : to_dict(*entry.axes));
  }
  return {value, c10::IValue(std::move(meta))};
}

void RecordDraft::write_to(codec::PickleWriter& out, const codec::TensorEmitter& emit_tensor) const {
  // As codec::weight_of counts: 4 a dict, 2 a key and 2 a number or text.
  std::size_t weight = 2 * (4 + 4) + 4 * (pairs.size() + extra_meta.size());
  for (const MetaEntry& entry : extra_meta) weight += entry.axes == nullptr ? 0 : 2 + 8 * entry.axes->axes().size();
  out.empty_dict();
  out.mark();
  out.text("value");
  codec::write_value(out, value, emit_tensor, weight);
  out.text("meta");
  out.empty_dict();
  out.mark();
  for (const auto& [key, tag] : pairs) {
    out.text(key);
    write_tag(out, tag);
  }
  for (const MetaEntry& entry : extra_meta) {
    out.text(entry.key);
    if (entry.axes == nullptr) {
      write_tag(out, entry.tag);
    } else {
      write_axes(out, *entry.axes);
    }
  }
  out.add_to_dict();
  out.add_to_dict();
}

}  // namespace dbg
