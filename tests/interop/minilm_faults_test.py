# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
# Each fault in each layer it applies to: `dbg compare` names the dump it was put before, against our own baseline and
# against one that SGLang's dumper wrote from transformers, where rounding differs from the first layer on. With a run in
# bfloat16 as the noise, the faults that are larger than it are named, and the others are said to be below it.
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from minilm_peer import SOURCE, dumping, run_minilm, run_twin, wait_for

PROGRAM = pathlib.Path(os.environ["DBG_TEST_BINARY_DIR"]) / "src/cli/dbg"
SENTENCES = SOURCE / "examples/minilm/sentences.txt"
# What each fault must be found at, written down here a second time on purpose.
FAULTS = {
    "gelu-tanh": ("ffn_act", range(6)),
    "eps": ("attn_norm", range(6)),
    "mask": ("attn_probs", range(6)),
    "layer-order": ("attn_q", range(5)),
}

failures = []


def expect(condition, message):
    if not condition:
        failures.append(message)
        print(f"FAILED: {message}")


def compare(baseline, target):
    result = subprocess.run(
        [PROGRAM, "compare", baseline, target], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    text = result.stdout.decode()
    found = {what: re.search(rf"^first {what}: (.*)$", text, re.M) for what in ("other bits", "jump")}
    return result.returncode, found["other bits"] and found["other bits"][1], found["jump"] and found["jump"][1], (
        text + result.stderr.decode())


def check_faults(folder):
    for fault, (name, layers) in FAULTS.items():
        for layer in layers:
            arguments = ["--fault", fault, "--fault-layer", layer, "--sentences", SENTENCES]
            said = run_minilm(arguments, env=dumping(folder, f"{fault}-{layer}")).stdout.decode()
            place = f"{name} layer_id={layer}"
            expect(f"the first dump it changes is {place}\n" in said, f"{fault} {layer}: minilm does not name {place}")
            status, bits, jump, text = compare(folder / "baseline", folder / f"{fault}-{layer}")
            expect((status, bits, jump) == (1, f"step=0 rank=0 {place}", f"step=0 rank=0 {place}"),
                   f"{fault} {layer} against the baseline: {status}, bits {bits}, jump {jump}\n{text}")
            status, bits, jump, text = compare(folder / "transformers", folder / f"{fault}-{layer}")
            expect((status, jump) == (1, f"step=0 rank=0 {place}"),
                   f"{fault} {layer} against transformers: {status}, bits {bits}, jump {jump}\n{text}")


def check_noise(folder):
    """The noise of bfloat16 hides GELU and eps, not the mask or the order of layers."""
    for fault, (name, layers) in FAULTS.items():
        for layer in layers:
            result = subprocess.run(
                [PROGRAM, "compare", folder / "transformers", folder / f"{fault}-{layer}", "--noise", folder / "bfloat16",
                 "--json", "-"], stdout=subprocess.PIPE)
            report = json.loads(result.stdout)
            pairs, summary = report["pairs"], report["summary"]
            here = [pair for pair in pairs if pair["name"] == name and pair["tags"] == f"layer_id={layer}"][0]
            found = summary["first_beyond"] and pairs[summary["first_beyond"]["pair"]]
            place = found and (found["name"], found["tags"])
            if fault in ("mask", "layer-order"):
                expect(result.returncode == 1 and place == (name, f"layer_id={layer}"),
                       f"{fault} {layer} above the noise: {result.returncode}, beyond at {place}")
            else:
                expect(result.returncode == 0 and here["is_below_noise"] and "below the noise" in here["reason"],
                       f"{fault} {layer} below the noise: {result.returncode}, {here['reason']}")


def check_no_fault(folder):
    status, bits, jump, text = compare(folder / "baseline", folder / "again")
    expect(status == 0 and bits is None and "no difference: all 154 pairs" in text, f"baseline twice: {text}")
    status, bits, jump, text = compare(folder / "transformers", folder / "baseline")
    expect(jump is None or jump.startswith("none"), f"transformers against the baseline jumps: {text}")


def check_what_cannot_be_compared(folder):
    empty = folder / "empty"
    empty.mkdir()
    status, *_, text = compare(folder / "baseline", empty)
    expect(status == 2 and "holds no records" in text, f"an empty folder: {status} {text}")
    status, *_, text = compare(folder / "baseline", folder / "not-there")
    expect(status == 2 and "not-there" in text, f"a missing folder: {status} {text}")
    victim = sorted((folder / "again").glob("*name=attn_q__*.pt"))[0]
    victim.write_bytes(victim.read_bytes()[:1000])
    status, *_, text = compare(folder / "baseline", folder / "again")
    expect(status == 2 and victim.name in text, f"a cut record: {status} {text}")
    victim.unlink()
    status, *_, text = compare(folder / "baseline", folder / "again")
    expect(status == 1 and "only in the baseline: 1 records" in text, f"a missing record: {status} {text}")


def check_messages():
    for arguments, wanted in [
        (["--fault", "gelu"], "known are gelu-tanh, eps, mask, layer-order"),
        (["--fault", "eps"], "needs --fault-layer, 0 to 5"),
        (["--fault", "eps", "--fault-layer", "6"], "applies to layers 0 to 5"),
        (["--fault", "layer-order", "--fault-layer", "5"], "applies to layers 0 to 4"),
        (["--fault", "eps", "--fault-layer", "-1"], "applies to layers 0 to 5"),
        (["--fault-layer", "2"], "without --fault"),
        (["--fault", "mask", "--fault-layer", "2", "--batch", "1"], "nothing would differ"),
        (["--sentences", "not-there.txt"], "not-there.txt"),
    ]:
        result = run_minilm(["--sentences", SENTENCES, *arguments] if "--sentences" not in arguments else arguments,
                            check=False)
        text = result.stderr.decode()
        expect(result.returncode == 2 and text.startswith("minilm: ") and wanted in text,
               f"{arguments}: {result.returncode} {text!r}, wanted {wanted!r}")


def main():
    check_messages()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        wait_for(run_twin(folder, "transformers", [SENTENCES, 8]), run_twin(folder, "bfloat16", [SENTENCES, 8, "bfloat16"]))
        run_minilm(["--sentences", SENTENCES], env=dumping(folder, "baseline"))
        run_minilm(["--sentences", SENTENCES], env=dumping(folder, "again"))
        check_no_fault(folder)
        check_faults(folder)
        check_noise(folder)
        check_what_cannot_be_compared(folder)
    print(f"{sum(len(layers) for _, layers in FAULTS.values())} faults, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
