# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
# Third parties of dbg's own sources. None appears in a public header. fmt, json and gloo end in dbg's objects or in
# libtorch; RE2 is a shared library, which every program that links dbg links too.

# fmt: always header-only, since a compiled libfmt cannot be linked beside the copy inside libtorch. The copy that
# torch bundles comes first on the include path anyway, so it is the one to use when it is there.
add_library(dbg_fmt INTERFACE)
target_compile_definitions(dbg_fmt INTERFACE FMT_HEADER_ONLY)
set(_dbg_fmt_folder "${Libtorch_INCLUDE_DIR}")
if(NOT EXISTS "${_dbg_fmt_folder}/fmt/format.h")
  find_path(DBG_FMT_INCLUDE_DIR fmt/format.h)
  if(NOT DBG_FMT_INCLUDE_DIR)
    message(FATAL_ERROR "fmt's headers are missing (Debian: libfmt-dev).")
  endif()
  set(_dbg_fmt_folder "${DBG_FMT_INCLUDE_DIR}")
  target_include_directories(dbg_fmt SYSTEM INTERFACE "${_dbg_fmt_folder}")
endif()
foreach(_dbg_header IN ITEMS base.h core.h)
  if(EXISTS "${_dbg_fmt_folder}/fmt/${_dbg_header}")
    file(STRINGS "${_dbg_fmt_folder}/fmt/${_dbg_header}" _dbg_fmt_line REGEX "^#define FMT_VERSION [0-9]+")
    if(_dbg_fmt_line)
      string(REGEX REPLACE "[^0-9]*([0-9]+).*" "\\1" DBG_FMT_VERSION "${_dbg_fmt_line}")
      break()
    endif()
  endif()
endforeach()
if(NOT DBG_FMT_VERSION GREATER_EQUAL 90000)
  message(FATAL_ERROR "dbg needs fmt 9 or newer and found FMT_VERSION '${DBG_FMT_VERSION}' in ${_dbg_fmt_folder}.")
endif()

# From 3.11 on, json's names say their version and options. Before, a client's own copy of another version would be merged
# with dbg's at the link, whatever is hidden.
if(NOT TARGET nlohmann_json::nlohmann_json)
  find_package(nlohmann_json 3.11 QUIET)
  if(NOT nlohmann_json_FOUND)
    message(FATAL_ERROR "dbg needs nlohmann_json 3.11 or newer (Debian: nlohmann-json3-dev) and found "
                        "'${nlohmann_json_CONSIDERED_VERSIONS}'.")
  endif()
endif()

# RE2 has no CMake package on Debian, and its archive there is not PIC: the shared library is what is linked.
include(${CMAKE_CURRENT_LIST_DIR}/re2.cmake)
if(NOT TARGET dbg::re2)
  message(FATAL_ERROR "RE2 is missing (Debian: libre2-dev).")
endif()

# gloo: libtorch holds the code, the wheel lacks the headers that ProcessGroupGloo.hpp includes. Never link libgloo.
find_path(DBG_GLOO_INCLUDE_DIR gloo/algorithm.h)
if(NOT DBG_GLOO_INCLUDE_DIR)
  message(FATAL_ERROR "gloo's headers are missing (Debian: libgloo-dev).")
endif()
add_library(dbg_gloo INTERFACE)
target_include_directories(dbg_gloo SYSTEM INTERFACE "${DBG_GLOO_INCLUDE_DIR}")
target_compile_definitions(dbg_gloo INTERFACE USE_C10D_GLOO)

find_package(Threads REQUIRED)
if(DBG_BUILD_EXAMPLES OR DBG_BUILD_TESTS OR DBG_BUILD_CLI)
  find_package(CLI11 REQUIRED)
endif()
if(DBG_BUILD_TESTS)
  find_package(GTest REQUIRED)
  if(DBG_BUILD_BENCHMARKS)
    find_package(benchmark REQUIRED)
  endif()
endif()
