# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
# Demands that LIBRARY exports names of namespace dbg, what it cannot do without among them, and none beside.
cmake_minimum_required(VERSION 3.25)

execute_process(COMMAND "${NM}" -D --defined-only "${LIBRARY}" OUTPUT_VARIABLE listing COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE "\n" ";" lines "${listing}")
set(foreign "")
set(names "")
foreach(line IN LISTS lines)
  if(line MATCHES "^[0-9a-f]+ . (.+)$")
    set(name "${CMAKE_MATCH_1}")
    list(APPEND names "${name}")
    # A name in the namespace; its vtable, type information, guard, thread-local wrapper, thunk; or local to one.
    if(NOT name MATCHES "^_Z(T[VISTCHW]|G[VR]|Th[n0-9]*_|Tv[n0-9]*_[n0-9]*_)?Z*N[rVKRO]*3dbg")
      list(APPEND foreign "${line}")
    endif()
  endif()
endforeach()
if(foreign)
  list(LENGTH foreign count)
  list(JOIN foreign "\n  " foreign)
  message(FATAL_ERROR "${count} exported names are not of namespace dbg:\n  ${foreign}")
endif()
foreach(wanted IN ITEMS _ZN3dbg7versionEv _ZTIN3dbg5ErrorE _ZTVN3dbg7IoErrorE _ZN3dbg8describeERKN2at6TensorE)
  if(NOT wanted IN_LIST names)
    message(FATAL_ERROR "${wanted} is not exported any more")
  endif()
endforeach()
