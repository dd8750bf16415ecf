# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
# DBG_WITH_NCCL: whether the NCCL sources are built or their stubs. Sets DBG_NCCL_FOUND and, when on, the target
# dbg::nccl (the library) and DBG_NCCL_COMPILE_OPTIONS (the headers).
#
# NCCL needs three things: a libtorch with CUDA, the CUDA runtime's headers, and nccl.h with its library. The `nvidia`
# packages beside a torch wheel are looked at before the toolkit, since libtorch_cuda.so loads that very libnccl.so.2 and
# a process has room for one.

set(DBG_WITH_NCCL
    AUTO
    CACHE STRING "Build the NCCL part: ON, OFF, or AUTO (when all it needs is found)")
set_property(CACHE DBG_WITH_NCCL PROPERTY STRINGS AUTO ON OFF)
if(NOT DBG_WITH_NCCL MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "DBG_WITH_NCCL is '${DBG_WITH_NCCL}'; it takes AUTO, ON or OFF.")
endif()

# Sets `out` to the version of the library, asked of the library itself; empty when it cannot be loaded.
function(_dbg_nccl_library_version library out)
  if(NOT DEFINED DBG_NCCL_LIBRARY_VERSION OR NOT DBG_NCCL_LIBRARY_ASKED STREQUAL library)
    try_run(
      ran compiled "${PROJECT_BINARY_DIR}/nccl_version"
      SOURCES "${PROJECT_SOURCE_DIR}/cmake/tools/nccl_version.cpp"
      LINK_LIBRARIES ${CMAKE_DL_LIBS} CXX_STANDARD 20
      RUN_OUTPUT_VARIABLE answer
      ARGS "${library}")
    set(version "")
    if(compiled AND ran EQUAL 0)
      string(STRIP "${answer}" version)
    endif()
    set(DBG_NCCL_LIBRARY_ASKED "${library}" CACHE INTERNAL "")
    set(DBG_NCCL_LIBRARY_VERSION "${version}" CACHE INTERNAL "")
  endif()
  set(${out} "${DBG_NCCL_LIBRARY_VERSION}" PARENT_SCOPE)
endfunction()

function(_dbg_nccl_header_version folder out)
  file(STRINGS "${folder}/nccl.h" lines REGEX "^#define NCCL_(MAJOR|MINOR|PATCH) +[0-9]+")
  string(REGEX REPLACE "[^;]*_(MAJOR|MINOR|PATCH) +([0-9]+)[^;]*" "\\2" numbers "${lines}")
  string(REPLACE ";" "." version "${numbers}")
  set(${out} "${version}" PARENT_SCOPE)
endfunction()

# Sets `out` to what the loader does not find of all that a library is linked against; empty where it can't be asked.
function(_dbg_unresolved_libraries library out)
  execute_process(
    COMMAND ldd "${library}"
    OUTPUT_VARIABLE lines
    ERROR_QUIET)
  string(REGEX MATCHALL "[^ \t\n]+ => not found" found "${lines}")
  list(TRANSFORM found REPLACE " => not found" "")
  list(REMOVE_DUPLICATES found)
  set(${out} "${found}" PARENT_SCOPE)
endfunction()

