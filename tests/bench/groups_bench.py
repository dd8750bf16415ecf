# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the benchmarks of groups beside their peers on this machine and prints the README's rows.

    python tests/bench/groups_bench.py BUILD_FOLDER [--ranks N] [--rounds N]

BUILD_FOLDER was configured with -DDBG_BUILD_BENCHMARKS=ON in Release. The python that runs this needs torch.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time


def python_rank(rounds):
    """What group_creation.cpp does, with torch's own: two groups, the slowest member counts."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    ranks = list(range(dist.get_world_size()))
    took = []
    for _ in range(rounds):
        dist.barrier()
        began = time.perf_counter()
        groups = [dist.new_group(ranks, backend="gloo") for _ in range(2)]
        slowest = torch.tensor([(time.perf_counter() - began) * 1e3], dtype=torch.double)
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        took.append(slowest.item())
        for group in groups:
            dist.destroy_process_group(group)
    if dist.get_rank() == 0:
        print(json.dumps({"create_ms": statistics.median(took)}), flush=True)
    os._exit(0)


def run_ranks(command, ranks):
    """Runs a command as so many ranks; returns what rank 0 printed."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = str(taken.getsockname()[1])
    started = []
    for rank in range(ranks):
        environment = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks))
        environment.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1")
        started.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
    printed = [process.communicate(timeout=300)[0] for process in started]
    if any(process.returncode for process in started):
        sys.exit(f"{command} failed")
    return json.loads(printed[0].splitlines()[-1])


def real_times(program):
    """Median real time of each benchmark of a Google Benchmark program, in nanoseconds."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [str(program), f"--benchmark_out={file.name}", "--benchmark_out_format=json"]
        command += ["--benchmark_repetitions=15", "--benchmark_enable_random_interleaving=true"]
        subprocess.run([*command, "--benchmark_report_aggregates_only=true"], check=True, stdout=sys.stderr)
        entries = json.load(file)["benchmarks"]
    medians = (entry for entry in entries if entry.get("aggregate_name") == "median")
    return {entry["run_name"].split("/")[0]: entry["real_time"] for entry in medians}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=21)
    arguments = parser.parse_args()
    bench = arguments.build / "tests/bench"

    ours, theirs = [], []
    for _ in range(3):  # in turns, so that a noisy minute meets both
        ours.append(run_ranks([str(bench / "group_creation"), str(arguments.rounds)], arguments.ranks)["create_ms"])
        peer = [sys.executable, __file__, "rank", str(arguments.rounds)]
        theirs.append(run_ranks(peer, arguments.ranks)["create_ms"])
    create, new_group = statistics.median(ours), statistics.median(theirs)
    times = real_times(bench / "group_bench")
    group, raw = times["BM_GroupAllReduce1KiB"] / 1e3, times["BM_RawAllReduce1KiB"] / 1e3

    print(f"{datetime.date.today()}, {platform.machine()}, {os.cpu_count()} cores, {arguments.ranks} ranks, gloo over lo\n")
    print("| what | dbg | peer, same run | ratio |\n|---|---|---|---|")
    print(f"| a group of both halves | {create:.1f} ms | two `new_group()` of torch's Python {new_group:.1f} ms"
          f" | {create / new_group:.2f}x |")
    print(f"| all_reduce of 1 KiB | {group:.0f} us | the backend's own {raw:.0f} us | {group / raw:.2f}x |")


if __name__ == "__main__":
    if sys.argv[1:2] == ["rank"]:
        python_rank(int(sys.argv[2]))
    main()
