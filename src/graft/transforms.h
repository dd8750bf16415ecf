// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The transforms there are: built in ones, and those of the user by name.
#pragma once

#include <string>

#include "dbg/grafter.h"

namespace dbg::graft {

/// A transform, and whether it is one of ours, which never write into the target they are shown.
struct NamedTransform {
  GraftTransform apply;
  bool is_built_in = false;
};

/// The transform called `name`; empty: `identity`.
/// Throws: ConfigError when there is none of that name, listing those there are.
NamedTransform find_transform(const std::string& name);

/// Throws: ConfigError when `name` is a built in one's with an argument that makes no sense, or has a colon and is
/// none. (One's own may be registered later, so that any other name passes.)
void check_built_in(const std::string& name);

}  // namespace dbg::graft
