# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
# DBG_SANITIZE: instruments dbg, its tests and its examples. libtorch itself is not instrumented.

set(DBG_SANITIZE
    ""
    CACHE STRING "Sanitizers: empty, 'address,undefined' or 'thread'")
set(DBG_SANITIZE_FLAGS "")
if(DBG_SANITIZE)
  set(DBG_SANITIZE_FLAGS "-fsanitize=${DBG_SANITIZE}" -fno-omit-frame-pointer -g1)
  if(DBG_SANITIZE MATCHES "undefined")
    # A finding ends the test instead of scrolling past. vptr needs type infos that libtorch does not export.
    # null: a cancelled thread unwinds without an exception object, and `catch (const abi::__forced_unwind&)` binds to it;
    # an access through a null pointer ends in AddressSanitizer all the same.
    list(APPEND DBG_SANITIZE_FLAGS -fno-sanitize-recover=all -fno-sanitize=vptr,null)
  endif()
endif()
if(DBG_BUILD_FUZZERS)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "DBG_BUILD_FUZZERS needs clang (GCC has no libFuzzer); the compiler is ${CMAKE_CXX_COMPILER_ID}.")
  endif()
  list(APPEND DBG_SANITIZE_FLAGS -fsanitize=fuzzer-no-link)
endif()
