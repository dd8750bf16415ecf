# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
"""Runs grafts beside their peers on this machine, logs on, and prints the README's rows.

    python tests/bench/graft_bench.py BUILD_FOLDER [--sglang FOLDER] [--turns N]

BUILD_FOLDER was configured with -DDBG_BUILD_BENCHMARKS=ON in Release. The python that runs this needs torch. A call's time is
the median on the slowest rank, and of several runs, taken in turns, the median again.
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

SOURCE = pathlib.Path(__file__).resolve().parents[2]
MIB = 1 << 20
SIZES = (MIB, 64 * MIB)
WARM_UPS = 2


def select_first(graft_input):
    """What `select:0` does in C++: the twin's transform where the sides are unlike."""
    return graft_input.received_list[0]


def python_rank(words):
    """What graft_bench.cpp does, with SGLang's unmodified dumper."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{os.environ['GRAFT_BENCH_STORE']}", rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]))
    from sglang.srt.debug_utils.dumper import dumper

    medians = {}
    for word in words:
        size, calls = map(int, word.split(":"))
        tensor = torch.rand(size // 4)
        took = []
        for _ in range(WARM_UPS + calls):
            began = time.perf_counter()
            dumper.dump("x", tensor)
            took.append((time.perf_counter() - began) * 1e3)
        medians[size] = statistics.median(took[WARM_UPS:])
    print(json.dumps(medians), flush=True)
    # Not by the interpreter's end: with gloo's threads still there, torch aborts in it now and then.
    os._exit(0)


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return str(taken.getsockname()[1])


def slowest(started):
    """Of what the ranks print, by size, the largest."""
    printed = [process.communicate(timeout=600)[0] for process in started]
    if any(process.returncode for process in started):
        sys.exit("a rank failed:\n" + "\n".join(printed))
    medians = [json.loads(text.splitlines()[-1]) for text in printed]
    return {size: max(one[str(size)] for one in medians) for size in SIZES}


def start(command, environment):
    environment = dict(os.environ, GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1", MASTER_ADDR="127.0.0.1", **environment)
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def calls_of(small, large):
    return [f"{MIB}:{small}", f"{64 * MIB}:{large}"]


class Bench:
    def __init__(self, build, sglang, scratch):
        self.program, self.sglang, self.scratch = str(build / "tests/bench/graft_bench"), sglang, scratch

    def graft(self, languages, counts, calls):
        """Milliseconds of a graft by size; `languages` and `counts` of baseline and target."""
        port = free_port()
        started = []
        for role, language, count in zip(("baseline", "target"), languages, counts):
            store = self.scratch / f"store_{role}_{port}"
            for rank in range(count):
                environment = {
                    "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count), "GRAFT_BENCH_STORE": str(store),
                    "PYTHONPATH": f"{self.sglang}:{SOURCE / 'tests/bench'}", "DUMPER_ENABLE": "1",
                    "DUMPER_ENABLE_OUTPUT_FILE": "0", "DUMPER_ENABLE_OUTPUT_CONSOLE": "0", "DUMPER_EXP_NAME": "bench",
                    "DUMPER_DIR": str(self.scratch), "DUMPER_GRAFTER_ENABLE": "1", "DUMPER_GRAFTER_ROLE": role,
                    "DUMPER_GRAFTER_B2T_FILTER": "name == 'x'", "DUMPER_GRAFTER_MASTER_ADDRESS": "127.0.0.1",
                    "DUMPER_GRAFTER_MASTER_PORT": port, "DUMPER_GRAFTER_BASELINE_WORLD_SIZE": str(counts[0]),
                    "DUMPER_GRAFTER_TARGET_WORLD_SIZE": str(counts[1]), "DUMPER_GRAFTER_BACKEND": "gloo",
                    "DUMPER_GRAFTER_TIMEOUT": "120",
                }
                if counts[0] != counts[1]:
                    name = {"python": "DUMPER_GRAFTER_TRANSFORM_PATH", "cpp": "DUMPER_GRAFTER_TRANSFORM"}[language]
                    environment[name] = {"python": "graft_bench.select_first", "cpp": "select:0"}[language]
                if language == "python":
                    started.append(start([sys.executable, __file__, "rank", *calls], environment))
                else:
                    started.append(start([self.program, "graft", *calls], environment))
        return slowest(started)

    def gather(self, ranks, calls):
        """The same bytes on each of so many ranks, by the bare backend."""
        port = free_port()
        return slowest([
            start([self.program, "gather", *calls],
                  {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_PORT": port})
            for rank in range(ranks)
        ])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--sglang", type=pathlib.Path, default=SOURCE / "build/peers/sglang-0.5.14")
    parser.add_argument("--turns", type=int, default=3)
    arguments = parser.parse_args()

    cpp, python = "cpp", "python"
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(arguments.build, arguments.sglang, pathlib.Path(scratch))
        runs = {
            ("dbg", 2): lambda: bench.graft((cpp, cpp), (1, 1), calls_of(101, 11)),
            ("gloo", 2): lambda: bench.gather(2, calls_of(101, 11)),
            ("python", 2): lambda: bench.graft((python, python), (1, 1), calls_of(25, 5)),
            ("mixed", 2): lambda: bench.graft((python, cpp), (1, 1), calls_of(25, 5)),
            ("dbg", 6): lambda: bench.graft((cpp, cpp), (4, 2), calls_of(51, 7)),
            ("gloo", 6): lambda: bench.gather(6, calls_of(51, 7)),
            ("python", 6): lambda: bench.graft((python, python), (4, 2), calls_of(5, 1)),
        }
        taken = {key: [] for key in runs}
        for _ in range(arguments.turns):  # in turns, so that a noisy minute meets all
            for key, run in runs.items():
                taken[key].append(run())
                print(*key, taken[key][-1], file=sys.stderr, flush=True)
    times = {key: {size: statistics.median(one[size] for one in each) for size in SIZES} for key, each in taken.items()}

    print(f"{datetime.date.today()}, {platform.machine()}, {os.cpu_count()} cores, gloo over lo, logs on\n")
    print("| what | dbg | peer, same run | ratio |\n|---|---|---|---|")
    for ranks, sides in ((2, "1+1"), (6, "4+2")):
        for size in SIZES:
            ours, theirs, bare = (times[key, ranks][size] for key in ("dbg", "python", "gloo"))
            what = f"graft of {size // MIB} MiB, {sides} ranks"
            print(f"| {what} | {ours:.1f} ms | two sides of SGLang's Python {theirs:.0f} ms | {theirs / ours:.1f}x faster |")
            print(f"| {what} | {ours:.1f} ms | gloo's allgather of the bytes {bare:.1f} ms | {ours / bare:.2f}x |")
            if ("mixed", ranks) in times:
                mixed = times["mixed", ranks][size]
                print(f"| {what}, from Python to C++ | {mixed:.1f} ms | two sides of SGLang's Python {theirs:.0f} ms"
                      f" | {theirs / mixed:.1f}x faster |")


if __name__ == "__main__":
    if sys.argv[1:2] == ["rank"]:
        python_rank(sys.argv[2:])
    main()
