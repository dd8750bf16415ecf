# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
"""`dbg compare` beside SGLang's comparator, on the same folders, in one run.

    python tests/bench/compare_bench.py BUILD_FOLDER --sglang FOLDER [--pairs 500] [--large]

500 tensors of 128 KiB a side, in two tp shards each: 2,000 records of 64 KiB. The twin's imports are not counted. With
--large, a pair of records of 4 GiB as well, by dbg alone.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import torch


def write_runs(folder, pairs):
    generator = torch.Generator().manual_seed(2)
    for side in ("baseline", "target"):
        (folder / side).mkdir(parents=True)
    for at in range(pairs):
        full = torch.randn(64, 512, generator=generator)
        # Everything differs a little, as between two engines.
        other = full * (1 + 1e-6 * torch.randn(64, 512, generator=generator))
        if at % 50 == 7:
            other[3, 5] += 40
        for side, value in (("baseline", full), ("target", other)):
            for rank in (0, 1):
                index = 2 * at + rank + 1
                meta = {"name": f"t{at}", "step": 0, "rank": rank, "dump_index": index, "dims": "s h[tp]",
                        "sglang_parallel_info": {"tp_rank": rank, "tp_size": 2}}
                torch.save({"value": value[:, 256 * rank:256 * rank + 256].clone(), "meta": meta},
                           folder / side / f"step=0___rank={rank}___dump_index={index}___name=t{at}.pt")


# Linux hands the peak of the process that starts another on to it, and this one holds torch. A small one stands between.
LAUNCHER = """
import json, os, subprocess, sys, time
start = time.perf_counter()
process = subprocess.Popen(sys.argv[1:])
_, _, usage = os.wait4(process.pid, 0)
print(json.dumps([time.perf_counter() - start, usage.ru_maxrss / 1024]), file=sys.stderr)
"""


def peak_mib(command):
    """Runs it; its standard output, seconds and peak memory."""
    done = subprocess.run([sys.executable, "-S", "-c", LAUNCHER, *map(str, command)], capture_output=True, text=True)
    said = done.stderr.splitlines()
    try:
        seconds, mib = json.loads(said[-1])
    except (IndexError, ValueError):
        raise AssertionError(done.stderr) from None
    return done.stdout, seconds, mib


TWIN = """
import contextlib, io, json, resource, sys, time
sys.path.insert(0, sys.argv[1])
from sglang.srt.debug_utils.comparator import entrypoint
import polars, torch
arguments = entrypoint.parse_args(["--baseline-path", sys.argv[2], "--target-path", sys.argv[3], "--diff-threshold", "1e-3",
                                   "--output-format", "json", "--report-path", ""])
out = io.StringIO()
start = time.perf_counter()
with contextlib.redirect_stdout(out):
    entrypoint.run(arguments)
seconds = time.perf_counter() - start
verdicts = {}
for line in out.getvalue().splitlines():
    one = json.loads(line)
    if one.get("type") == "comparison_tensor":
        verdicts[one["name"]] = one["diff"]["passed"]
print(json.dumps({"seconds": seconds, "verdicts": verdicts}))
"""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--sglang", type=pathlib.Path, required=True)
    parser.add_argument("--pairs", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--large", action="store_true")
    arguments = parser.parse_args()
    program = arguments.build / "src/cli/dbg"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_runs(folder, arguments.pairs)
        sides = [folder / "baseline", folder / "target"]
        twin_seconds, seconds, walls, peaks, twin_peaks = [], [], [], [], []
        for _ in range(arguments.rounds):  # in turn, and the first also warms the cache
            text, _, peak = peak_mib([sys.executable, "-c", TWIN, str(arguments.sglang), *map(str, sides)])
            twin = json.loads(text.splitlines()[-1])
            twin_seconds.append(twin["seconds"])
            twin_peaks.append(peak)
            text, wall, peak = peak_mib([program, "compare", *sides, "--rule", ".*: rel <= 1e-3", "--json", "-"])
            report = json.loads(text)
            seconds.append(report["summary"]["seconds"])
            walls.append(wall)
            peaks.append(peak)
        ours = {pair["name"]: pair["verdict"] in ("same bits", "passed") for pair in report["pairs"]}
        same = ours == twin["verdicts"]
        if not same:
            print("verdicts of dbg that are not the twin's:", sorted(set(ours.items()) ^ set(twin["verdicts"].items()))[:10])
        theirs, mine = statistics.median(twin_seconds), statistics.median(seconds)
        print(f"| compare {4 * arguments.pairs} records ({arguments.pairs} pairs of 128 KiB, tp 2) | {mine:.3f} s "
              f"({statistics.median(walls):.3f} s with its start), {max(peaks):.0f} MiB | SGLang's comparator without its "
              f"imports {theirs:.2f} s, {max(twin_peaks):.0f} MiB | {theirs / mine:.1f}x faster, verdicts "
              f"{'equal' if same else 'NOT EQUAL'} |")
        if not same:
            return 1
        if arguments.large:
            large(folder, program)
    return 0


def large(folder, program):
    elements = (4 << 30) // 4
    value = torch.zeros(elements)
    for side in ("baseline", "target"):
        (folder / "large" / side).mkdir(parents=True)
        value[elements - 5] = 1.0 if side == "baseline" else 2.0
        torch.save({"value": value, "meta": {"name": "x", "step": 0, "rank": 0, "dump_index": 1}},
                   folder / "large" / side / "step=0___rank=0___dump_index=1___name=x.pt")
    del value
    text, wall, peak = peak_mib(
        [program, "compare", folder / "large/baseline", folder / "large/target", "--json", "-"])
    pair = json.loads(text)["pairs"][0]
    print(f"| compare two records of 4 GiB | {wall:.1f} s, peak {peak:.0f} MiB, found at {pair['difference']['max_at']} | | |")


if __name__ == "__main__":
    sys.exit(main())
