// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The mistakes that can be put into one layer on purpose, and where each must show first.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace minilm {

enum class FaultKind : std::uint8_t {
  none,
  gelu_tanh,    ///< the feed-forward's GELU by its tanh approximation
  eps,          ///< both layer norms with eps 1e-5, the default of many libraries, where the model says 1e-12
  mask,         ///< attention looks at the padding
  layer_order,  ///< the weights of this layer and of the next one are exchanged
};

/// One known mistake in one layer.
struct Fault {
  FaultKind kind = FaultKind::none;
  std::int64_t layer = 0;

  bool in_layer(FaultKind asked, std::int64_t asked_layer) const { return kind == asked && layer == asked_layer; }
};

/// Makes a fault of the two options of the command line; neither given is `none`.
/// Throws: std::runtime_error that lists the faults, or the layers the fault applies to.
Fault parse_fault(const std::optional<std::string>& name, const std::optional<std::int64_t>& layer,
                  std::int64_t num_layers);

/// The option's word for a fault: "gelu-tanh" and so on.
std::string name_of(FaultKind kind);

/// The first dump whose bits a fault changes: its name; its layer_id is the fault's layer.
std::string first_changed_dump(FaultKind kind);

}  // namespace minilm
