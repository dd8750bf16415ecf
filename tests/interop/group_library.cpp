// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// dbg inside a Python process, for group_interop_test.py: what a C++ library that Python loads can do without a
// binding.
#include <chrono>
#include <exception>
#include <iostream>
#include <memory>
#include <string>

#include "dbg/group_coordinator.h"
#include "dbg/world.h"

namespace {
std::shared_ptr<dbg::GroupCoordinator>& kept() {
  static std::shared_ptr<dbg::GroupCoordinator> group;
  return group;
}

template <class Body>
int fenced(Body&& body) {
  try {
    body();
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
}  // namespace

#define DBG_TEST_LIBRARY_API extern "C" __attribute__((visibility("default")))

/// Labels the group that torch.distributed knows as `registered_name`.
DBG_TEST_LIBRARY_API int group_library_adopt(const char* registered_name, const char* group_name);
/// Makes a group of this process alone, which torch.distributed can resolve.
DBG_TEST_LIBRARY_API int group_library_create(const char* group_name);
DBG_TEST_LIBRARY_API int group_library_drop();

int group_library_adopt(const char* registered_name, const char* group_name) {
  return fenced([&] {
    dbg::AdoptOptions options;
    options.group_name = group_name;
    kept() = dbg::GroupCoordinator::adopt_registered(registered_name, options);
  });
}

int group_library_create(const char* group_name) {
  return fenced([&] {
    dbg::GroupOptions options;
    options.group_name = group_name;
    options.device_backend = "gloo";
    kept() = dbg::GroupCoordinator::create(dbg::World::for_threads(1).front(), {{0}}, options);
  });
}

int group_library_drop() {
  return fenced([] { kept().reset(); });
}
