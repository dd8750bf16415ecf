# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
"""The trusted run: all-MiniLM-L6-v2 as transformers computes it, dumped by SGLang's own dumper, unmodified.

It has the dump points of examples/minilm that are the input of a layer, under the same names, and the result. What is
grafted from it, and whither, is decided by the environment alone.
"""

import os
import sys

import torch
import transformers


def embed(model_folder, sentences, batch_size, dumper):
    """Dumps `embeddings`, `ffn_norm` of each layer and `embedding`, a step a batch."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_folder)
    model = transformers.BertModel.from_pretrained(model_folder, attn_implementation="eager").eval()

    def dump_output(module, name, **tags):
        module.register_forward_hook(lambda _, args, output: dumper.dump(name, output, **tags))

    dump_output(model.embeddings.LayerNorm, "embeddings")
    for layer_id, layer in enumerate(model.encoder.layer):
        dump_output(layer.output.LayerNorm, "ffn_norm", layer_id=layer_id)
    with torch.no_grad():
        for begin in range(0, len(sentences), batch_size):
            batch = tokenizer(
                sentences[begin:begin + batch_size], padding=True, truncation=True, max_length=256, return_tensors="pt")
            hidden = model(**batch).last_hidden_state
            weight = batch["attention_mask"].unsqueeze(-1).to(hidden.dtype)
            pooled = (hidden * weight).sum(1) / weight.sum(1).clamp(min=1e-9)
            dumper.dump("embedding", torch.nn.functional.normalize(pooled, dim=1))
            dumper.step()


def run(settings, sglang, model_folder, sentences, batch_size, log, store):
    """The whole of a run, in a process of its own: the dumper reads the environment when it is imported."""
    os.environ.update(settings)
    with open(log, "wb", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.path.insert(0, sglang)
    # The grafter wants a default group, that of its own side: one rank.
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    from sglang.srt.debug_utils.dumper import dumper

    embed(model_folder, sentences, batch_size, dumper)
    sys.stdout.flush()
    # Not by the interpreter's end: with gloo's threads still there, torch aborts in it now and then.
    os._exit(0)
