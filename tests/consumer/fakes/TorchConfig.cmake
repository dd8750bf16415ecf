# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
# Makes the targets that libtorch's own package makes, out of the libtorch in FAKE_TORCH_ROOT and without a CUDA toolkit.
foreach(_name IN ITEMS c10 torch_cpu)
  add_library(${_name} SHARED IMPORTED)
  set_target_properties(${_name} PROPERTIES IMPORTED_CONFIGURATIONS RELEASE IMPORTED_LOCATION_RELEASE
                                                                            "${FAKE_TORCH_ROOT}/lib/lib${_name}.so")
endforeach()
add_library(torch INTERFACE IMPORTED)
target_include_directories(torch INTERFACE "${FAKE_TORCH_ROOT}/include")
target_link_libraries(torch INTERFACE torch_cpu c10)
set(TORCH_LIBRARIES torch)
set(CMAKE_CXX_FLAGS "${CMAKE_CXX_FLAGS} -D_GLIBCXX_USE_CXX11_ABI=1")
