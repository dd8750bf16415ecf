# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
"""Finds the faulty layer of a C++ model by grafting: puts the input of one layer after another from a trusted Python run
into the C++ run while both run, and sees from which layer on the result comes right.

    python examples/graft_minilm/run.py [--fault gelu-tanh|eps|mask|layer-order|none] [--fault-layer 0..5]

The baseline is transformers' BertModel with SGLang's unmodified dumper, the target examples/minilm with a planted fault.
The python that runs this needs torch and transformers: `cmake/bootstrap.sh --full` makes such a one, build/venv/bin/python3,
and fetches SGLang's debug tools and the model to the places that are the defaults here.
"""

import argparse
import multiprocessing
import os
import pathlib
import socket
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
LAYERS = 6
LIMIT_SECONDS = 300
# Grafted behind the fault only rounding is left: of a result whose values are below 1, a few times float32's own step.
ROUNDING = 1.2e-7
CLEAR_FACTOR = 5.0


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fault", default="mask", help="gelu-tanh, eps, mask (default), layer-order or none")
    parser.add_argument("--fault-layer", type=int, default=3, help="the layer it is put into, from 0 (default 3)")
    parser.add_argument("--program", type=pathlib.Path, default=SOURCE / "build/release/examples/minilm/minilm")
    parser.add_argument("--model", type=pathlib.Path, default=SOURCE / "build/models/all-MiniLM-L6-v2")
    parser.add_argument("--sglang", type=pathlib.Path, default=SOURCE / "build/peers/sglang-0.5.14",
                        help="folder that holds sglang/srt/debug_utils")
    parser.add_argument("--sentences", type=pathlib.Path, default=SOURCE / "examples/minilm/sentences.txt")
    parser.add_argument("--batch", type=int, default=8)
    arguments = parser.parse_args()
    for path, what in ((arguments.program, "cmake --build build/release --target minilm makes it"),
                       (arguments.model / "model.safetensors", "cmake/bootstrap.sh --model fetches it"),
                       (arguments.sglang / "sglang/srt/debug_utils/dumper.py", "cmake/bootstrap.sh --full unpacks it"),
                       (arguments.sentences, "--sentences names another file")):
        if not path.exists():
            parser.error(f"{path} is not there; {what}")
    return arguments


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def place_of(layer):
    """The dump that is the input of a layer; of `LAYERS`, that of the pooling."""
    if layer == 0:
        return "embeddings", "name == 'embeddings'"
    return f"ffn_norm layer_id={layer - 1}", f"name == 'ffn_norm' and layer_id == {layer - 1}"


def settings_of(role, folder, graft_filter, port):
    settings = {
        "DUMPER_ENABLE": "1",
        "DUMPER_DIR": str(folder),
        "DUMPER_EXP_NAME": role,
        "DUMPER_FILTER": "name in ('embeddings', 'ffn_norm', 'embedding')",
        "DUMPER_ENABLE_OUTPUT_CONSOLE": "0",
    }
    if graft_filter is None:
        return settings
    return {
        **settings,
        "DUMPER_GRAFTER_ENABLE": "1",
        "DUMPER_GRAFTER_ROLE": role,
        "DUMPER_GRAFTER_B2T_FILTER": graft_filter,
        "DUMPER_GRAFTER_MASTER_ADDRESS": "127.0.0.1",
        "DUMPER_GRAFTER_MASTER_PORT": str(port),
        "DUMPER_GRAFTER_BASELINE_WORLD_SIZE": "1",
        "DUMPER_GRAFTER_TARGET_WORLD_SIZE": "1",
        # SGLang's own default is nccl.
        "DUMPER_GRAFTER_BACKEND": "gloo",
        "DUMPER_GRAFTER_TIMEOUT": "120",
    }


