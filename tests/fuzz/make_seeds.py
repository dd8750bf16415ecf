# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of the codec's fuzz targets that come from Python: small real files of torch.save, pickle and
safetensors. Run by hand when a kind of file is added: make_seeds.py tests/fuzz/seeds"""

import collections
import io
import pathlib
import pickle
import sys
import warnings

import safetensors.torch
import torch


class Opaque:
    pass


def values():
    base = torch.arange(6, dtype=torch.float32)
    numbers = torch.view_as_complex(torch.arange(4, dtype=torch.float32).reshape(2, 2))
    tagged = torch.arange(2.0)
    tagged.note = 1
    loaded = torch.nn.Parameter(torch.arange(2.0))
    loaded.note = 1
    yield "plain", {"a": [1, -5, 2**40, 2**70, 0.5, "é", None, True], "t": ((), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4))}
    yield "tensors", [base, base[1:3], base.reshape(2, 3).t(), torch.tensor(1), torch.empty(0, 2)]
    yield "dtypes", [torch.zeros(2, dtype=torch.uint16), torch.ones(2).to(torch.float8_e5m2), torch.ones(1).bfloat16()]
    yield "wrapped", [torch.nn.Parameter(base), loaded, tagged, numbers.conj(), collections.OrderedDict(a=1)]
    yield "sparse", [torch.eye(2).to_sparse(), torch.eye(2).to_sparse_csr()]
    yield "others", [1j, torch.device("cuda", 1), torch.Size([1, 2]), "\udc80"]
    yield "refused", [b"x", {1}, frozenset([2]), bytearray(b"y"), Opaque(), {None: 1, (1,): 2}, torch.float32, "\ud800"]


def main(folder):
    warnings.simplefilter("ignore")
    # Without checksums: what is changed shall get past them.
    torch.serialization.set_crc32_options(False)
    folder = pathlib.Path(folder)
    for name in ("record", "pickle", "safetensors"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for name, value in values():
        for protocol in (2, 4):
            zipped, stream = io.BytesIO(), io.BytesIO()
            torch.save(value, zipped, pickle_protocol=protocol)
            torch.save(value, stream, pickle_protocol=protocol, _use_new_zipfile_serialization=False)
            if protocol == 2 or name == "refused":
                (folder / "record" / f"torch-{name}-{protocol}.pt").write_bytes(zipped.getvalue())
            (folder / "record" / f"stream-{name}-{protocol}.pt").write_bytes(stream.getvalue())
            (folder / "pickle" / f"{name}-{protocol}.pkl").write_bytes(pickle.dumps(value, protocol=protocol))
    (folder / "pickle" / "payload-5.pkl").write_bytes(pickle.dumps((torch.arange(3.0), {"k": bytearray(3)}), protocol=5))
    tensors = {"a": torch.zeros(2, 3), "b": torch.ones(2, dtype=torch.bfloat16), "e": torch.empty(0, 2), "s": torch.tensor(1)}
    safetensors.torch.save_file(tensors, folder / "safetensors" / "small.safetensors", metadata={"format": "pt"})
    safetensors.torch.save_file({}, folder / "safetensors" / "none.safetensors")
    more = {"f8": torch.ones(2).to(torch.float8_e4m3fn), "c": torch.ones(1, dtype=torch.complex64)}
    safetensors.torch.save_file(more, folder / "safetensors" / "more.safetensors")


if __name__ == "__main__":
    main(*sys.argv[1:])
