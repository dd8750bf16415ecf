#!/usr/bin/env bash
# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
# Builds a real model, runs it right and with one mistake, and finds the mistake by the records of the two runs.
set -euo pipefail

usage() {
  cat <<'EOF'
usage: examples/quickstart.sh [--fault FAULT] [--fault-layer LAYER]

  --fault FAULT        the mistake: gelu-tanh (default), eps, mask or layer-order
  --fault-layer LAYER  the layer it goes into, from 0 (default 3)

Environment: DBG_JOBS (default: the number of cores), DBG_PRESET (default: release), and what cmake/bootstrap.sh reads.
EOF
}

fault=gelu-tanh layer=3
while [ $# -gt 0 ]; do
  case $1 in
    --fault) fault=${2:?--fault needs a name} && shift ;;
    --fault-layer) layer=${2:?--fault-layer needs a number} && shift ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
  shift
done

# Before the minutes of set-up. The program checks the same: the model has six layers.
wrong() { echo "quickstart: $*" >&2; exit 2; }
last=5
case $fault in
  gelu-tanh | eps | mask) ;;
  layer-order) last=4 ;;
  *) wrong "--fault is '$fault'; known are gelu-tanh, eps, mask, layer-order" ;;
esac
[[ $layer =~ ^[0-9]$ && $layer -le $last ]] || wrong "--fault-layer is '$layer'; --fault $fault applies to layers 0 to $last"

# What the caller's shell says of dumping is not for these runs: a filter would leave records out.
unset "${!DUMPER_@}"

cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=${DBG_PRESET:-release}
build=build/$preset out=build/quickstart
say() { printf '\n--- %s\n' "$*"; }

say 'set-up'
cmake/bootstrap.sh --model
setup_seconds=$SECONDS

say 'build'
cmake --preset "$preset" >"build/configure-$preset.log" 2>&1 || { cat "build/configure-$preset.log" >&2; exit 1; }
cmake --build "$build" -j "${DBG_JOBS:-$(nproc)}" --target minilm dbg_cli
build_seconds=$((SECONDS - setup_seconds))

# What the records hold is decided by the environment alone; the program only names its tensors.
run() { # records' folder, arguments ...
  DUMPER_ENABLE=1 DUMPER_DIR=$out DUMPER_EXP_NAME=$1 DUMPER_CLEANUP_PREVIOUS=1 DUMPER_ENABLE_OUTPUT_CONSOLE=0 \
    "$build/examples/minilm/minilm" "${@:2}"
}

say 'baseline: all-MiniLM-L6-v2, as it should be'
run baseline
say "target: the same with a mistake, --fault $fault --fault-layer $layer"
run target --fault "$fault" --fault-layer "$layer"

say 'the first records of the baseline'
find "$out/baseline" -name '*.pt' -printf '%f\n' | sort -t= -k2,2n -k4,4n | sed -n '1,6p;$!d'
echo '...'

say 'where do they part?'
status=0
"$build/src/cli/dbg" compare "$out/baseline" "$out/target" --html "$out/report.html" || status=$?
[ "$status" = 1 ] || { echo "quickstart: a difference was planted, and dbg compare ended with $status" >&2; exit 1; }
echo "open it in a browser: $PWD/$out/report.html"

say 'the records'
echo "$PWD/$out/baseline and $PWD/$out/target, one .pt file a tensor"
record=$(find "$out/target" -name '*name=embedding__*.pt' | sort | head -n 1)
opener=
for python in python3 build/venv/bin/python3; do
  if "$python" -c 'import torch' 2>/dev/null; then
    opener=$python
    break
  fi
done
if [ -n "$opener" ]; then
  echo "open one:  $opener -c 'import torch; print(torch.load(\"$record\"))'"
else
  echo "torch.load(path) opens one. No python here can import torch: the set-up above took only its C++ libraries."
  echo "Copy the folder to one that can, or get one here: cmake/bootstrap.sh --full (3.5 GB), then build/venv/bin/python3"
fi
printf '\nset-up %d s, build %d s, all %d s\n' "$setup_seconds" "$build_seconds" "$SECONDS"
