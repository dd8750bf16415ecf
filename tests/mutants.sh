#!/usr/bin/env bash
# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
# Proves that tests can fail: applies each small wrong change of tests/mutants/<part>/*.patch to a copy of the tree, builds
# the one test executable concerned, and demands that the test which the patch names fails.
#
# A patch's first line is `# must fail: FILTER` or `# must fail: EXECUTABLE FILTER`, where FILTER is GoogleTest's. What
# follows is a unified diff against src/ or include/, to be applied by `patch -p1`.
set -uo pipefail

usage() {
  cat <<'EOF'
usage: tests/mutants.sh [--check] [part | patch ...]

With --check, only says which patches do not apply or name a suite that is not there; builds nothing. Without arguments, all parts. The copy stays in build/mutants, so that a second run builds little. Environment: DBG_JOBS,
LIBTORCH_ROOT; run cmake/bootstrap.sh first when there is no libtorch.
EOF
}

source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
tree=$source_dir/build/mutants/tree
build=$tree/build/release
jobs=${DBG_JOBS:-$(nproc)}
limit=${DBG_MUTANT_SECONDS:-120}

die() { printf 'mutants: %s\n' "$*" >&2; exit 2; }

patches=()
collect() {
  local argument
  [ $# != 0 ] || set -- "$source_dir"/tests/mutants/*/
  for argument; do
    case $argument in
      -h | --help) usage; exit 0 ;;
      *.patch) patches+=("$(realpath "$argument")") ;;
      *) patches+=("$source_dir/tests/mutants/$(basename "$argument")"/*.patch) ;;
    esac
  done
  for argument in "${patches[@]}"; do [ -e "$argument" ] || die "there is no $argument"; done
}

# A copy of what is there now, committed or not. Times are kept, so that nothing is built again for being copied.
copy_tree() {
  find "$tree" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} + 2>/dev/null
  mkdir -p "$tree"
  (cd "$source_dir" && git ls-files -co --exclude-standard -z | tar --null --ignore-failed-read -T - -cf - 2>/dev/null) |
    tar -xf - -C "$tree"
}

# The copy lies inside a repository, which must not be asked.
apply_patch() { (cd "$tree" && GIT_CEILING_DIRECTORIES=$(dirname "$tree") git apply "$@" 2>&1); }

# Prints the executable that holds the suite of a filter: asked of the build, which knows where each source goes.
executable_of() { # filter
  local suite=${1%%.*} file
  suite=${suite##*/}
  file=$(grep -rlE "TEST(_F|_P)?\($suite," "$tree/tests" --include='*.cpp' | head -n 1)
  [ -n "$file" ] || return 1
  ninja -C "$build" -t targets all |
    sed -n "s#^tests/.*CMakeFiles/\([^/]*\)\.dir/\(.*/\)\{0,1\}$(basename "$file")\.o: .*#\1#p" | head -n 1
}

build_one() { cmake --build "$build" -j "$jobs" --target "$1" >"$tree/build/mutant.log" 2>&1; }

run_one() { # executable, filter
  local binary
  binary=$(find "$build/tests" -type f -name "$1" -perm -u+x | head -n 1)
  (cd "$build" && timeout "$limit" "$binary" --gtest_filter="$2") >"$tree/build/mutant.log" 2>&1
}

# Prints each patch that can't be tried, and why.
check_patches() {
  local patch suite bad=0
  for patch in "${patches[@]}"; do
    suite=$(sed -n '1s/^# must fail: //p' "$patch" | awk '{print $NF}')
    suite=${suite%%.*}
    suite=${suite##*/}
    if [ -z "$suite" ] || ! grep -rqE "TEST(_F|_P)?\($suite," "$source_dir/tests" --include='*.cpp'; then
      printf '%s: its first line names no suite of tests\n' "$patch" && bad=1
    elif ! (cd "$source_dir" && git apply --check "$patch" 2>&1); then
      printf '%s: it does not apply\n' "$patch" && bad=1
    fi
  done
  return $bad
}

only_check=no
[ "${1:-}" != --check ] || { only_check=yes && shift; }
collect "$@"
[ ${#patches[@]} != 0 ] || die "no patches"
[ $only_check = no ] || { check_patches; exit; }
started=$SECONDS
copy_tree
(cd "$tree" && cmake --preset release "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG" -DDBG_BUILD_EXAMPLES=OFF "-DDBG_BOOTSTRAP_DIR=$source_dir/build") \
  >"$tree/build.log" 2>&1 || { cat "$tree/build.log"; die "the copy cannot be configured"; }

bad=() killed=0
declare -A sound
for patch in "${patches[@]}"; do
  name=${patch#"$source_dir"/tests/mutants/}
  read -r -a words <<<"$(sed -n '1s/^# must fail: *//p' "$patch")"
  verdict='' began=$SECONDS
  case ${#words[@]} in
    1) filter=${words[0]} executable=$(executable_of "${words[0]}") || verdict="no test of the suite ${words[0]}" ;;
    2) executable=${words[0]} filter=${words[1]} ;;
    *) verdict='its first line is not "# must fail: [EXECUTABLE] FILTER"' ;;
  esac
  if [ -z "$verdict" ] && [ -z "${sound["$executable $filter"]:-}" ]; then
    # Without the change the test has to be there and to pass, or its failure would say nothing.
    if ! build_one "$executable"; then
      verdict="$executable does not build even without it"
      tail -n 20 "$tree/build/mutant.log"
    elif ! run_one "$executable" "$filter" || grep -qE '^\[==========\] (Running )?0 tests' "$tree/build/mutant.log"; then
      verdict="$filter fails, or is not there, even without it"
    else
      sound["$executable $filter"]=yes
    fi
  fi
  if [ -z "$verdict" ]; then
    if ! said=$(apply_patch "$patch"); then
      verdict="does not apply: $said"
    else
      if ! build_one "$executable"; then
        verdict='does not compile'
        grep -m 5 'error' "$tree/build/mutant.log"
      elif run_one "$executable" "$filter"; then
        verdict="SURVIVED $filter"
      fi
      apply_patch -R "$patch" >/dev/null || die "$name cannot be taken back; remove build/mutants"
    fi
  fi
  if [ -z "$verdict" ]; then
    killed=$((killed + 1))
    printf 'killed    %-60s %4d s  %s\n' "$name" $((SECONDS - began)) "$filter"
  else
    bad+=("$name: $verdict")
    printf 'NOT       %-60s %4d s  %s\n' "$name" $((SECONDS - began)) "$verdict"
  fi
done

printf '%d of %d mutants killed in %d s\n' "$killed" ${#patches[@]} $((SECONDS - started))
if [ ${#bad[@]} != 0 ]; then
  printf '  %s\n' "${bad[@]}"
  exit 1
fi
