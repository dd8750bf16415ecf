#!/usr/bin/env bash
# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
# The tests that need a GPU (label gpu), for a machine that has one and neither a network nor a compiler's time: built and
# packed where there is no GPU, run there against that machine's own torch. Elsewhere tests/gpu.sh does all of it.
set -euo pipefail

usage() {
  cat <<'EOF'
usage: tests/gpu_carried.sh pack BUILD_FOLDER CARRY_FOLDER
       tests/gpu_carried.sh run CARRY_FOLDER [PYTHON]

pack copies the built tests of the label gpu (target tests_gpu) and the libraries that a bare machine may lack. run takes
the torch of PYTHON (default: python3), which must be of the version that the tests were linked with. It ends with 0 when
all passed, 77 when one was skipped, and says which.
EOF
}

die() { printf 'gpu_carried: %s\n' "$*" >&2; exit 2; }

# Names of the tests, from ctest's own list.
tests_of() { # build folder
  ctest --test-dir "$1" -L gpu -N | sed -n 's/^ *Test *#[0-9]*: //p'
}

pack() { # build folder, carry folder
  local build=$1 carry=$2 test binary library
  [ ! -e "$carry" ] || [ -e "$carry/TESTS" ] || die "$carry is there, and nothing that pack made"
  rm -rf "$carry"
  mkdir -p "$carry/cxx"
  for test in $(tests_of "$build"); do
    binary=$(find "$build/tests" -type f -name "$test" -perm -u+x | head -n 1)
    [ -n "$binary" ] || die "$test is not built: cmake --build $build --target tests_gpu"
    cp "$binary" "$carry/"
    printf '%s\n' "$test" >>"$carry/TESTS"
    # torch's, CUDA's and the C library's own are that machine's.
    for library in $(ldd "$binary" | awk '$3 ~ "^/" {print $3}'); do
      case $library in
        */site-packages/* | */libc.so* | */libm.so* | */libdl.so* | */libpthread.so* | */librt.so* | */libutil.so*) ;;
        */libstdc++.so* | */libgcc_s.so*) cp "$library" "$carry/cxx/" ;;
        *) cp "$library" "$carry/" ;;
      esac
    done
  done
  [ -e "$carry/TESTS" ] || die "$build has no tests of the label gpu: configure with -DDBG_WITH_NCCL=ON"
  library=$(find "$build/tests" -name libnccl_name_profiler.so | head -n 1)
  [ -n "$library" ] || die "libnccl_name_profiler.so is not built"
  cp "$library" "$carry/"
  library=$(ldd "$binary" | awk '/libtorch_cpu.so/ {print $3}')
  sed -n "s/^__version__ = '\(.*\)'/\1/p" "$(dirname "$library")/../version.py" >"$carry/TORCH"
  du -sh "$carry"
}

run() { # carry folder, python
  local carry python=${2:-python3} torch have want libraries test status=0 output
  carry=$(cd "$1" && pwd)
  torch=$("$python" -c 'import importlib.util; print(importlib.util.find_spec("torch").submodule_search_locations[0])') ||
    die "$python has no torch"
  have=$("$python" -c 'import importlib.metadata; print(importlib.metadata.version("torch"))')
  want=$(cat "$carry/TORCH")
  [ "${have%%+*}" = "${want%%+*}" ] || die "these tests were linked with torch $want, and $python has $have"
  libraries=$carry:$torch/lib:$(find "$torch/../nvidia" -maxdepth 3 -type d -name lib 2>/dev/null | paste -sd:)
  export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  export DBG_TEST_NCCL_PLUGIN=$carry/libnccl_name_profiler.so
  # The compiler's libraries only where that machine's are older: torch may want those that are there.
  "$carry/$(head -n 1 "$carry/TESTS")" --gtest_list_tests >/dev/null 2>&1 ||
    export LD_LIBRARY_PATH=$carry/cxx:$LD_LIBRARY_PATH
  while read -r test; do
    output=$("$carry/$test" 2>&1) || status=1
    printf '%s\n' "$output"
    if grep -q '^\[  SKIPPED \]' <<<"$output"; then
      printf 'gpu_carried: %s was skipped, in whole or in part\n' "$test"
      [ $status = 1 ] || status=77
    fi
  done <"$carry/TESTS"
  return $status
}

case ${1:-} in
  pack) [ $# = 3 ] || { usage >&2; exit 2; }; pack "$2" "$3" ;;
  run) [ $# = 2 ] || [ $# = 3 ] || { usage >&2; exit 2; }; run "$2" "${3:-}" ;;
  -h | --help) usage ;;
  *) usage >&2; exit 2 ;;
esac
