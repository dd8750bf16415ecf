# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
# Puts ccache before the compiler when it is there and nobody asked for another launcher.

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(DBG_CCACHE ccache)
  if(DBG_CCACHE)
    # The sloppiness is what ccache demands before it caches anything that uses a precompiled header. The base folder
    # makes checkouts in different places share hits.
    set(CMAKE_CXX_COMPILER_LAUNCHER
        "${CMAKE_COMMAND}" -E env "CCACHE_SLOPPINESS=pch_defines,time_macros" "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}"
        CCACHE_NOHASHDIR=1 "${DBG_CCACHE}")
  endif()
endif()
