# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
"""C++ and Python ranks in one gloo group, either as rank 0, also under torchrun; labels that Python and its tools read.

Run with `peer MODE ...` this file is the Python rank, and does what group_peer.cpp does in the same order.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

from free_port import free_port

BINARY_DIR = pathlib.Path(os.environ.get("DBG_TEST_BINARY_DIR", "."))
PEER = BINARY_DIR / "tests/interop/group_peer"
LIBRARY = BINARY_DIR / "tests/interop/libgroup_library.so"
LIMIT_SECONDS = 90


# ---- the Python rank


def use(dist, torch, group, ranks):
    place = ranks.index(int(os.environ["RANK"]))
    seen = {}
    total = torch.full((4,), place + 1.0)
    dist.all_reduce(total, group=group)
    seen["sum"] = total[0].item()
    dist.barrier(group=group)
    last = torch.full((2,), 7.0 if place == len(ranks) - 1 else 0.0)
    dist.broadcast(last, src=ranks[-1], group=group)
    seen["broadcast"] = last[0].item()
    parts = [torch.zeros(1) for _ in ranks]
    dist.all_gather(parts, torch.full((1,), 10.0 + place), group=group)
    seen["parts"] = [part.item() for part in parts]
    seen["objects"] = [None] * len(ranks)
    dist.all_gather_object(seen["objects"], f"from {place}", group=group)
    return seen


def custom_group(dist, name, size, rank):
    """As SGLang's init_custom_process_group: a store of its own, the name as prefix."""
    from datetime import timedelta

    from torch.distributed import distributed_c10d as c10d
    from torch.distributed.rendezvous import rendezvous

    timeout = timedelta(seconds=60)
    store, _, _ = next(rendezvous("env://", rank, size, timeout=timeout))
    store.set_timeout(timeout)
    store = c10d.PrefixStore(name, store)
    group, _ = c10d._new_process_group_helper(
        size, rank, [], c10d.Backend("gloo"), store, group_name=name, timeout=timeout
    )
    c10d._world.pg_group_ranks[group] = {i: i for i in range(size)}
    return group


def run_peer(mode, *words):
    from datetime import timedelta

    import torch
    import torch.distributed as dist

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    everyone = list(range(size))
    seen = {}
    if mode in ("world", "subgroup"):
        dist.init_process_group("gloo", timeout=timedelta(seconds=60))
        seen["all"] = use(dist, torch, None, everyone)
        if mode == "subgroup":
            part = dist.new_group([0, 1])
            if rank in (0, 1):
                seen["part"] = use(dist, torch, part, [0, 1])
                assert part.group_name == words[0], part.group_name
    else:
        seen["custom"] = use(dist, torch, custom_group(dist, words[0], size, rank), everyone)
    print(json.dumps(seen), flush=True)
    # Not by the interpreter's end: with gloo's threads still there, torch aborts in it now and then.
    os._exit(0)


# ---- the test


def check(condition, *what):
    if not condition:
        raise AssertionError(" ".join(str(one) for one in what))


def last_json(text):
    lines = [line for line in text.splitlines() if line.startswith("{")]
    check(lines, "no JSON in:", text)
    return json.loads(lines[-1])