def results(folder, role):
    import torch

    paths = sorted((folder / role).glob("*name=embedding__*.pt"), key=lambda path: int(path.name.split("___")[0][5:]))
    if not paths:
        sys.exit(f"the {role} recorded no result:\n{(folder / role).with_suffix('.log').read_text()}")
    return torch.cat([torch.load(path, weights_only=False)["value"] for path in paths])


def difference(arguments, python, folder, graft_filter):
    """Runs both sides; the largest difference of their results."""
    folder.mkdir()
    port = free_port()
    sentences = arguments.sentences.read_text(encoding="utf-8").splitlines()
    import baseline

    trusted = python.Process(target=baseline.run, args=(
        settings_of("baseline", folder, graft_filter, port), str(arguments.sglang), str(arguments.model), sentences,
        arguments.batch, str(folder / "baseline.log"), str(folder / "store")))
    trusted.start()
    command = [arguments.program, "--model", arguments.model, "--sentences", arguments.sentences, "--batch",
               str(arguments.batch)]
    if arguments.fault != "none":
        command += ["--fault", arguments.fault, "--fault-layer", str(arguments.fault_layer)]
    clean = {key: value for key, value in os.environ.items() if not key.startswith("DUMPER_")}
    try:
        with open(folder / "target.log", "wb") as log:
            target = subprocess.run(command, env={**clean, **settings_of("target", folder, graft_filter, port)},
                                    stdout=log, stderr=subprocess.STDOUT, timeout=LIMIT_SECONDS)
        if target.returncode == 0:
            trusted.join(LIMIT_SECONDS)
    finally:
        if trusted.is_alive():
            trusted.kill()
    if target.returncode != 0 or trusted.exitcode != 0:
        for role in ("baseline", "target"):
            print((folder / f"{role}.log").read_text()[-2000:], file=sys.stderr)
        sys.exit(f"the target ended with {target.returncode}, the baseline with {trusted.exitcode}")
    ours, theirs = results(folder, "target"), results(folder, "baseline")
    return (ours - theirs).abs().max().item()


def faulty_layer(grafted):
    """The last layer whose input does not make the result right while its output does; None where no layer is like that.

    `grafted[i]` is the final difference with the input of layer i grafted, `grafted[LAYERS]` with that of the pooling.
    """
    for layer in reversed(range(LAYERS)):
        if grafted[layer] > CLEAR_FACTOR * max(ROUNDING, grafted[layer + 1]):
            return layer
    return None


def main():
    arguments = parse_arguments()
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    os.environ["OMP_NUM_THREADS"] = "1"
    # The baselines end without Python's own clean-up, which it would remark on.
    os.environ["PYTHONWARNINGS"] = "ignore:resource_tracker:UserWarning"
    # Importing transformers takes longer than a run: each baseline is a copy of a process that has.
    python = multiprocessing.get_context("forkserver")
    python.set_forkserver_preload(["baseline"])
    with tempfile.TemporaryDirectory() as name:
        ungrafted = difference(arguments, python, pathlib.Path(name, "ungrafted"), None)
        planted = "no fault" if arguments.fault == "none" else f"{arguments.fault} in layer {arguments.fault_layer}"
        print(f"baseline: transformers and SGLang's dumper; target: examples/minilm with {planted}\n")
        print("| grafted at | the input of | final difference |\n|---|---|---|")
        print(f"| nothing | | {ungrafted:.2e} |", flush=True)
        grafted = []
        for layer in range(LAYERS + 1):
            place, graft_filter = place_of(layer)
            grafted.append(difference(arguments, python, pathlib.Path(name, str(layer)), graft_filter))
            after = f"layer {layer}" if layer < LAYERS else "the pooling"
            print(f"| {place} | {after} | {grafted[-1]:.2e} |", flush=True)
    layer = faulty_layer(grafted)
    if layer is not None:
        print(f"\nthe result comes right when grafted behind layer {layer}, not before: the fault is in layer {layer}")
    else:
        print("\nno layer is at fault")
    return 0


if __name__ == "__main__":
    sys.exit(main())