set(DBG_NCCL_FOUND OFF)
if(NOT DBG_WITH_NCCL STREQUAL "OFF")
  get_filename_component(_dbg_nvidia "${Libtorch_ROOT}/../nvidia" ABSOLUTE)
  set(_dbg_toolkits ${CUDAToolkit_ROOT} $ENV{CUDAToolkit_ROOT} $ENV{CUDA_HOME} $ENV{CUDA_PATH} /usr/local/cuda)
  find_path(DBG_NCCL_INCLUDE_DIR nccl.h HINTS "${_dbg_nvidia}/nccl/include" ${_dbg_toolkits} PATH_SUFFIXES include)
  find_library(DBG_NCCL_LIBRARY NAMES libnccl.so.2 nccl HINTS "${_dbg_nvidia}/nccl/lib" ${_dbg_toolkits}
               PATH_SUFFIXES lib64 lib)
  file(GLOB _dbg_nvidia_headers "${_dbg_nvidia}/cu*/include" "${_dbg_nvidia}/cuda_runtime/include")
  find_path(DBG_CUDA_INCLUDE_DIR cuda_runtime.h HINTS ${_dbg_nvidia_headers} ${_dbg_toolkits} PATH_SUFFIXES include)
  # The runtime's package has no crt/ since CUDA 13; it may stand elsewhere.
  if(DBG_CUDA_INCLUDE_DIR)
    file(GLOB _dbg_bootstrap_headers "${DBG_BOOTSTRAP_DIR}/venv/lib/python3*/site-packages/nvidia/cu*/include")
    find_path(DBG_CUDA_CRT_INCLUDE_DIR crt/host_config.h HINTS "${DBG_CUDA_INCLUDE_DIR}" ${_dbg_bootstrap_headers}
                                                               ${_dbg_toolkits} PATH_SUFFIXES include)
  endif()

  set(_dbg_missing "")
  if(NOT Libtorch_HAS_CUDA)
    list(APPEND _dbg_missing "libtorch_cuda.so beside libtorch_cpu.so")
  endif()
  if(NOT DBG_CUDA_INCLUDE_DIR)
    list(APPEND _dbg_missing "cuda_runtime.h")
  elseif(NOT DBG_CUDA_CRT_INCLUDE_DIR)
    list(APPEND _dbg_missing "crt/host_config.h of CUDA")
  endif()
  if(NOT DBG_NCCL_INCLUDE_DIR)
    list(APPEND _dbg_missing "nccl.h")
  endif()
  if(NOT DBG_NCCL_LIBRARY)
    list(APPEND _dbg_missing "libnccl.so.2")
  endif()
  if(NOT _dbg_missing)
    _dbg_nccl_header_version("${DBG_NCCL_INCLUDE_DIR}" DBG_NCCL_HEADER_VERSION)
    _dbg_nccl_library_version("${DBG_NCCL_LIBRARY}" _dbg_nccl_version)
    if(NOT _dbg_nccl_version)
      list(APPEND _dbg_missing "an NCCL library that can be loaded (${DBG_NCCL_LIBRARY} cannot)")
    elseif(DBG_NCCL_HEADER_VERSION VERSION_GREATER _dbg_nccl_version)
      message(FATAL_ERROR "nccl.h in ${DBG_NCCL_INCLUDE_DIR} is version ${DBG_NCCL_HEADER_VERSION}, newer than the library "
                          "${DBG_NCCL_LIBRARY}, which is ${_dbg_nccl_version}: what it declares need not be there. Set "
                          "DBG_NCCL_INCLUDE_DIR and DBG_NCCL_LIBRARY to a pair, or DBG_WITH_NCCL=OFF.")
    endif()
  endif()

  # torch alone, without the CUDA libraries it asks for, and a toolkit beside it: such a program links and doesn't start.
  # ON is for who knows that they will be there.
  if(NOT _dbg_missing AND DBG_WITH_NCCL STREQUAL "AUTO")
    _dbg_unresolved_libraries("${Libtorch_ROOT}/lib/libtorch_cuda.so" _dbg_unresolved)
    foreach(_dbg_library IN LISTS _dbg_unresolved)
      list(APPEND _dbg_missing "${_dbg_library} for libtorch_cuda.so")
    endforeach()
  endif()

  if(NOT _dbg_missing)
    set(DBG_NCCL_FOUND ON)
    message(STATUS "NCCL: header ${DBG_NCCL_HEADER_VERSION} in ${DBG_NCCL_INCLUDE_DIR}, library ${_dbg_nccl_version}: "
                   "${DBG_NCCL_LIBRARY}")
    include(nccl_target)
    dbg_make_nccl_target("${DBG_NCCL_LIBRARY}")
    set(DBG_NCCL_COMPILE_OPTIONS "")
    foreach(_dbg_folder IN ITEMS "${DBG_NCCL_INCLUDE_DIR}" "${DBG_CUDA_INCLUDE_DIR}" "${DBG_CUDA_CRT_INCLUDE_DIR}")
      list(APPEND DBG_NCCL_COMPILE_OPTIONS "-isystem${_dbg_folder}")
    endforeach()
  else()
    list(JOIN _dbg_missing ", " _dbg_missing)
    if(DBG_WITH_NCCL STREQUAL "ON")
      message(FATAL_ERROR "DBG_WITH_NCCL is ON and there is no ${_dbg_missing}.")
    endif()
    message(STATUS "NCCL: built without, there is no ${_dbg_missing}")
  endif()
else()
  message(STATUS "NCCL: built without, as DBG_WITH_NCCL says")
endif()
