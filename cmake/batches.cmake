# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
# Batches of sources (CMAKE_UNITY_BUILD) that keep to one part of the library each.
#
# A linker takes whole objects of a static library. A batch that joined the end of `dump` with the beginning of
# `distributed` would bring process groups, and with them libtorch_cuda, into every program that dumps.
function(dbg_batch_by_part target)
  if(NOT CMAKE_UNITY_BUILD)
    return()
  endif()
  set(size 6)
  if(CMAKE_UNITY_BUILD_BATCH_SIZE)
    set(size ${CMAKE_UNITY_BUILD_BATCH_SIZE})
  endif()
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    if(NOT source MATCHES "/src/([a-z]+)/[^/]*\\.cpp$")
      continue()
    endif()
    set(part ${CMAKE_MATCH_1})
    if(NOT DEFINED count_${part})
      set(count_${part} 0)
    endif()
    math(EXPR batch "${count_${part}} / ${size}")
    math(EXPR count_${part} "${count_${part}} + 1")
    set_source_files_properties("${source}" TARGET_DIRECTORY ${target} PROPERTIES UNITY_GROUP "${part}_${batch}")
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
endfunction()
