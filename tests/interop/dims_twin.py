# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
"""Answers for the C++ side with SGLang's own functions: how a dims text parses, and what shards make together.

Reads FOLDER/shards.json; writes FOLDER/parsed.json and FOLDER/unsharded.json.
"""

import json
import pathlib
import random
import sys

sys.path.insert(0, sys.argv[2])

import torch
from sglang.srt.debug_utils.comparator.aligner.entrypoint.executor import execute_sub_plans
from sglang.srt.debug_utils.comparator.aligner.entrypoint.planner import compute_per_step_sub_plans
from sglang.srt.debug_utils.comparator.dims_spec import apply_dim_names, parse_dims, resolve_dim_names

AXES = ["tp", "cp", "ep", "sp", "dp", "etp", "edp", "attn_tp", "attn_dp", "moe_ep", "moe_tp", "moe_dp",
        "recompute_pseudo"]


def random_text(rng):
    """A text that is nearly always of the language, or nearly so."""
    def odd(right, *wrong):
        return rng.choice(wrong) if rng.random() < 0.03 else right

    def modifier():
        text = odd(rng.choice(AXES), "pp", "", "TP", "tp2")
        words = rng.choices(["zigzag", "natural", "partial", "sharded", ""], k=rng.choice([0, 0, 0, 1, 1, 2, 3]))
        return text + (":" + odd("+", ",", "-").join(words) if words or rng.random() < 0.1 else "")

    def dim():
        name = odd(rng.choice(["b", "s", "t", "h", "d", "num_heads", "_x", "h2"]), "2", "h-d", "", "1x", "a.b")
        if rng.random() < 0.1:
            return odd("1", "11", "1[tp]")
        if rng.random() < 0.25:
            subs = [name] + rng.sample(["x", "y", "z1", "w"], rng.randint(1, 2))
            name = "(" + odd("*", "+", "**", " * ").join(subs) + odd(")", "", "))")
        if rng.random() < 0.5:
            name += odd("[", "", "(") + ",".join(modifier() for _ in range(rng.choice([1, 1, 1, 2, 3]))) + odd("]", "", "]]")
        return name

    text = rng.choice([" ", "  ", "\t"]).join(dim() for _ in range(rng.randint(1, 4)))
    if rng.random() < 0.4:
        words = []
        for _ in range(rng.choice([0, 1, 1, 2, 3])):
            axis = odd(rng.choice(AXES), "pp", "", "a-b")
            words.append(odd(rng.choice([axis + ":replicated", "dp:=" + axis]), "tp", axis + ":sharded", "dp=" + axis, "#"))
        text += odd(" # ", "#", " ## ") + " ".join(words)
    return odd(text, "", " ", "#", "# tp:replicated")


def parsed(text):
    """The twin's reading, or None where it refuses, at once or as soon as the parts are used."""
    try:
        spec = parse_dims(text)
        dp_axis = spec.dp_axis.value
    except ValueError:
        return None
    axes = [modifier.axis for dim in spec.dims for modifier in dim.parallel_modifiers]
    if len(axes) != len(set(axes)):
        return None  # the planner then fails with a KeyError
    dims = []
    for dim in spec.dims:
        shards = [
            [m.axis.value, m.ordering is not None and m.ordering.value == "zigzag", m.reduction is not None]
            for m in dim.parallel_modifiers
        ]
        dims.append({"names": [] if dim.name == "1" else dim.sub_dims, "shards": shards})
    return {"dims": dims, "replicated": sorted(a.value for a in spec.replicated_axes), "dp": dp_axis}


def unsharded(case):
    names = resolve_dim_names(case["dims"])
    metas, tensors = [], []
    for shard in case["shards"]:
        info = {f"{axis}_rank": rank for axis, rank, _ in shard["place"]}
        info |= {f"{axis}_size": size for axis, _, size in shard["place"]}
        metas.append({"dims": case["dims"], "sglang_parallel_info": info, "step": 0})
        tensors.append(apply_dim_names(torch.tensor(shard["values"]).reshape(shard["shape"]), names))
    plans = compute_per_step_sub_plans(metas=metas, thd_global_seq_lens=case["sequence_lengths"] or None)
    result = execute_sub_plans(tensors=tensors, plans=plans)
    return {
        "shape": list(result.tensor.shape),
        "values": result.tensor.reshape(-1).tolist(),
        "failed_replicas": sum(not check.passed for check in result.checks)
    }


def main():
    folder = pathlib.Path(sys.argv[1])
    rng = random.Random(11)
    texts = [random_text(rng) for _ in range(10000)]
    (folder / "parsed.json").write_text(json.dumps([[text, parsed(text)] for text in texts]))
    cases = json.loads((folder / "shards.json").read_text())
    (folder / "unsharded.json").write_text(json.dumps([unsharded(case) for case in cases]))


main()
