# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the Dumper's benchmarks beside their peers on this machine and prints the README's table.

    python tests/bench/run.py BUILD_FOLDER [--sglang FOLDER] [--torch FOLDER]

BUILD_FOLDER was configured with -DDBG_BUILD_BENCHMARKS=ON in Release. The python that runs this needs torch.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parents[2]


def run_google_benchmark(program, *arguments):
    """Median microseconds by benchmark, named as in its source: `BM_DumpOff`, `large_record/checksum`."""
    result = {}
    scale = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [str(program), f"--benchmark_out={file.name}", "--benchmark_out_format=json", *arguments]
        subprocess.run(command, check=True, stdout=sys.stderr)
        entries = json.load(file)["benchmarks"]
    for entry in entries:
        if entry.get("run_type") == "aggregate" and entry.get("aggregate_name") != "median":
            continue
        name = "/".join(part for part in entry["run_name"].split("/") if ":" not in part and part != "manual_time")
        result[name] = entry["real_time"] * scale[entry["time_unit"]]
    return result


def include_seconds(text, torch_folder, rounds=5):
    """Median seconds that g++ -O0 takes for a source that only includes."""
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "x.cpp"
        source.write_text(text)
        command = ["g++", "-std=c++17", "-O0", "-fsyntax-only", f"-I{SOURCE}/include"]
        command += [f"-isystem{torch_folder}/include", f"-isystem{torch_folder}/include/torch/csrc/api/include"]
        times = []
        for _ in range(rounds):
            start = time.perf_counter()
            subprocess.run([*command, str(source)], check=True)
            times.append(time.perf_counter() - start)
        return statistics.median(times)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--sglang", type=pathlib.Path, default=SOURCE / "build/peers/sglang-0.5.14")
    parser.add_argument("--torch", type=pathlib.Path)
    arguments = parser.parse_args()
    torch_folder = arguments.torch
    if torch_folder is None:
        import torch

        torch_folder = pathlib.Path(torch.__file__).parent
    scratch = "/dev/shm/dbg_bench" if os.access("/dev/shm", os.W_OK) else tempfile.mkdtemp()
    os.environ["DBG_BENCH_DIR"] = scratch

    ours = run_google_benchmark(arguments.build / "tests/bench/dump_bench", "--benchmark_repetitions=9",
                                "--benchmark_enable_random_interleaving=true")
    twin = json.loads(
        subprocess.run(
            [
                sys.executable,
                str(SOURCE / "tests/bench/twin_dump_bench.py"),
                str(arguments.sglang / "sglang/srt/debug_utils/dumper.py"),
                scratch,
            ],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.splitlines()[-1]
    )
    plain = "#include <ATen/core/Tensor.h>\n#include <ATen/core/ivalue.h>\n"
    torch_include = include_seconds(plain, torch_folder)
    dbg_include = include_seconds("#include <dbg/dumper.h>\n", torch_folder)

    bare, off = ours["BM_BareLoadAndBranch"], ours["BM_DumpOff"]
    rows = [
        ("`dump()` while off", f"{off * 1e3:.2f} ns", f"bare load and branch {bare * 1e3:.2f} ns", f"{off / bare:.2f}x"),
        ("`dbg::dump()` while off", f"{ours['BM_GlobalDumpOff'] * 1e3:.2f} ns", f"SGLang's dumper {twin['off']:.2f} us",
         faster(ours["BM_GlobalDumpOff"], twin["off"])),
        ("filtered out", f"{ours['BM_DumpFilteredOut']:.3f} us", f"SGLang's dumper {twin['filtered']:.1f} us",
         faster(ours["BM_DumpFilteredOut"], twin["filtered"])),
        ("3 floats to a file", f"{ours['BM_Dump3Floats']:.1f} us", f"SGLang's dumper {twin['three_floats']:.0f} us",
         faster(ours["BM_Dump3Floats"], twin["three_floats"], 1)),
        ("3 floats to a file", f"{ours['BM_Dump3Floats']:.1f} us",
         f"`torch::pickle_save` to a file {ours['BM_TorchPickleSave3Floats']:.1f} us",
         faster(ours["BM_Dump3Floats"], ours["BM_TorchPickleSave3Floats"], 2)),
        ("`#include <dbg/dumper.h>`", f"{dbg_include:.2f} s", f"`Tensor.h` and `ivalue.h` {torch_include:.2f} s",
         f"{dbg_include / torch_include:.2f}x"),
    ]
    os.makedirs(scratch, exist_ok=True)
    record_bench = arguments.build / "tests/bench/record_bench"
    if record_bench.exists():
        rows += record_rows(record_bench)
    print(f"{datetime.date.today()}, {platform.machine()}, {os.cpu_count()} cores, records on {scratch}\n")
    print("| what | dbg | peer, same run | ratio |\n|---|---|---|---|")
    for row in rows:
        print("| " + " | ".join(row) + " |")


def faster(ours, peer, digits=0):
    ratio = f"{peer / ours:.{digits}f}x"
    return f"{ratio} faster" if ours <= peer else f"{ratio} (slower)"


def record_rows(program):
    times = run_google_benchmark(program)
    plain = times["large_plain_write"]
    rows = []
    for kind, what in (("checksum", "256 MiB to a file, with checksum"), ("plain", "256 MiB to a file, without")):
        record, torch_writer = times[f"large_record/{kind}"], times[f"large_torch_writer/{kind}"]
        ours = f"{record / 1e3:.0f} ms"
        rows.append((what, ours, f"`write()` of the bytes {plain / 1e3:.0f} ms", f"{plain / record:.2f} of its rate"))
        rows.append((what, ours, f"torch's own container {torch_writer / 1e3:.0f} ms", faster(record, torch_writer, 2)))
    return rows


main()
