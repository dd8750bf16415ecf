# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of graft_wire_fuzz: payloads as the Python twin's all_gather_object pickles them, one byte in
front that says that a payload follows (graft_wire_fuzz.cpp). tests/graft reads them too. Run by hand:
make_graft_seeds.py tests/fuzz/seeds"""

import pathlib
import pickle
import sys

import torch


def payloads():
    base = torch.arange(12, dtype=torch.float32)
    yield "plain", (base.reshape(3, 4), {"scale": 0.5, "rank": 1, "list": [1, (2, None)]})
    yield "none-extras", (base, None)
    yield "view", (base[2:8].reshape(2, 3).t(), None)
    yield "parameter", (torch.nn.Parameter(base[:4]), {})
    yield "fp8", (base[:4].to(torch.float8_e4m3fn), None)
    yield "uint16", (base[:4].to(torch.uint16), None)
    yield "bf16", (base[:4].bfloat16(), None)
    yield "complex", (torch.view_as_complex(base.reshape(6, 2)).conj(), None)
    yield "scalar", (torch.tensor(2.5), None)
    yield "empty", (torch.empty(0, 3), None)
    yield "refused-extras", (base[:2], {"set": {1}, "bytes": b"x"})
    yield "no-tensor", ([1, 2], None)
    yield "receiver", None


def main(folder):
    folder = pathlib.Path(folder) / "graft"
    folder.mkdir(parents=True, exist_ok=True)
    for name, payload in payloads():
        for protocol in (2, 4):
            (folder / f"{name}-{protocol}.bin").write_bytes(b"p" + pickle.dumps(payload, protocol=protocol))
    # As if it had come from another machine's fourth GPU.
    torch.serialization.location_tag = lambda storage: "cuda:3"
    (folder / "cuda3-4.bin").write_bytes(b"p" + pickle.dumps((torch.arange(4.0), {"k": 1}), protocol=4))


if __name__ == "__main__":
    main(*sys.argv[1:])
