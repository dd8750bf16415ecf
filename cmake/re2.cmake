# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
# Makes the imported target dbg::re2 where RE2 is found; used by the build and by the installed package, which each say
# in their own way that it is missing.

if(NOT TARGET dbg::re2)
  find_package(PkgConfig QUIET)
  if(PkgConfig_FOUND)
    pkg_check_modules(DBG_PC_RE2 QUIET re2)
  endif()
  find_library(DBG_RE2_LIBRARY NAMES libre2.so re2 HINTS ${DBG_PC_RE2_LIBRARY_DIRS})
  find_path(DBG_RE2_INCLUDE_DIR re2/re2.h HINTS ${DBG_PC_RE2_INCLUDE_DIRS})
  if(DBG_RE2_LIBRARY AND DBG_RE2_INCLUDE_DIR)
    add_library(dbg::re2 SHARED IMPORTED GLOBAL)
    set_target_properties(
      dbg::re2 PROPERTIES IMPORTED_LOCATION "${DBG_RE2_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${DBG_RE2_INCLUDE_DIR}")
  endif()
endif()
