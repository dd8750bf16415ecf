# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
# Makes the imported target dbg::nccl, the library to link; used by the build and by the installed package.

function(dbg_make_nccl_target library)
  if(NOT TARGET dbg::nccl)
    get_filename_component(folder "${library}" DIRECTORY)
    add_library(dbg::nccl INTERFACE IMPORTED GLOBAL)
    # torch's own NCCL backend is in libtorch_cuda.so, which finds what it needs beside itself; its streams are in the
    # other.
    get_target_property(torch_root dbg::libtorch INTERFACE_DBG_ROOT)
    set(cuda "${torch_root}/lib/libtorch_cuda.so,${torch_root}/lib/libc10_cuda.so")
    # In one option, which the linker gets in one piece. As needed only: a program that makes no groups loads neither.
    target_link_libraries(dbg::nccl
                          INTERFACE "-Wl,--push-state,--as-needed,${cuda},${library},--pop-state,-rpath,${folder}")
  endif()
endfunction()
