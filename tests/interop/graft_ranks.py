# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
"""Starts the two sides of a graft, each of Python or of C++ ranks, and reads what they said and recorded."""

import collections
import json
import multiprocessing
import os
import pathlib
import subprocess
import time

import torch

from free_port import free_port

BINARY_DIR = pathlib.Path(os.environ.get("DBG_TEST_BINARY_DIR", "."))
SGLANG = os.environ.get("DBG_TEST_SGLANG_DIR", "")
CPP_PEER = BINARY_DIR / "tests/interop/graft_peer"
LIMIT_SECONDS = 120

# Python ranks are copies of one process that has imported torch.
_python = multiprocessing.get_context("forkserver")
_python.set_forkserver_preload(["torch", "torch.distributed"])


def check(condition, *what):
    if not condition:
        raise AssertionError(" ".join(str(one) for one in what))


class Rank:
    """A started rank; what it prints goes to a file, so that none waits for a reader."""

    def __init__(self, name, log, process):
        self.name, self.log, self.process = name, log, process

    def code(self):
        """The exit status, None while it runs."""
        return self.process.poll() if isinstance(self.process, subprocess.Popen) else self.process.exitcode

    def kill(self):
        if self.code() is None:
            self.process.kill()

    def text(self):
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def said(self):
        lines = (line for line in self.text().splitlines() if line.startswith("{"))
        return [json.loads(line) for line in lines]


class Side:
    """What is to be started as one role: `words` for graft_peer, `settings` beyond the usual, and whether as threads."""

    def __init__(self, language, count, words, threads=False, **settings):
        self.language, self.count, self.words = language, count, list(map(str, words))
        self.threads, self.settings = threads, settings


def environment_of(folder, role, sides, port):
    return {
        "MASTER_ADDR": "127.0.0.1",
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "GRAFT_PEER_STORE": str(folder / f"store_{role}"),
        "GRAFT_PEER_SGLANG": SGLANG,
        "DUMPER_ENABLE": "1",
        "DUMPER_DIR": str(folder),
        # Without a name the twin would agree on one by a device that is not here.
        "DUMPER_EXP_NAME": role,
        "DUMPER_ENABLE_OUTPUT_CONSOLE": "0",
        "DUMPER_GRAFTER_ENABLE": "1",
        "DUMPER_GRAFTER_ROLE": role,
        "DUMPER_GRAFTER_B2T_FILTER": "name.startswith('b2t_')",
        "DUMPER_GRAFTER_T2B_FILTER": "name.startswith('t2b_')",
        "DUMPER_GRAFTER_MASTER_ADDRESS": "127.0.0.1",
        "DUMPER_GRAFTER_MASTER_PORT": str(port),
        "DUMPER_GRAFTER_BASELINE_WORLD_SIZE": str(sides["baseline"].count),
        "DUMPER_GRAFTER_TARGET_WORLD_SIZE": str(sides["target"].count),
        "DUMPER_GRAFTER_BACKEND": "gloo",
        "DUMPER_GRAFTER_TIMEOUT": "60",
    }


def start(folder, baseline, target):
    """Starts both sides; returns their ranks by role. A side of threads is one process."""
    sides = {"baseline": baseline, "target": target}
    port = free_port()
    ranks = collections.defaultdict(list)
    for role, side in sides.items():
        usual = environment_of(folder, role, sides, port)
        for rank in range(1 if side.threads else side.count):
            name = f"{role} {rank} ({side.language})"
            log = folder / f"{role}_{rank}.log"
            own = {**usual, "RANK": str(rank), "WORLD_SIZE": str(side.count), "LOCAL_RANK": str(rank)}
            own.update({f"DUMPER_{key.upper()}": str(value) for key, value in side.settings.items()})
            if side.language == "python":
                import graft_peer

                process = _python.Process(target=graft_peer.run, args=(own, side.words, str(log)), daemon=True)
                process.start()
            else:
                clean = {key: value for key, value in os.environ.items() if not key.startswith("DUMPER_")}
                if side.threads:
                    own["GRAFT_PEER_THREADS"] = str(side.count)
                with open(log, "wb") as file:
                    process = subprocess.Popen(
                        [CPP_PEER, *side.words], env={**clean, **own}, stdout=file, stderr=subprocess.STDOUT)
            ranks[role].append(Rank(name, log, process))
    return ranks


def wait(ranks, expected=None):
    """Waits for all of them; each must end with 0, or as `expected` says by name. The others are killed on failure."""
    deadline = time.monotonic() + LIMIT_SECONDS
    try:
        for rank in ranks:
            rank.process.join(deadline - time.monotonic()) if not isinstance(
                rank.process, subprocess.Popen) else rank.process.wait(deadline - time.monotonic())
            wanted = (expected or {}).get(rank.name, 0)
            check(rank.code() == wanted, f"{rank.name} ended with {rank.code()}, not {wanted}:\n{rank.text()}")
    except subprocess.TimeoutExpired:
        check(False, f"{rank.name} did not end within {LIMIT_SECONDS} s:\n{rank.text()}")
    finally:
        for rank in ranks:
            rank.kill()


def wait_for_text(rank, text):
    """Until the rank has printed it; this is how a test knows where a rank is."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while text not in rank.text():
        check(rank.code() is None and time.monotonic() < deadline, f"{rank.name} never said {text}:\n{rank.text()}")
        time.sleep(0.002)


def run(folder, baseline, target):
    """Both sides from start to end; returns their ranks by role."""
    folder.mkdir()
    ranks = start(folder, baseline, target)
    wait([rank for side in ranks.values() for rank in side])
    return ranks


def records(folder, role):
    """What a side recorded: (name, rank) -> the tensors, in order."""
    found = collections.defaultdict(list)
    read = [torch.load(path, weights_only=False) for path in (folder / role).glob("*.pt")]
    for record in sorted(read, key=lambda record: record["meta"].get("dump_index", 0)):
        found[record["meta"]["name"], record["meta"]["rank"]].append(record["value"])
    return found


def same(a, b):
    """Bit by bit, of any dtype."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False

    def raw(tensor):
        tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
        return tensor.reshape(-1).view(torch.uint8) if tensor.numel() else tensor

    return torch.equal(raw(a), raw(b))
