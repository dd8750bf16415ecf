# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
# The warnings dbg's own sources are held to.

set(DBG_WARNINGS
    -Wall
    -Wextra
    -Wshadow
    -Wnon-virtual-dtor
    -Woverloaded-virtual
    -Wcast-qual
    -Wextra-semi
    -Wpessimizing-move
    -Wmissing-declarations)
if(DBG_WERROR)
  list(APPEND DBG_WARNINGS -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # g++ 12 reports these inside std::string and std::variant at -O2 where there is nothing (GCC bugs 105651, 105562, 105329).
  list(APPEND DBG_WARNINGS -Wno-restrict -Wno-maybe-uninitialized -Wno-stringop-overflow -Wno-stringop-overread
       -Wno-array-bounds)
endif()
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Said of every class with a part in an unnamed namespace that isn't in the file named on the command line.
  list(APPEND DBG_WARNINGS -Wno-subobject-linkage)
endif()
