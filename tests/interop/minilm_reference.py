# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
# all-MiniLM-L6-v2 as transformers computes it, unmodified, with its intermediate values under the names of our dumps.
import torch
import transformers

from minilm_peer import MAX_LENGTH, MODEL, load_tokenizer

# In the order of dumping.
LAYER_POINTS = [
    "attn_q", "attn_k", "attn_v", "attn_scores", "attn_probs", "attn_context", "attn_output", "attn_norm",
    "ffn_up", "ffn_act", "ffn_down", "ffn_norm",
]
POINTS_PER_STEP = 3 + 6 * len(LAYER_POINTS) + 2


class Reference:
    """Calls `on_point(name, layer or None, tensor)` for each value, in the order of the computation.

    All but three kinds are what a module of BertModel took or returned, caught by a forward hook. `attn_scores` is
    computed here from the caught q and k, since eager attention returns only what is after the softmax; `pooled` and
    `embedding` are what sentence-transformers' two modules after the encoder do.
    """

    def __init__(self, on_point, dtype=torch.float32):
        self.on_point = on_point
        self.tokenizer = load_tokenizer()
        self.model = transformers.BertModel.from_pretrained(MODEL, attn_implementation="eager", dtype=dtype)
        self.model.eval()
        norm = self.model.embeddings.LayerNorm
        norm.register_forward_pre_hook(lambda _, args: self.on_point("embeddings_sum", None, args[0]))
        self._hook(norm, "embeddings", None)
        for layer_id, layer in enumerate(self.model.encoder.layer):
            self._hook_attention(layer.attention.self, layer_id)
            self._hook(layer.attention.output.dense, "attn_output", layer_id)
            self._hook(layer.attention.output.LayerNorm, "attn_norm", layer_id)
            self._hook(layer.intermediate.dense, "ffn_up", layer_id)
            self._hook(layer.intermediate, "ffn_act", layer_id)
            self._hook(layer.output.dense, "ffn_down", layer_id)
            self._hook(layer.output.LayerNorm, "ffn_norm", layer_id)

    def _hook(self, module, name, layer_id):
        module.register_forward_hook(lambda _, args, output: self.on_point(name, layer_id, output))

    def _hook_attention(self, module, layer_id):
        caught = {}

        def catch(name):
            def hook(_, args, output):
                caught[name] = output
                self.on_point(name, layer_id, output)
            return hook

        def after(_, args, output):
            context, probs = output

            def by_head(x):
                return x.view(*x.shape[:2], module.num_attention_heads, -1).transpose(1, 2)

            scores = torch.matmul(by_head(caught["attn_q"]), by_head(caught["attn_k"]).transpose(2, 3)) * module.scaling
            self.on_point("attn_scores", layer_id, scores)
            self.on_point("attn_probs", layer_id, probs)
            self.on_point("attn_context", layer_id, context)

        module.query.register_forward_hook(catch("attn_q"))
        module.key.register_forward_hook(catch("attn_k"))
        module.value.register_forward_hook(catch("attn_v"))
        module.register_forward_hook(after)

    @torch.no_grad()
    def embed(self, sentences):
        """One step: the embeddings of one batch."""
        batch = self.tokenizer(
            sentences, padding=True, truncation=True, max_length=MAX_LENGTH, return_tensors="pt")
        self.on_point("input_ids", None, batch["input_ids"])
        hidden = self.model(**batch).last_hidden_state
        weight = batch["attention_mask"].unsqueeze(-1).expand(hidden.size()).to(hidden.dtype)
        pooled = (hidden * weight).sum(1) / torch.clamp(weight.sum(1), min=1e-9)
        self.on_point("pooled", None, pooled)
        embedding = torch.nn.functional.normalize(pooled, p=2, dim=1)
        self.on_point("embedding", None, embedding)
        return embedding
