# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
"""Writes files as Python peers do, each with what it holds spelled out in NAME.json, for the C++ reader to find."""

import collections
import importlib.util
import json
import os
import pathlib
import pickle
import struct
import sys
import warnings

import safetensors.torch
import torch

DTYPES = [
    "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex32", "complex64",
    "complex128", "bool", "bfloat16", "uint16", "uint32", "uint64", "float8_e5m2", "float8_e4m3fn",
    "float8_e5m2fnuz", "float8_e4m3fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2", "bits1x8", "bits2x4", "bits4x2",
    "bits8", "bits16",
]  # fmt: skip
SAME_WIDTH = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Opaque:
    def __init__(self):
        self.secret = [1, 2]


def patterned(shape, name):
    """A tensor whose bytes are a pattern of their own in every element."""
    dtype = getattr(torch, name)
    count = 1
    for size in shape:
        count *= size
    width = torch.empty(0, dtype=dtype).element_size()
    raw = torch.tensor([(37 * i + 11) % 251 for i in range(count * width)], dtype=torch.uint8)
    if name == "bool":
        raw = raw % 2
    return raw.view(dtype).reshape(shape) if name != "bool" else raw.bool().reshape(shape)


def tensor_bytes(tensor):
    """The elements in row-major order."""
    if tensor.numel() == 0:
        return b""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    width = tensor.element_size()
    plain = torch.view_as_real(tensor) if width == 16 else tensor.view(SAME_WIDTH[width])
    return plain.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def expect(value):
    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided:
            return {"kind": "sparse", "layout": str(value.layout), "dense": expect(value.to_dense())}
        return {
            "kind": "tensor",
            "dtype": str(value.dtype).removeprefix("torch."),
            "shape": list(value.shape),
            "stride": list(value.stride()),
            "hex": tensor_bytes(value).hex(),
        }
    if value is None:
        return {"kind": "none"}
    if isinstance(value, bool):
        return {"kind": "bool", "value": value}
    if isinstance(value, int):
        return {"kind": "int", "text": str(value)}
    if isinstance(value, float):
        return {"kind": "float", "bits": struct.pack(">d", value).hex()}
    if isinstance(value, complex):
        return {"kind": "complex", "real": expect(value.real), "imag": expect(value.imag)}
    if isinstance(value, torch.device):
        return {"kind": "device", "text": str(value)}
    if isinstance(value, str):
        return {"kind": "str", "hex": value.encode("utf-8", "surrogateescape").hex()}
    if isinstance(value, tuple):
        return {"kind": "tuple", "items": [expect(item) for item in value]}
    if isinstance(value, list):
        return {"kind": "list", "items": [expect(item) for item in value]}
    if isinstance(value, dict):
        return {"kind": "dict", "items": [[expect(key), expect(item)] for key, item in value.items()]}
    raise TypeError(type(value))


def containers():
    shared = [1, 2]
    point = collections.namedtuple("point", "x y")
    return {
        "ints": [0, 1, -1, 255, 256, 65535, 65536, -(2**31), 2**31, 2**63 - 1, -(2**63)],
        "floats": [0.0, -0.0, 1.5, float("inf"), float("nan"), 5e-324],
        "texts": ["", "a", "grüße", "日本語", "😀", "x" * 300, "y" * 70000, "raw \udc80\udcff"],
        "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)],
        "keys": {1: "int", True: "overwritten below", 2.5: "float", "s": None},
        "bools": {True: 1, False: 0},
        "complex": 1.5 - 2j,
        "nested": {"a": {"b": [{"c": (None, [True, {}])}]}},
        "ordered": collections.OrderedDict(b=1, a=2),
        "shared": [shared, shared],
        "many": [f"text {i}" for i in range(1000)],
        "device": [torch.device("cpu"), torch.device("cuda", 3)],
        "size": torch.Size([2, 3]),
        "point": tuple(point(1, 2)),
    }


