# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
# The library target, what every source of ours is compiled with, and the functions the folders below use.

include(GNUInstallDirs)

# What our own sources (library, tests, examples' private parts) see beyond the public headers. Never exported.
add_library(dbg_private INTERFACE)
target_include_directories(dbg_private INTERFACE "${PROJECT_SOURCE_DIR}/src")
target_compile_features(dbg_private INTERFACE cxx_std_20)
target_compile_options(dbg_private INTERFACE -fPIC -fvisibility=hidden -fvisibility-inlines-hidden ${DBG_WARNINGS})
target_link_libraries(dbg_private INTERFACE dbg_fmt dbg_gloo nlohmann_json::nlohmann_json dbg::re2)
if(DBG_CCACHE AND DBG_PCH)
  # ccache caches nothing that uses a precompiled header without it.
  target_compile_options(dbg_private INTERFACE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
endif()

add_library(dbg STATIC)
add_library(dbg::dbg ALIAS dbg)
set_target_properties(dbg PROPERTIES CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON EXPORT_NAME dbg)
target_include_directories(dbg PUBLIC "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>"
                                      "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
target_compile_features(dbg PUBLIC cxx_std_17)
target_link_libraries(
  dbg
  PUBLIC dbg::libtorch Threads::Threads
  PRIVATE $<BUILD_INTERFACE:dbg_private> dbg::re2)
if(DBG_SANITIZE_FLAGS)
  target_compile_options(dbg PRIVATE ${DBG_SANITIZE_FLAGS})
  target_link_options(dbg INTERFACE ${DBG_SANITIZE_FLAGS})
  # clang puts a sanitizer's runtime into the program only. Among the libraries, so that it comes after libtorch's option.
  set(_dbg_is_shared $<IN_LIST:$<TARGET_PROPERTY:TYPE>,SHARED_LIBRARY$<SEMICOLON>MODULE_LIBRARY>)
  target_link_libraries(dbg INTERFACE $<${_dbg_is_shared}:-Wl,--unresolved-symbols=ignore-all>)
endif()
if(DBG_PCH)
  target_precompile_headers(dbg PRIVATE "${PROJECT_SOURCE_DIR}/src/pch.h")
  if(DBG_BUILD_TESTS)
    # Theirs, who reuse it; whatever uses it must be compiled as it was.
    target_precompile_headers(dbg PRIVATE <gmock/gmock.h>)
    target_include_directories(dbg SYSTEM PRIVATE $<TARGET_PROPERTY:GTest::gtest,INTERFACE_INCLUDE_DIRECTORIES>)
    foreach(_dbg_kind IN ITEMS DEFINITIONS OPTIONS)
      set_property(TARGET dbg_private APPEND PROPERTY INTERFACE_COMPILE_${_dbg_kind}
                                                      $<TARGET_PROPERTY:GTest::gtest,INTERFACE_COMPILE_${_dbg_kind}>)
    endforeach()
  endif()
endif()

# Leaves nothing but dbg:: names to be exported from a shared object that links the library. A sanitizer's build is for
# our own tests only and keeps the symbols its runtime wants to see; objects of -flto hold no symbol table to change.
if(NOT DBG_SANITIZE_FLAGS AND NOT CMAKE_CROSSCOMPILING AND NOT CMAKE_INTERPROCEDURAL_OPTIMIZATION)
  add_executable(dbg_hide_symbols "${PROJECT_SOURCE_DIR}/cmake/tools/hide_symbols.cpp")
  set_target_properties(dbg_hide_symbols PROPERTIES CXX_EXTENSIONS OFF)
  target_compile_features(dbg_hide_symbols PRIVATE cxx_std_20)
  target_compile_options(dbg_hide_symbols PRIVATE ${DBG_WARNINGS})
  add_dependencies(dbg dbg_hide_symbols)
  add_custom_command(
    TARGET dbg
    POST_BUILD
    COMMAND dbg_hide_symbols "$<TARGET_FILE:dbg>" dbg
    VERBATIM)
endif()

# Gives an executable of ours the flags of the library, so that it can use the library's precompiled header.
function(dbg_configure_own_executable target)
  # -fPIC comes with dbg_private; CMake's own -fPIE would make the precompiled header unusable.
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${target} PRIVATE ${DBG_SANITIZE_FLAGS})
  target_link_libraries(${target} PRIVATE dbg::dbg dbg_private)
  if(DBG_PCH)
    target_precompile_headers(${target} REUSE_FROM dbg)
  endif()
endfunction()

# Compiles the given sources of `target` with NDEBUG in every build type: at::RecordFunction's layout depends on it, and
# libtorch was built with it. They go without the precompiled header, which was made without it in a Debug build.
function(dbg_sources_with_ndebug target)
  set_source_files_properties(
    ${ARGN} TARGET_DIRECTORY ${target} PROPERTIES COMPILE_DEFINITIONS NDEBUG SKIP_PRECOMPILE_HEADERS ON)
endfunction()
