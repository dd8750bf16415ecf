// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A draft's meta, and copies of values.
#include "dump/sink.h"

#include <ATen/core/grad_mode.h>
#include <ATen/core/jit_type.h>
#include <c10/core/InferenceMode.h>

namespace dbg {

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
  for (const auto& [key, extra] : extra_meta) meta.insert_or_assign(key, extra);
  return {value, c10::IValue(std::move(meta))};
}

}  // namespace dbg