def views():
    base = torch.arange(24, dtype=torch.float32)

    def numbers():  # of a storage of its own: torch.save refuses one that is seen as two dtypes
        return torch.view_as_complex(torch.arange(24, dtype=torch.float32).reshape(12, 2))

    tagged = torch.arange(3.0)
    tagged.note = "an attribute"
    loaded = torch.nn.Parameter(torch.arange(4.0))
    loaded.weight_loader = os.path.join
    return {
        "whole": base,
        "slice": base[5:9],
        "strided": base[1::3],
        "matrix": base.reshape(4, 6).t(),
        "expanded": base[3:4].expand(5, 1),
        "windows": base.as_strided((5, 4), (2, 1)),
        "channels_last": torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "scalar": torch.tensor(1.25),
        "empty": torch.empty(0, 3),
        "empty_slice": base.reshape(4, 6)[4:, 2:],
        "conj": numbers().conj(),
        "neg": numbers().conj().imag,
        "parameter": torch.nn.Parameter(torch.arange(6.0).reshape(2, 3)),
        "parameter_of_slice": torch.nn.Parameter(base[2:4], requires_grad=False),
        "parameter_with_attribute": loaded,
        "tensor_with_attribute": tagged,
        "leaf": torch.ones(2, requires_grad=True),
        "state": torch.nn.Linear(3, 2).state_dict(),
    }


def dtypes():
    return {name: [patterned((2, 3), name), patterned((), name), patterned((0, 2), name)] for name in DTYPES}


def sparse():
    dense = torch.tensor([[0.0, 1, 0, 2], [3, 0, 0, 4]])
    return {
        "coo": dense.to_sparse(),
        "uncoalesced": torch.sparse_coo_tensor([[1, 1, 0], [2, 2, 0]], [1.0, 2.0, 3.0], (2, 4)),
        "hybrid": torch.ones(2, 3, 2).to_sparse(1),
        "empty": torch.zeros(2, 2).to_sparse(),
        "csr": dense.to_sparse_csr(),
        "csc": dense.to_sparse_csc(),
        "bsr": dense.to_sparse_bsr((2, 2)),
        "bsc": dense.to_sparse_bsc((2, 2)),
    }


def refused():
    """A value, what is left of it, and what was refused."""
    cycle = [1]
    cycle.append(cycle)
    value = {
        "bytes": [1, b"xy", 2],
        "empty_bytes": b"",
        "bytearray": bytearray(b"x"),
        "set": {1, 2},
        "frozen": frozenset([1]),
        "big": (2**63, -(2**63) - 1, 2**500),
        "opaque": Opaque(),
        "function": os.path.join,
        "dtype": torch.float32,
        "quantised": torch.quantize_per_tensor(torch.arange(3.0), 0.1, 0, torch.qint8),
        "meta": torch.empty(2, device="meta"),
        "lone": "\ud800",
        "keys": {None: 1, (1, 2): 2, b"k": 3, "ok": 4},
        "cycle": cycle,
        "kept": torch.arange(3),
    }
    left = {"bytes": [1, None, 2], "big": (None, None, None), "keys": {"ok": 4}, "cycle": [1, None]}
    left["kept"] = value["kept"]
    refusals = {
        "bytes[1]": "bytes",
        "empty_bytes": "bytes",
        "bytearray": "bytes",
        "set": "a set",
        "frozen": "a set",
        "big[0]": "an integer beyond 64 bits",
        "big[1]": "an integer beyond 64 bits",
        "big[2]": "an integer beyond 64 bits",
        "opaque": "an object of '__main__.Opaque'",
        "function": "'posixpath.join' itself",
        "dtype": "'torch.float32' itself",
        "quantised": "an object of 'torch._utils._rebuild_qtensor'",
        "meta": "an object of 'torch._utils._rebuild_meta_tensor_no_storage'",
        "lone": "text with a lone surrogate",
        "keys[None]": "a dict key that is None",
        "keys[a tuple]": "a dict key that is a tuple",
        "keys[bytes]": "a dict key that is bytes",
        "cycle[1]": "a container that holds itself",
    }
    return value, left, refusals


