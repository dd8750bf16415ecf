# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
# Compiles each public header alone, as C++17 and as C++20, under macros that clients and logging libraries define; and a
# source that makes and destroys each public type.

file(GLOB _dbg_headers CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}/include/dbg/*.h")
foreach(_dbg_standard IN ITEMS 17 20)
  set(_dbg_sources "${PROJECT_SOURCE_DIR}/tests/consumer/public_types.cpp")
  foreach(_dbg_header IN LISTS _dbg_headers)
    string(MAKE_C_IDENTIFIER "${_dbg_header}" _dbg_name)
    set(_dbg_source "${CMAKE_CURRENT_BINARY_DIR}/header_self_test/${_dbg_name}_${_dbg_standard}.cpp")
    # Twice: once first of all, so that it includes what it uses, and once more, so that it guards itself.
    file(
      CONFIGURE
      OUTPUT "${_dbg_source}"
      CONTENT
        [[// Generated: @_dbg_header@ compiled alone.
#define LOG(...) !poisoned!
#define CHECK(...) !poisoned!
#define ERROR !poisoned!
#define INFO !poisoned!
#include "@_dbg_header@"
#include "@_dbg_header@"
]]
      @ONLY)
    list(APPEND _dbg_sources "${_dbg_source}")
  endforeach()
  # No part of the library's own settings: a header that needs them would not compile for a user.
  add_library(header_self_test_${_dbg_standard} OBJECT ${_dbg_sources})
  target_link_libraries(header_self_test_${_dbg_standard} PRIVATE dbg::dbg)
  target_compile_options(header_self_test_${_dbg_standard} PRIVATE -Wall -Wextra -Werror)
  set_target_properties(
    header_self_test_${_dbg_standard} PROPERTIES CXX_STANDARD ${_dbg_standard} CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF
                                                 UNITY_BUILD OFF)
endforeach()