def run_ranks(commands, extra_environment=None):
    """Starts one command a rank; returns what each printed."""
    port = str(free_port())
    started = []
    for rank, command in enumerate(commands):
        environment = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(len(commands)))
        environment.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, **(extra_environment or {}))
        started.append(
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
    outputs = []
    try:
        for process in started:
            out, err = process.communicate(timeout=LIMIT_SECONDS)
            outputs.append((process.returncode, out, err))
    finally:
        for process in started:
            process.kill()
    for rank, (code, out, err) in enumerate(outputs):
        check(code == 0, f"rank {rank} exited with {code}:", out, err)
    return [last_json(out) for _, out, _ in outputs]


def python_peer(*words):
    return [sys.executable, __file__, "peer", *words]


def cpp_peer(*words):
    return [str(PEER), *words]


def expect_used(seen, size):
    check(seen["sum"] == size * (size + 1) / 2, seen)
    check(seen["broadcast"] == 7.0, seen)
    check(seen["parts"] == [10.0 + i for i in range(size)], seen)
    check(seen["objects"] == [f"from {i}" for i in range(size)], seen)


def test_world_with_either_as_rank_0():
    for commands in ([cpp_peer, python_peer], [python_peer, cpp_peer], [python_peer, cpp_peer, python_peer, cpp_peer]):
        for seen in run_ranks([command("world") for command in commands]):
            expect_used(seen["all"], len(commands))
            if "label" in seen["all"]:
                check(seen["all"]["label"] == "all:cpu", seen)


def test_world_with_pythons_comparing_wrapper():
    for commands in ([cpp_peer, python_peer], [python_peer, cpp_peer]):
        detail = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
        for seen in run_ranks([command("world") for command in commands], detail):
            expect_used(seen["all"], 2)


def test_custom_group_with_either_as_rank_0():
    for commands in ([cpp_peer, python_peer], [python_peer, cpp_peer]):
        for seen in run_ranks([command("custom", "graft") for command in commands]):
            expect_used(seen["custom"], 2)


def test_subgroup_of_a_world():
    seen = run_ranks([cpp_peer("subgroup", "1"), python_peer("subgroup", "1"), python_peer("subgroup", "1")])
    for rank, one in enumerate(seen):
        expect_used(one["all"], 3)
        if rank < 2:
            expect_used(one["part"], 2)


def torchrun(script, ranks):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--master-addr"]
    command += ["127.0.0.1", "--master-port", str(free_port()), "--no-python", "bash", "-c", script]
    result = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    check(result.returncode == 0, result.stdout, result.stderr)
    return result


def test_torchrun_alone():
    result = torchrun(f"{PEER} own", 2)
    lines = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
    check(len(lines) == 2, result.stdout, result.stderr)
    for seen in lines:
        expect_used(seen["own"], 2)
        check(seen["prefix"] == "dbg/attempt_0", seen)
    check("Address already in use" not in result.stderr, result.stderr)


def expect_labelled(text, ranks):
    for part in ("tp:device", "tp:cpu", "pp:device", "pp:cpu"):
        check(f"group_desc of the backend = {part}" in text, part, text)
    check(text.count("sum of ranks: ") == 2 * ranks, text)


def test_example_label_groups():
    example = BINARY_DIR / "examples/label_groups"
    if not example.exists():
        print(f"SKIPPED: {example} is not built")
        return
    environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    alone = subprocess.run([example], env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    check(alone.returncode == 0, alone.stdout, alone.stderr)
    expect_labelled(alone.stdout, 1)
    four = torchrun(str(example), 4).stdout
    expect_labelled(four, 4)
    # tp is {0, 1} and {2, 3}; pp {0, 2} and {1, 3}.
    for total in (1, 5, 2, 4):
        check(four.count(f"sum of ranks: {total}\n") == 2, total, four)
    # An odd last rank is in no group.
    expect_labelled(torchrun(str(example), 3).stdout, 2)


def test_torchrun_mixed():
    for cpp_rank in (0, 1):
        script = f'if [ "$RANK" = {cpp_rank} ]; then {PEER} world; else {sys.executable} {__file__} peer world; fi'
        result = torchrun(script, 2)
        lines = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
        check(len(lines) == 2, result.stdout, result.stderr)
        for seen in lines:
            expect_used(seen["all"], 2)


def in_process(code):
    """Runs Python code with the library loaded beside torch."""
    environment = dict(os.environ, RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
    preamble = f"""
import ctypes, torch, torch.distributed as dist
library = ctypes.CDLL({str(LIBRARY)!r})
"""
    result = subprocess.run(
        [sys.executable, "-c", preamble + code], env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS
    )
    check(result.returncode == 0, result.stdout, result.stderr)


def test_python_reads_the_label_after_adopt():
    in_process("""
dist.init_process_group("gloo")
group = dist.group.WORLD
assert group.group_desc != "tp:device", group.group_desc
assert library.group_library_adopt(group.group_name.encode(), b"tp") == 0
assert group.group_desc == "tp:device", group.group_desc
assert library.group_library_drop() == 0
dist.all_reduce(torch.ones(1))
dist.destroy_process_group()
""")


def test_python_resolves_a_group_made_in_cpp():
    in_process("""
from torch._C._distributed_c10d import _resolve_process_group
assert library.group_library_create(b"tp") == 0
group = _resolve_process_group("tp:cpu@0.g0")
assert group.group_desc == "tp:cpu", group.group_desc
assert (group.rank(), group.size()) == (0, 1)
del group
assert library.group_library_drop() == 0
""")


# Runs an analyzer from a folder of its own in place of the one that the installed torch brings.
ANALYZER = """
import importlib.util, sys, torch.distributed
folder = sys.argv.pop(1)
name = "torch.distributed.flight_recorder"
if folder:
    spec = importlib.util.spec_from_file_location(name, folder + "/__init__.py", submodule_search_locations=[folder])
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
from torch.distributed.flight_recorder.fr_trace import main
main(sys.argv[1:])
"""


def analyzer_test():
    """Apart from the others: 2.15's analyzer knows gloo, 2.11's refuses it."""
    analyzer = os.environ.get("DBG_TEST_FR_ANALYZER_DIR", "")
    if not os.path.isdir(analyzer):
        analyzer = ""
    with tempfile.TemporaryDirectory() as folder:
        seen = run_ranks([cpp_peer("hang", folder)] * 4)
        check([one.get("hang") for one in seen] == ["timed out"] * 3 + [None], seen)
        result = subprocess.run(
            [sys.executable, "-c", ANALYZER, analyzer, "--prefix", "trace_", folder],
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
        )
        said = result.stdout + result.stderr
        if not analyzer and "name formatting error? gloo" in said:
            print("SKIPPED: this torch's analyzer knows no gloo; DBG_FR_ANALYZER_DIR names one that does")
            sys.exit(77)
        check(result.returncode == 0, said)
        check("tp:cpu@0-3.g0:tp:cpu" in said, said)
        check("missing ranks: {3}" in said, said)


def main():
    tests = [value for name, value in sorted(globals().items()) if name.startswith("test_")]
    chosen = sys.argv[1:]
    if chosen == ["analyzer"]:
        tests = [analyzer_test]
        chosen = []
    failed = []
    for test in tests:
        if chosen and test.__name__ not in chosen:
            continue
        try:
            test()
            print("passed", test.__name__, flush=True)
        except Exception as error:  # all are reported
            failed.append(test.__name__)
            print("FAILED", test.__name__, type(error).__name__, error, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["peer"]:
        run_peer(*sys.argv[2:])
    else:
        sys.exit(main())
