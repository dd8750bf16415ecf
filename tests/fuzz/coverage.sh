#!/usr/bin/env bash
# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
# Says how much of the parsers the fuzz targets reach: builds them with clang's coverage, runs each from its seeds and what
# earlier runs found, and prints the share of lines by source.
set -euo pipefail

usage() {
  cat <<'EOF'
usage: tests/fuzz/coverage.sh [cmake argument ...]

Environment: DBG_FUZZ_SECONDS a target (default 20; 0 runs the seeds alone), DBG_JOBS, DBG_COVERAGE_LEAST: below this share
of lines, in percent over all parsers, the exit code is 1 (default 85). Needs clang, llvm-profdata and llvm-cov of one
version; the build stays in build/coverage.
EOF
}

case ${1:-} in
  -h | --help) usage; exit 0 ;;
esac

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=build/coverage
seconds=${DBG_FUZZ_SECONDS:-20}
least=${DBG_COVERAGE_LEAST:-85}
version=$(clang++ -dumpversion | cut -d. -f1)

tool() { # name: the one of clang's version, else the one there is
  command -v "$1-$version" || command -v "$1" || { printf 'coverage: no %s\n' "$1" >&2; exit 2; }
}
profdata=$(tool llvm-profdata)
cov=$(tool llvm-cov)

targets=(filter_fuzz pickle_reader_fuzz record_reader_fuzz safetensors_fuzz)
declare -A seeds=([filter_fuzz]=filter [pickle_reader_fuzz]=pickle [record_reader_fuzz]=record [safetensors_fuzz]=safetensors)
declare -A words=([filter_fuzz]=filter [pickle_reader_fuzz]=pickle [record_reader_fuzz]=pickle [safetensors_fuzz]=safetensors)

# -O0 would be truer to the line and five times slower; no sanitizer, which would count as code.
flags='-O1 -g1 -DNDEBUG'
export LLVM_PROFILE_FILE=$PWD/$build/unused.profraw  # of the programs that cmake tries the compiler with
cmake --preset fuzz -B "$build" -DDBG_SANITIZE= "-DCMAKE_CXX_FLAGS=-fprofile-instr-generate -fcoverage-mapping" \
  "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=$flags" "$@" >"build/configure-coverage.log" 2>&1 ||
  { cat build/configure-coverage.log; exit 1; }
cmake --build "$build" -j "${DBG_JOBS:-$(nproc)}" --target fuzzers

profiles=()
objects=()
for target in "${targets[@]}"; do
  corpus=$build/tests/fuzz/$target.corpus
  folder=tests/fuzz/seeds/${seeds[$target]}
  limit=(-max_total_time="$seconds")
  [ "$seconds" != 0 ] || limit=(-runs=0)
  printf '=== %s\n' "$target"
  LLVM_PROFILE_FILE=$build/$target.profraw "$build/tests/fuzz/$target" "${limit[@]}" -timeout=10 -rss_limit_mb=4096 \
    -dict="tests/fuzz/${words[$target]}.dict" -artifact_prefix="$build/" "$corpus" "$folder" 2>&1 | tail -n 2
  profiles+=("$build/$target.profraw")
  # The first is llvm-cov's own argument, the others its option's.
  [ ${#objects[@]} = 0 ] || objects+=(-object)
  objects+=("$build/tests/fuzz/$target")
done
"$profdata" merge -o "$build/all.profdata" "${profiles[@]}"

# The parsers; what only writes is not among them.
mapfile -t sources < <(ls src/codec/pickle_*.cpp src/codec/archive_reader.cpp src/codec/dict_guard.cpp \
  src/codec/safetensors*.cpp src/codec/tensor_rebuild.cpp src/codec/zip_directory.cpp src/dump/filter*.cpp |
  grep -vE 'pickle_(writer|bytes)')
printf '\n%-42s %7s %7s %8s\n' source lines missed covered
"$cov" export -summary-only -instr-profile "$build/all.profdata" "${objects[@]}" |
  python3 -c '
import json, os, sys
least, wanted = float(sys.argv[1]), set(sys.argv[2:])
rows = []
for source in json.load(sys.stdin)["data"][0]["files"]:
    name, lines = os.path.relpath(source["filename"]), source["summary"]["lines"]
    if name in wanted:
        rows.append((name, lines["count"], lines["count"] - lines["covered"]))
rows.sort()
rows.append(("all", sum(row[1] for row in rows), sum(row[2] for row in rows)))
for name, count, missed in rows:
    print(f"{name:42} {count:7} {missed:7} {100 * (1 - missed / max(count, 1)):7.1f}%")
if unseen := wanted - {row[0] for row in rows}:
    sys.exit("coverage: nothing is known of " + ", ".join(sorted(unseen)))
sys.exit(rows[-1][2] > (1 - least / 100) * rows[-1][1])' "$least" "${sources[@]}"
