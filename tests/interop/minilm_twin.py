# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
# Writes a folder of records with SGLang's own dumper, unmodified, from the model in transformers.
#
# usage: minilm_twin.py SENTENCES BATCH            one rank, every point
#        minilm_twin.py SENTENCES BATCH bfloat16   the same, computed in that dtype
#        minilm_twin.py SENTENCES BATCH RANK STORE one rank of two, which dumps its shards of some points
import sys
import types

import torch
from minilm_reference import Reference

# name: (its axes with what is sharded, the part of rank r)
SHARDED_POINTS = {
    "attn_q": ("b s h[tp]", lambda x, r: x.chunk(2, dim=2)[r]),
    "attn_probs": ("b a[tp] q k", lambda x, r: x.chunk(2, dim=1)[r]),
    "attn_output": ("b s h[tp:partial]", lambda x, r: x * (0.25, 0.75)[r]),
    "attn_norm": ("b s h # tp:replicated", lambda x, r: x),
    "ffn_act": ("b s f[tp]", lambda x, r: x.chunk(2, dim=2)[r]),
}


def stand_in_for_megatron(rank):
    """SGLang's dumper reads parallel ranks from megatron; this is as much of one as it asks for."""

    class ParallelState(types.ModuleType):
        def __getattr__(self, name):
            if not name.startswith("get_"):
                raise AttributeError(name)
            is_tp = name.startswith("get_tensor_model_parallel_")
            return lambda: (2 if is_tp else 1) if name.endswith("_size") else (rank if is_tp else 0)

    core = types.ModuleType("megatron.core")
    core.parallel_state = ParallelState("megatron.core.parallel_state")
    packed = types.ModuleType("megatron.core.packed_seq_params")
    packed.PackedSeqParams = type("PackedSeqParams", (), {})
    for module in (types.ModuleType("megatron"), core, core.parallel_state, packed):
        sys.modules[module.__name__] = module


def main(sentences, batch, rank=None, store=None):
    dtype = torch.float32
    if rank == "bfloat16":
        dtype, rank = torch.bfloat16, None
    if rank is not None:
        rank = int(rank)
        stand_in_for_megatron(rank)
        torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    from sglang.srt.debug_utils.dumper import dumper

    def on_point(name, layer_id, value):
        tags = {} if layer_id is None else {"layer_id": layer_id}
        if rank is None:
            dumper.dump(name, value, **tags)
        elif name in SHARDED_POINTS:
            dims, part = SHARDED_POINTS[name]
            dumper.dump(name, part(value, rank).contiguous(), dims=dims, **tags)

    reference = Reference(on_point, dtype)
    with open(sentences, encoding="utf-8") as file:
        lines = file.read().splitlines()
    for begin in range(0, len(lines), int(batch)):
        reference.embed(lines[begin:begin + int(batch)])
        dumper.step()
    if rank is not None:
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
