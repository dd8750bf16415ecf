#!/usr/bin/env bash
# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
# Sets up, builds and runs the tests that need a GPU (label gpu). Without one each says so and is skipped.
set -euo pipefail

case ${1:-} in
  '') ;;
  -h | --help)
    printf 'usage: tests/gpu.sh\n\nEnvironment: DBG_JOBS (default: the number of cores), and what cmake/bootstrap.sh reads.\n'
    exit 0
    ;;
  *) printf 'usage: tests/gpu.sh\n' >&2; exit 2 ;;
esac

cd "$(dirname "${BASH_SOURCE[0]}")/.."
cmake/bootstrap.sh --full
cmake --preset release -DDBG_WITH_NCCL=ON
cmake --build --preset release -j "${DBG_JOBS:-$(nproc)}" --target tests_gpu
ctest --preset release -L gpu
