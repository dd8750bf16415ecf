#!/usr/bin/env bash
# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
# Sets up, builds and tests. Every stage runs even when one before it failed; the end says which did.
set -uo pipefail

usage() {
  cat <<'EOF'
usage: tests/run.sh [--all]

Sets up (cmake/bootstrap.sh --full), builds in Release and runs the unit, dist, interop and consumer tests.

  --all   also: the slow tests, examples/quickstart.sh, AddressSanitizer and UBSan on the unit tests, ThreadSanitizer on the
          threaded ones, a short run of each fuzz target; warnings are errors, g++'s and clang's. The build with
          AddressSanitizer is the one in Debug and without NCCL, too

Environment: DBG_JOBS (default: the number of cores), DBG_WITH_NCCL (ON, AUTO or OFF; default ON, for which a libtorch with
CUDA is needed), DBG_FUZZ_SECONDS a target (default 20), DBG_CTEST_OPTIONS, and what
cmake/bootstrap.sh reads.
EOF
}

all=no
case ${1:-} in
  '') ;;
  --all) all=yes ;;
  -h | --help) usage; exit 0 ;;
  *) usage >&2; exit 2 ;;
esac

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
jobs=${DBG_JOBS:-$(nproc)}
nccl=${DBG_WITH_NCCL:-ON}
passed=() failed=() skipped=() failures=()

stage() { # name, command ...
  local name=$1 started=$SECONDS line
  shift
  printf '\n=== %s\n' "$name"
  if "$@"; then
    line=$(printf '%-34s %5d s' "$name" $((SECONDS - started)))
    passed+=("$line")
  else
    line=$(printf '%-34s %5d s  FAILED' "$name" $((SECONDS - started)))
    failed+=("$line")
  fi
  printf '=== %s\n' "$line"
}

finish() {
  printf '\n'
  printf '%s\n' "${passed[@]}" "${failed[@]}"
  if [ ${#skipped[@]} != 0 ]; then
    printf 'skipped, so not shown:\n'
    printf '  %s\n' "${skipped[@]}"
  fi
  if [ ${#failures[@]} != 0 ]; then
    printf 'what failed, also where it passed when it ran again:\n'
    printf '  %s\n' "${failures[@]}"
  fi
  printf 'all stages: %d s\n' "$SECONDS"
  if [ ${#failed[@]} != 0 ]; then
    printf '%d of %d stages FAILED\n' ${#failed[@]} $((${#failed[@]} + ${#passed[@]}))
    exit 1
  fi
  exit 0
}

configure() { # preset, cmake arguments ...
  local preset=$1
  shift
  cmake --preset "$preset" "$@" >"build/configure-$preset.log" 2>&1 || { cat "build/configure-$preset.log"; return 1; }
  grep -E '^-- (libtorch|NCCL)' "build/configure-$preset.log" || true
}

build() { cmake --build --preset "$1" -j "$jobs" --target "$2"; }

# Of what ctest printed: the tests that failed, each expectation that did not hold, the first 100 lines of that.
failures_in() { # log
  awk '/Test +#[0-9]+: .*\*\*\*/ { print; next }
    /: Failure$/ { left = 12 }
    /^\[  FAILED  \] .* \([0-9]+ ms\)$/ { left = 1 }
    /^$/ { left = 0 }
    left > 0 { print "  " substr($0, 1, 400); left-- }' "$1" | head -n 100
}

# Linking a test starts no libtorch, running one does: as many at once as there are cores, no more.
run_tests() { # preset, ctest arguments ...
  local preset=$1 log=build/tests-$1.log status=0 name
  shift
  # shellcheck disable=SC2086  # words
  ctest --preset "$preset" -j "$jobs" ${DBG_CTEST_OPTIONS:-} "$@" | tee "$log" || status=1
  # What ctest lists as skipped, and what GoogleTest skipped inside a test that passed.
  while read -r name; do skipped+=("$preset: $name"); done < <(
    sed -n 's/^\t *[0-9]* - \(.*\) (Skipped).*/\1/p' "$log"
    sed -n 's/^\[  SKIPPED \] \([^ ]*\.[^ ]*\) (.*/\1/p' "build/$preset/Testing/Temporary/LastTest.log"
  )
  while IFS= read -r name; do failures+=("$preset: $name"); done < <(failures_in "$log")
  return "$status"
}

release() { configure "$1" "-DDBG_WITH_NCCL=$nccl" && build "$1" all && run_tests "$1" -L 'unit|dist|interop|consumer' -LE "$2"; }
unit_in() { configure "$1" && build "$1" tests_unit && run_tests "$1"; }
threads_in() { configure "$1" && build "$1" tests_threads && run_tests "$1"; }
fuzz_smoke() {
  configure fuzz "-DDBG_FUZZ_SECONDS=${DBG_FUZZ_SECONDS:-20}" && build fuzz fuzzers && run_tests fuzz
}

if [ $all = no ]; then
  stage 'set-up' cmake/bootstrap.sh --full
  [ ${#failed[@]} = 0 ] || finish
  stage 'Release' release release 'slow|gpu'
  finish
fi

stage 'set-up' cmake/bootstrap.sh --full --clang
[ ${#failed[@]} = 0 ] || finish
stage 'Release' release ci gpu
stage 'quickstart' env DBG_PRESET=ci examples/quickstart.sh
stage 'Debug without NCCL, ASan and UBSan' unit_in asan
stage 'ThreadSanitizer' threads_in tsan
stage 'fuzz smoke' fuzz_smoke
finish
