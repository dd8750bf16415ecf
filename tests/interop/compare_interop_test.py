# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
"""`dbg compare` against SGLang's own comparator on the same folders: equal verdicts and rel_diff where the twin is right;
where it is not, the case is listed by name and NumPy decides. The records are written by the twin's dumper's format."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

SGLANG = pathlib.Path(os.environ["DBG_TEST_SGLANG_DIR"])
PROGRAM = pathlib.Path(os.environ["DBG_TEST_BINARY_DIR"]) / "src/cli/dbg"
THRESHOLD = 1e-3

try:
    import numpy
    import torch
except ImportError as error:
    print(f"SKIPPED: {error}")
    sys.exit(77)

failures = []


def expect(condition, message):
    if not condition:
        failures.append(message)
        print(f"FAILED: {message}")


class Run:
    """A folder of records; one file a rank and name."""

    def __init__(self, folder):
        self.folder = folder
        self.count = 0
        folder.mkdir(parents=True)

    def add(self, name, value, rank=0, step=0, dims=None, place=(), **tags):
        self.count += 1
        meta = {"name": name, "step": step, "rank": rank, "dump_index": self.count, **tags}
        if dims:
            meta["dims"] = dims
        if place:
            meta["sglang_parallel_info"] = {
                key: number for axis, r, n in place for key, number in ((f"{axis}_rank", r), (f"{axis}_size", n))}
        pairs = {"step": step, "rank": rank, "dump_index": self.count, "name": name, **tags}
        torch.save({"value": value, "meta": meta},
                   self.folder / ("___".join(f"{key}={text}" for key, text in pairs.items()) + ".pt"))


def write_agreed(baseline, target):
    """Cases in which the twin's verdict is right."""
    torch.manual_seed(1)
    x = torch.randn(6, 8)
    full = torch.randn(4, 8)
    baseline.add("equal", x); target.add("equal", x)
    baseline.add("near", x); target.add("near", x * 1.0001)
    baseline.add("far", x); target.add("far", x * 1.5)
    baseline.add("opposite", x); target.add("opposite", -x)
    baseline.add("shape", x); target.add("shape", x[:4])
    baseline.add("leading", x[None]); target.add("leading", x)
    baseline.add("empty", torch.empty(0, 3)); target.add("empty", torch.empty(0, 3))
    baseline.add("bf16", x); target.add("bf16", x.bfloat16())
    baseline.add("half_far", x.half()); target.add("half_far", (x * 2).half())
    baseline.add("integers", torch.arange(9)); target.add("integers", torch.arange(9))
    baseline.add("integers_far", torch.arange(9)); target.add("integers_far", torch.arange(9) * 3)
    baseline.add("number", 3); target.add("number", 3)
    baseline.add("text", "a"); target.add("text", "b")
    for layer in range(3):
        baseline.add("layered", x + layer, layer_id=layer); target.add("layered", x + layer, layer_id=layer)
    baseline.add("permuted", full, dims="s h"); target.add("permuted", full.t().contiguous(), dims="h s")
    baseline.add("fused", full.reshape(4, 2, 4), dims="s n d"); target.add("fused", full, dims="s (n*d)")
    cases = {
        "tp": ("s h[tp]", lambda r: full[:, 4 * r:4 * r + 4]),
        "tp_swapped": ("s h[tp]", lambda r: full[:, 4 * (1 - r):4 * (1 - r) + 4]),
        "tp_partial": ("s h[tp:partial]", lambda r: full * (0.25 if r == 0 else 0.75)),
        "tp_replicated": ("s h # tp:replicated", lambda r: full),
        "tp_odd": ("s h # tp:replicated", lambda r: full + 5 * r),
    }
    for name, (dims, shard) in cases.items():
        baseline.add(name, full, dims="s h")
        for rank in (0, 1):
            target.add(name, shard(rank), rank=rank, dims=dims, place=[("tp", rank, 2)])
    pieces = full.chunk(4, dim=0)
    baseline.add("cp_zigzag", full, dims="s h")
    for rank in (0, 1):
        target.add("cp_zigzag", torch.cat([pieces[rank], pieces[3 - rank]]), rank=rank, dims="s[cp:zigzag] h",
                   place=[("cp", rank, 2)])