class Writer:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.count = 0

    def describe(self, name, left, refusals):
        self.count += 1
        described = {"value": expect(left), "refusals": sorted(map(list, (refusals or {}).items()))}
        (self.folder / f"{name}.json").write_text(json.dumps(described))

    def saved(self, name, value, left=None, refusals=None, **options):
        torch.save(value, self.folder / f"{name}.pt", **options)
        self.describe(name, value if left is None else left, refusals)

    def pickled(self, name, value, protocol, left=None, refusals=None):
        (self.folder / f"{name}.pkl").write_bytes(pickle.dumps(value, protocol=protocol))
        self.describe(name, value if left is None else left, refusals)

    def every_protocol(self):
        plain = {"containers": containers(), "views": views(), "dtypes": dtypes(), "sparse": sparse()}
        value, left, refusals = refused()
        for protocol in (2, 3, 4, 5):
            for is_zip in (True, False):
                options = {"pickle_protocol": protocol, "_use_new_zipfile_serialization": is_zip}
                kind = f"{'zip' if is_zip else 'stream'}-{protocol}"
                for name, plain_value in plain.items():
                    self.saved(f"{kind}-{name}", plain_value, **options)
                self.saved(f"{kind}-refused", value, left, refusals, **options)
            for name, plain_value in plain.items():
                self.pickled(f"wire-{protocol}-{name}", plain_value, protocol)
            # The grafter's payload: a tensor with extras, and nothing.
            self.pickled(f"wire-{protocol}-payload", (torch.arange(6.0)[1:4], {"scale": 0.5}), protocol)
            self.pickled(f"wire-{protocol}-none", None, protocol)
            self.pickled(f"wire-{protocol}-refused", value, protocol, left, refusals)
        self.saved("default", plain["views"])
        torch.serialization.set_crc32_options(False)
        self.saved("without-checksum", plain["containers"])
        torch.serialization.set_crc32_options(True)
        self.saved("tensor-alone", torch.arange(5))
        self.saved("large", torch.arange(100_000))

    def by_twin(self, sglang_folder):
        """Records of SGLang's own dumper, unmodified."""
        os.environ |= {"DUMPER_ENABLE": "1", "DUMPER_DIR": str(self.folder), "DUMPER_EXP_NAME": "twin",
                       "DUMPER_ENABLE_GRAD": "1"}
        path = pathlib.Path(sglang_folder) / "sglang/srt/debug_utils/dumper.py"
        spec = importlib.util.spec_from_file_location("dumper", path)
        module = importlib.util.module_from_spec(spec)
        sys.modules["dumper"] = module
        spec.loader.exec_module(module)
        base = torch.arange(100_000.0)
        values = {
            "tensor": torch.rand(3, 4),
            "view": base[10:13],
            "bf16": torch.rand(5).bfloat16(),
            "fp8": torch.rand(5).to(torch.float8_e4m3fn),
            "parameter": torch.nn.Parameter(torch.rand(2, 2)),
            "mixed": {"ids": [1, 2], "mask": torch.tensor([True, False]), "none": None, "text": "x"},
            "number": 7,
        }
        for name, value in values.items():
            module.dumper.dump(name, value, layer_id=3, phase="prefill")
        leaf = torch.ones(3, requires_grad=True)
        module.dumper.dump("leaf", leaf, dims="h", layer_id=3, phase="prefill")
        (2 * leaf).sum().backward()
        module.dumper.step()
        paths = sorted((self.folder / "twin").glob("*.pt"))
        assert len(paths) == len(values) + 2, paths
        (self.folder / "twin-names.txt").write_text("".join(f"{path.name}\n" for path in paths))
        for path in paths:
            record = torch.load(path, weights_only=False)
            assert set(record) == {"value", "meta"}, set(record)
            path.rename(self.folder / f"twin-{record['meta']['name']}.pt")
            self.describe(f"twin-{record['meta']['name']}", record, None)

    def safetensors(self):
        names = [name for name in DTYPES if name not in ("complex32", "complex128") and not name.startswith("bits")]
        # The package writes these and does not read them back.
        tensors = {name: patterned((2, 4), name) for name in names}
        tensors |= {f"{name}.scalar": patterned((), name) for name in names if name != "float4_e2m1fn_x2"}
        tensors |= {f"{name}.empty": patterned((0, 2), name) for name in names if name != "float4_e2m1fn_x2"}
        safetensors.torch.save_file(tensors, self.folder / "every.safetensors", metadata={"format": "pt", "n": "grüße"})
        self.describe("every", tensors, None)


def main(folder, sglang_folder):
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    writer = Writer(folder)
    writer.every_protocol()
    writer.safetensors()
    writer.by_twin(sglang_folder)
    print(f"{writer.count} files written, torch {torch.__version__}, safetensors {safetensors.__version__}")


if __name__ == "__main__":
    main(*sys.argv[1:])
