// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The faults by name, and the dump each must be found at.
#include "fault.h"

#include <array>
#include <stdexcept>

namespace minilm {
namespace {

struct Entry {
  FaultKind kind;
  const char* name;
  const char* first_changed;
};

constexpr std::array<Entry, 4> kFaults{{{FaultKind::gelu_tanh, "gelu-tanh", "ffn_act"},
                                        {FaultKind::eps, "eps", "attn_norm"},
                                        {FaultKind::mask, "mask", "attn_probs"},
                                        {FaultKind::layer_order, "layer-order", "attn_q"}}};

const Entry& entry_of(FaultKind kind) {
  for (const Entry& entry : kFaults) {
    if (entry.kind == kind) return entry;
  }
  throw std::runtime_error("no fault, so nothing changes");
}

}  // namespace

Fault parse_fault(const std::optional<std::string>& name, const std::optional<std::int64_t>& layer,
                  std::int64_t num_layers) {
  if (!name) {
    if (layer) throw std::runtime_error("--fault-layer " + std::to_string(*layer) + " is given without --fault");
    return {};
  }
  std::string known;
  for (const Entry& entry : kFaults) {
    if (*name != entry.name) {
      known += (known.empty() ? "" : ", ") + std::string(entry.name);
      continue;
    }
    const std::int64_t last = entry.kind == FaultKind::layer_order ? num_layers - 2 : num_layers - 1;
    const std::string range = "0 to " + std::to_string(last);
    if (!layer) throw std::runtime_error("--fault " + *name + " needs --fault-layer, " + range);
    if (*layer < 0 || *layer > last) {
      throw std::runtime_error("--fault-layer is " + std::to_string(*layer) + "; --fault " + *name +
                               " applies to layers " + range + " of this model");
    }
    return {entry.kind, *layer};
  }
  throw std::runtime_error("--fault is '" + *name + "'; known are " + known);
}

std::string name_of(FaultKind kind) {
  return entry_of(kind).name;
}

std::string first_changed_dump(FaultKind kind) {
  return entry_of(kind).first_changed;
}

}  // namespace minilm