def write_set_aside(baseline, target):
    """Cases in which the twin is wrong, with NumPy's word: are they equal within the threshold?"""
    nan, inf = float("nan"), float("inf")
    cases = {
        "nan_equal_places": (torch.tensor([1.0, nan]), torch.tensor([1.0, nan])),
        "inf_equal_places": (torch.tensor([inf, 2.0]), torch.tensor([inf, 2.0])),
        "nan_other_places": (torch.tensor([1.0, nan, 3.0]), torch.tensor([nan, 1.0, 3.0])),
        "imaginary_part": (torch.complex(torch.ones(3), torch.ones(3)), torch.complex(torch.ones(3), torch.full((3,), 9.0))),
        "int64_beyond_float": (torch.tensor([2**53]), torch.tensor([2**53 + 1])),
        "zeros": (torch.zeros(3), torch.zeros(3)),
    }
    verdicts = {}
    for name, (a, b) in cases.items():
        baseline.add(name, a); target.add(name, b)
        x, y = a.numpy(), b.numpy()
        exact = not numpy.issubdtype(x.dtype, numpy.inexact)
        verdicts[name] = bool(numpy.array_equal(x, y) if exact else numpy.allclose(x, y, rtol=1e-2, equal_nan=True))
    return verdicts


def verdicts_of_twin(baseline, target):
    result = subprocess.run(
        [sys.executable, "-m", "sglang.srt.debug_utils.comparator", "--baseline-path", baseline, "--target-path", target,
         "--diff-threshold", str(THRESHOLD), "--output-format", "json", "--report-path", ""],
        env={**os.environ, "PYTHONPATH": str(SGLANG)}, capture_output=True, text=True)
    verdicts = {}
    for line in result.stdout.splitlines():
        if not line.startswith("{"):
            continue
        one = json.loads(line)
        if not one.get("type", "").startswith("comparison"):
            continue
        if one["type"] == "comparison_tensor":
            diff = one.get("diff")
            passed = bool(diff and diff["passed"]) and all(check["passed"] for check in one.get("replicated_checks", []))
            verdicts.setdefault(one["name"], []).append((passed, diff["rel_diff"] if diff else None))
        elif one["type"] == "comparison_non_tensor":
            verdicts.setdefault(one["name"], []).append((one["values_equal"], None))
        else:
            verdicts.setdefault(one["name"], []).append((one["type"], None))
    if not verdicts:
        raise AssertionError(f"the twin compared nothing: {result.stderr[-2000:]}")
    return verdicts


def verdicts_of_dbg(baseline, target, *more):
    result = subprocess.run([PROGRAM, "compare", baseline, target, "--json", "-", *more], capture_output=True, text=True)
    report = json.loads(result.stdout)
    verdicts = {}
    for pair in report["pairs"]:
        rel = pair["difference"].get("rel_diff")
        verdicts.setdefault(pair["name"], []).append((pair["verdict"] in ("same bits", "passed"), rel))
    return verdicts, report


def main():
    if not (SGLANG / "sglang/srt/debug_utils/comparator").exists():
        print(f"SKIPPED: no SGLang debug tools in {SGLANG}; `cmake/bootstrap.sh --full` unpacks them")
        return 77
    rule = ["--rule", f".*: rel <= {THRESHOLD}"]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        runs = [Run(folder / side) for side in ("baseline", "target")]
        write_agreed(*runs)
        twin = verdicts_of_twin(*(run.folder for run in runs))
        ours, report = verdicts_of_dbg(*(run.folder for run in runs), *rule)
        expect(sorted(twin) == sorted(ours), f"names: twin {sorted(twin)}, dbg {sorted(ours)}")
        for case in sorted(set(twin) & set(ours)):
            expect([passed for passed, _ in twin[case]] == [passed for passed, _ in ours[case]],
                   f"{case}: the twin says {twin[case]}, dbg {ours[case]}")
            for (_, theirs), (_, mine) in zip(twin[case], ours[case]):
                if theirs is not None and isinstance(mine, float):
                    expect(abs(theirs - mine) <= 1e-9 + 1e-6 * abs(theirs), f"{case}: rel_diff {theirs} and {mine}")
        odd = [pair for pair in report["pairs"] if pair["name"] == "tp_odd"][0]["odd_replicas"]
        expect(len(odd) == 1 and {odd[0]["reference_rank"], odd[0]["odd_rank"]} == {0, 1}, f"odd replica {odd}")
        print(f"{len(ours)} names, {sum(map(len, ours.values()))} pairs of equal verdict")

        runs = [Run(folder / "aside" / side) for side in ("baseline", "target")]
        numpys = write_set_aside(*runs)
        twin = verdicts_of_twin(*(run.folder for run in runs))
        ours, _ = verdicts_of_dbg(*(run.folder for run in runs))
        for case, right in numpys.items():
            expect(ours[case][0][0] == right, f"{case}: NumPy says {right}, dbg {ours[case]}")
            print(f"set aside: {case}: NumPy {right}, dbg {ours[case][0][0]}, twin {twin.get(case)}")
    print(f"{len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
