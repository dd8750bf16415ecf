# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
"""examples/graft_minilm finds a fault in each of the six layers, and none where there is none."""

import os
import pathlib
import re
import subprocess
import sys

from minilm_peer import MODEL, PROGRAMS, SOURCE, skip

SGLANG = pathlib.Path(os.environ["DBG_TEST_SGLANG_DIR"])
# Each layer once; the faults in turn, the smallest (eps) in the last layer too, where least is left to enlarge it.
PLANTED = [("mask", 0), ("gelu-tanh", 1), ("eps", 2), ("mask", 3), ("gelu-tanh", 4), ("eps", 5)]


def run(*arguments):
    """The layer that the script names, None for none, and all it said."""
    result = subprocess.run(
        [sys.executable, SOURCE / "examples/graft_minilm/run.py", "--program", PROGRAMS / "minilm", "--model", MODEL,
         "--sglang", SGLANG, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=280)
    if result.returncode != 0:
        raise AssertionError(f"{arguments}: {result.returncode}\n{result.stdout}")
    found = re.search(r"the fault is in layer (\d)$", result.stdout, re.M)
    if not found and "no layer is at fault" not in result.stdout:
        raise AssertionError(f"{arguments}: no verdict\n{result.stdout}")
    rows = re.findall(r"^\| .* \| \S+e\S+ \|$", result.stdout, re.M)
    if len(rows) != 8:
        raise AssertionError(f"{arguments}: {len(rows)} rows\n{result.stdout}")
    return int(found[1]) if found else None, result.stdout


def main():
    if not (SGLANG / "sglang/srt/debug_utils/dumper.py").exists():
        skip(f"no SGLang debug tools in {SGLANG}; `cmake/bootstrap.sh --full` unpacks them")
    failures = 0
    for fault, layer in [*PLANTED, ("none", None)]:
        named, text = run("--fault", fault, *([] if layer is None else ["--fault-layer", str(layer)]))
        print(f"{fault} in layer {layer}: named {named}", flush=True)
        if named != layer:
            failures += 1
            print(f"FAILED\n{text}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
