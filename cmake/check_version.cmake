# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
# Holds the version that a header states against the project's: users of the package and of the headers ask different
# ones. A test runs it alone: cmake -DHEADER=FILE -DVERSION=x.y.z -P check_version.cmake

# Stops with one sentence when the DBG_VERSION_* of `header` are not `version`.
function(dbg_check_version header version)
  file(READ "${header}" text)
  set(stated)
  foreach(part IN ITEMS MAJOR MINOR PATCH)
    if(NOT text MATCHES "#define DBG_VERSION_${part} ([0-9]+)")
      message(FATAL_ERROR "${header} does not define DBG_VERSION_${part}")
    endif()
    list(APPEND stated ${CMAKE_MATCH_1})
  endforeach()
  list(JOIN stated . stated)
  if(NOT stated STREQUAL version)
    get_filename_component(name "${header}" NAME)
    message(FATAL_ERROR "${name} says version ${stated} and project() ${version}: make them one")
  endif()
endfunction()

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  dbg_check_version("${HEADER}" "${VERSION}")
endif()
