#!/usr/bin/env bash
# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
# Compiles dbg against other versions of torch and runs the unit tests with each; prints a table, which goes to
# docs/compat.md with its date. Each version gets an environment of its own in build/torch-VERSION.
set -uo pipefail

case ${1:-} in -h | --help)
  echo 'usage: tests/torch_versions.sh [version ...]    (default: 2.7.1 2.9.0 2.15.0)'
  exit 0
  ;;
esac
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
[ $# != 0 ] || set -- 2.7.1 2.9.0 2.15.0
jobs=${DBG_JOBS:-$(nproc)}
unset LIBTORCH_ROOT
rows=() failed=no

try_version() { # version; sets set_up, built, outcome
  local version=$1 folder=build/torch-$1 began=$SECONDS root
  set_up=- built=- outcome='set-up failed'
  DBG_TORCH_VERSION=$version cmake/bootstrap.sh --own-torch --build-dir "$folder" || return 1
  set_up=$((SECONDS - began)) began=$SECONDS
  root=$(echo "$folder"/venv/lib/python3*/site-packages/torch)
  outcome='configure failed'
  cmake -G Ninja -S . -B "$folder/build" -DCMAKE_BUILD_TYPE=Release "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG" -DDBG_BUILD_EXAMPLES=OFF \
    -DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=6 -DDBG_WITH_NCCL=OFF "-DLIBTORCH_ROOT=$PWD/$root" >"$folder/configure.log" 2>&1 || { tail -n 20 "$folder/configure.log"; return 1; }
  grep -E '^-- (libtorch|NCCL)' "$folder/configure.log"
  outcome='build failed'
  cmake --build "$folder/build" -j "$jobs" --target tests_unit >"$folder/build.log" 2>&1 ||
    { grep -m 10 -A 3 'error' "$folder/build.log"; return 1; }
  built=$((SECONDS - began))
  ctest --test-dir "$folder/build" -L unit --no-tests=error --output-on-failure -j "$jobs" >"$folder/test.log" 2>&1
  local status=$?
  outcome=$(grep -E '[0-9]+% tests passed' "$folder/test.log")
  [ $status = 0 ] || { grep -E '\(Failed\)|\(Timeout\)|\[  FAILED' "$folder/test.log" | head -n 20; return 1; }
}

for version; do
  printf '\n=== torch %s\n' "$version"
  verdict=ok
  try_version "$version" || { verdict=FAILED failed=yes; }
  rows+=("$(printf '| %-7s | %7s | %7s | %-6s | %s |' "$version" "$set_up" "$built" "$verdict" "$outcome")")
done

printf '\n%s, %s, cmake %s\n\n' "$(date -u +%F)" "$(${CXX:-g++} --version | head -n 1)" \
  "$(cmake --version | sed -n '1s/[^0-9]*//p')"
printf '| torch   | set-up s | build s | result | unit tests |\n|---|---|---|---|---|\n'
printf '%s\n' "${rows[@]}"
[ $failed = no ]
