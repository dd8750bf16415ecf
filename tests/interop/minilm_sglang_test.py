# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
# SGLang's unmodified comparator reads our folders: against themselves, against the folder of its own dumper, and with
# tensors that two tp ranks hold in parts.
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from minilm_peer import SOURCE, dumping, run_minilm, run_twin, skip, wait_for
from minilm_reference import POINTS_PER_STEP

THRESHOLD = "1e-4"
SGLANG = pathlib.Path(os.environ["DBG_TEST_SGLANG_DIR"])
SHARD_PROGRAM = pathlib.Path(os.environ["DBG_TEST_BINARY_DIR"]) / "tests/interop/minilm_shards"

failures = []


def compare(what, baseline, target, passes, at_least=60):
    """Runs the comparator as its users do, and holds its summary and its exit status against `passes`."""
    result = subprocess.run(
        [sys.executable, "-m", "sglang.srt.debug_utils.comparator", "--baseline-path", baseline, "--target-path", target,
         "--diff-threshold", THRESHOLD, "--allow-skipped-pattern", "^$", "--output-format", "json", "--report-path", ""],
        env={**os.environ, "PYTHONPATH": str(SGLANG)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    lines = [json.loads(line) for line in result.stdout.decode().splitlines() if line.startswith("{")]
    summary = next((line for line in lines if line.get("type") == "summary"), None)
    if summary is None:
        failures.append(what)
        print(f"FAILED: {what}: no summary, status {result.returncode}: {result.stderr.decode()[-2000:]}")
        return
    counts = {key: summary[key] for key in ("total", "passed", "failed", "skipped", "errored")}
    clean = counts["passed"] == counts["total"] >= at_least and result.returncode == 0
    if passes:
        good = clean
    else:
        good = result.returncode != 0 and counts["failed"] > 0 and counts["skipped"] == counts["errored"] == 0
    worst = max((line["diff"]["rel_diff"] for line in lines if line.get("diff")), default=None)
    print(f"{'' if good else 'FAILED: '}{what}: {counts}, status {result.returncode}, largest rel_diff {worst}")
    if not good:
        failures.append(what)
        for line in [line for line in lines if line.get("type", "").startswith("comparison")][:3]:
            print("   ", json.dumps(line)[:600])


def main():
    if not (SGLANG / "sglang/srt/debug_utils/dumper.py").exists():
        skip(f"no SGLang debug tools in {SGLANG}; `cmake/bootstrap.sh --full` unpacks them")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        # One padded batch; the comparator takes a tenth of a second a tensor.
        lines = (SOURCE / "examples/minilm/sentences.txt").read_text(encoding="utf-8").splitlines()[:8]
        sentences = folder / "sentences.txt"
        sentences.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        twins = [run_twin(folder, "twin", [sentences, 8])]
        twins += [run_twin(folder, "twin-tp", [sentences, 8, rank, folder / "store"]) for rank in (0, 1)]
        run_minilm(["--sentences", sentences], env=dumping(folder, "ours"))
        run_minilm(["--sentences", sentences, "--fault", "layer-order", "--fault-layer", 2], env=dumping(folder, "wrong"))
        for target, arguments in (("ours-tp", []), ("swapped-tp", ["swapped"])):
            subprocess.run([SHARD_PROGRAM, folder / "ours", folder, target, *arguments], check=True)
        wait_for(*twins)

        count = {name: len(list((folder / name).glob("*.pt"))) for name in ("ours", "twin", "ours-tp", "twin-tp")}
        if not (count["ours"] == count["twin"] == POINTS_PER_STEP and count["ours-tp"] == count["twin-tp"] == 60):
            failures.append(f"numbers of records: {count}")
        compare("our baseline against itself", folder / "ours", folder / "ours", passes=True)
        compare("our folder against SGLang's own", folder / "twin", folder / "ours", passes=True)
        compare("SGLang's own against our folder", folder / "ours", folder / "twin", passes=True)
        compare("the layer-order fault against SGLang's own", folder / "twin", folder / "wrong", passes=False)
        # 30 tensors in two parts each. Whole on one side, so that both sides putting them together wrongly is seen.
        compare("tp=2 shards, ours against SGLang's own", folder / "twin-tp", folder / "ours-tp", True, at_least=30)
        compare("our tp=2 shards against SGLang's whole tensors", folder / "twin", folder / "ours-tp", True, at_least=30)
        compare("tp=2 shards of ours with ranks swapped", folder / "twin-tp", folder / "swapped-tp", passes=False)
    print(f"failures: {failures}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
