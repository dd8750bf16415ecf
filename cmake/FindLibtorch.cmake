# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
# Finds libtorch's CPU half and makes the imported target dbg::libtorch.
#
# TorchConfig.cmake is not used: it demands a CUDA toolkit for a CUDA wheel and changes global flags.
#
# Looked at in this order, first found wins:
#   1. LIBTORCH_ROOT, a CMake or environment variable: the folder that holds include/ and lib/
#   2. a target `torch_cpu` of the parent project (its find_package(Torch))
#   3. CMAKE_PREFIX_PATH, also when it is `torch.utils.cmake_prefix_path`
#   4. DBG_LIBTORCH_HINT: for an installed dbg, the folder it was built with
#   5. the `torch` package of the python3 on PATH
#   6. the virtual environment that cmake/bootstrap.sh keeps in the build folder
# The last two are passed over when older than the wanted version.
#
# A project that finds two different libtorch, one here and one by its own find_package(Torch) before or after, is refused:
# both would be loaded into one process.
#
# Sets Libtorch_FOUND, Libtorch_ROOT, Libtorch_VERSION, Libtorch_INCLUDE_DIR, Libtorch_HAS_CUDA, Libtorch_CXX11_ABI.

# Reads the version of the libtorch under `root` into `out`; empty when there is none.
function(_dbg_libtorch_version root out)
  set(${out} "" PARENT_SCOPE)
  if(NOT EXISTS "${root}/lib/libtorch_cpu.so" OR NOT EXISTS "${root}/lib/libc10.so")
    return()
  endif()
  foreach(header IN ITEMS torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
    if(EXISTS "${root}/include/${header}")
      file(STRINGS "${root}/include/${header}" lines REGEX "^#define TORCH_VERSION_(MAJOR|MINOR|PATCH) +[0-9]+")
      if(lines)
        string(REGEX REPLACE "[^;]*_(MAJOR|MINOR|PATCH) +([0-9]+)[^;]*" "\\2" numbers "${lines}")
        string(REPLACE ";" "." version "${numbers}")
        set(${out} "${version}" PARENT_SCOPE)
        return()
      endif()
    endif()
  endforeach()
endfunction()

# Sets `out` to the folder of the torch package that `python` would import; importing it would take seconds.
function(_dbg_libtorch_of_python python out)
  execute_process(
    COMMAND "${python}" -c
            "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
    WORKING_DIRECTORY / # python looks in the current folder first
    OUTPUT_VARIABLE folder OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  set(${out} "${folder}" PARENT_SCOPE)
endfunction()

# Sets `out` to the folder of the libtorch that the project itself has found; empty when it has not.
function(_dbg_libtorch_of_parent out)
  set(${out} "" PARENT_SCOPE)
  if(TARGET torch_cpu)
    foreach(property IN ITEMS IMPORTED_LOCATION IMPORTED_LOCATION_RELEASE IMPORTED_LOCATION_NOCONFIG)
      get_target_property(location torch_cpu ${property})
      if(location)
        get_filename_component(root "${location}/../.." REALPATH)
        set(${out} "${root}" PARENT_SCOPE)
        return()
      endif()
    endforeach()
  endif()
endfunction()

# Ends the configuration when the project itself has found another libtorch than dbg.
function(_dbg_refuse_two_libtorch)
  _dbg_libtorch_of_parent(theirs)
  get_target_property(ours dbg::libtorch INTERFACE_DBG_ROOT)
  if(theirs AND NOT theirs STREQUAL ours)
    _dbg_libtorch_version("${theirs}" version)
    get_target_property(our_version dbg::libtorch INTERFACE_DBG_VERSION)
    message(FATAL_ERROR "dbg uses libtorch ${our_version} in ${ours}, and this project's find_package(Torch) found "
                        "${version} in ${theirs}; set LIBTORCH_ROOT or Torch_DIR so that both are the same.")
  endif()
endfunction()

function(_dbg_find_libtorch_root out_root out_version)
  set(wanted "${Libtorch_FIND_VERSION}")
  set(named "${LIBTORCH_ROOT}")
  if(NOT named)
    set(named "$ENV{LIBTORCH_ROOT}")
  endif()
  if(named)
    get_filename_component(named "${named}" REALPATH)
    _dbg_libtorch_version("${named}" version)
    if(NOT version)
      message(FATAL_ERROR "LIBTORCH_ROOT is ${named}, which holds no lib/libtorch_cpu.so with its headers; "
                          "name the folder that has include/ and lib/.")
    endif()
    set(${out_root} "${named}" PARENT_SCOPE)
    set(${out_version} "${version}" PARENT_SCOPE)
    return()
  endif()

  _dbg_libtorch_of_parent(candidates)
  set(prefixes ${CMAKE_PREFIX_PATH})
  if(DEFINED ENV{CMAKE_PREFIX_PATH})
    string(REPLACE ":" ";" from_env "$ENV{CMAKE_PREFIX_PATH}")
    list(APPEND prefixes ${from_env})
  endif()
  foreach(prefix IN LISTS prefixes)
    list(APPEND candidates "${prefix}" "${prefix}/../..")
  endforeach()
  list(APPEND candidates ${DBG_LIBTORCH_HINT})
  foreach(candidate IN LISTS candidates)
    get_filename_component(candidate "${candidate}" REALPATH)
    _dbg_libtorch_version("${candidate}" version)
    if(version)
      set(${out_root} "${candidate}" PARENT_SCOPE)
      set(${out_version} "${version}" PARENT_SCOPE)
      return()
    endif()
  endforeach()

  set(pythons "")
  find_program(_dbg_python3 python3 NO_CACHE)
  if(_dbg_python3)
    list(APPEND pythons "${_dbg_python3}")
  endif()
  foreach(folder IN ITEMS "${DBG_BOOTSTRAP_DIR}" "${CMAKE_BINARY_DIR}")
    if(folder AND EXISTS "${folder}/venv/bin/python3")
      list(APPEND pythons "${folder}/venv/bin/python3")
    endif()
  endforeach()
  foreach(python IN LISTS pythons)
    _dbg_libtorch_of_python("${python}" candidate)
    if(candidate)
      # One libtorch has one name here, however a virtual environment is reached.
      get_filename_component(candidate "${candidate}" REALPATH)
      _dbg_libtorch_version("${candidate}" version)
      if(version AND wanted AND version VERSION_LESS wanted)
        message(STATUS "Passing over libtorch ${version} of ${python}: older than ${wanted}")
      elseif(version)
        set(${out_root} "${candidate}" PARENT_SCOPE)
        set(${out_version} "${version}" PARENT_SCOPE)
        return()
      endif()
    endif()
  endforeach()
endfunction()

if(NOT TARGET dbg::libtorch)
  set(Libtorch_ROOT "")
  set(Libtorch_VERSION "")
  _dbg_find_libtorch_root(Libtorch_ROOT Libtorch_VERSION)
  if(Libtorch_ROOT)
    if(Libtorch_FIND_VERSION AND Libtorch_VERSION VERSION_LESS Libtorch_FIND_VERSION)
      message(FATAL_ERROR "dbg needs libtorch ${Libtorch_FIND_VERSION} or newer and found ${Libtorch_VERSION} in "
                          "${Libtorch_ROOT}.")
    endif()
    # A library of the old string ABI has no symbol with this namespace in it.
    file(STRINGS "${Libtorch_ROOT}/lib/libc10.so" _dbg_cxx11 LIMIT_COUNT 1 REGEX "__cxx11")
    if(_dbg_cxx11)
      set(_dbg_cxx11_abi 1)
    else()
      set(_dbg_cxx11_abi 0)
    endif()

    add_library(dbg::c10 SHARED IMPORTED GLOBAL)
    set_target_properties(dbg::c10 PROPERTIES IMPORTED_LOCATION "${Libtorch_ROOT}/lib/libc10.so")
    add_library(dbg::torch_cpu SHARED IMPORTED GLOBAL)
    set_target_properties(dbg::torch_cpu PROPERTIES IMPORTED_LOCATION "${Libtorch_ROOT}/lib/libtorch_cpu.so")
    add_library(dbg::libtorch INTERFACE IMPORTED GLOBAL)
    set_target_properties(
      dbg::libtorch PROPERTIES INTERFACE_DBG_ROOT "${Libtorch_ROOT}" INTERFACE_DBG_VERSION "${Libtorch_VERSION}"
                               INTERFACE_DBG_CXX11_ABI "${_dbg_cxx11_abi}")
    target_include_directories(dbg::libtorch SYSTEM INTERFACE "${Libtorch_ROOT}/include"
                                                              "${Libtorch_ROOT}/include/torch/csrc/api/include")
    target_compile_definitions(dbg::libtorch INTERFACE "_GLIBCXX_USE_CXX11_ABI=${_dbg_cxx11_abi}")
    target_link_libraries(dbg::libtorch INTERFACE dbg::torch_cpu dbg::c10)
    # A CUDA wheel's libtorch_cpu.so wants libcudart and libcupti, which its own RPATH finds when the program starts.
    target_link_options(dbg::libtorch INTERFACE "LINKER:--unresolved-symbols=ignore-in-shared-libs")
    message(STATUS "libtorch ${Libtorch_VERSION}: ${Libtorch_ROOT}")
  endif()
endif()

if(TARGET dbg::libtorch)
  # Kept on the target, since a second directory that looks for libtorch has none of the variables.
  get_target_property(Libtorch_ROOT dbg::libtorch INTERFACE_DBG_ROOT)
  get_target_property(Libtorch_VERSION dbg::libtorch INTERFACE_DBG_VERSION)
  get_target_property(Libtorch_CXX11_ABI dbg::libtorch INTERFACE_DBG_CXX11_ABI)
  set(Libtorch_INCLUDE_DIR "${Libtorch_ROOT}/include")
  set(Libtorch_HAS_CUDA OFF)
  if(EXISTS "${Libtorch_ROOT}/lib/libtorch_cuda.so")
    set(Libtorch_HAS_CUDA ON)
  endif()
  _dbg_refuse_two_libtorch()
  cmake_language(DEFER CALL _dbg_refuse_two_libtorch)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  Libtorch
  REQUIRED_VARS Libtorch_ROOT Libtorch_INCLUDE_DIR
  VERSION_VAR Libtorch_VERSION
  REASON_FAILURE_MESSAGE "no libtorch found: run cmake/bootstrap.sh, or set LIBTORCH_ROOT to the folder of an existing one")
