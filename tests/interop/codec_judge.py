# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
"""Opens each NAME.pt of a folder with plain torch.load and holds it against NAME.json, bit by bit."""

import json
import pathlib
import pickletools
import struct
import sys
import warnings
import zipfile

import torch

ALLOWED_GLOBALS = {
    "torch._utils _rebuild_tensor_v2",
    "torch._utils _rebuild_tensor_v3",
    "torch._utils _rebuild_sparse_tensor",
    "torch.serialization _get_layout",
    "torch.storage UntypedStorage",
    "collections OrderedDict",
    "__builtin__ complex",
}
SAME_WIDTH = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def tensor_bytes(tensor):
    """The elements in row-major order."""
    width = tensor.element_size()
    if tensor.numel() == 0:
        return b""
    plain = torch.view_as_real(tensor) if width == 16 else tensor.view(SAME_WIDTH[width])
    return plain.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def check_tensor(got, want):
    assert type(got) is torch.Tensor, type(got)
    assert got.layout == torch.strided and got.device.type == "cpu", (got.layout, got.device)
    assert not got.requires_grad
    assert str(got.dtype) == "torch." + want["dtype"], got.dtype
    assert list(got.shape) == want["shape"], got.shape
    if "stride" in want:
        assert list(got.stride()) == want["stride"], (got.stride(), want["stride"])
    storage_bytes, all_bytes = got.untyped_storage().nbytes(), got.numel() * got.element_size()
    assert storage_bytes <= all_bytes, "the storage holds more than the tensor"
    assert storage_bytes == want.get("storage_bytes", storage_bytes), storage_bytes
    assert tensor_bytes(got).hex() == want["hex"]


def check_sparse(got, want):
    assert str(got.layout) == want["layout"], got.layout
    if got.layout == torch.sparse_coo:
        assert got.is_coalesced()
    check_tensor(got.to_dense(), want["dense"])


def check(got, want):
    kind = want["kind"]
    if kind == "tensor":
        check_tensor(got, want)
    elif kind == "sparse":
        check_sparse(got, want)
    elif kind == "none":
        assert got is None
    elif kind == "bool":
        assert got is want["value"], got
    elif kind == "int":
        assert type(got) is int and str(got) == want["text"], got
    elif kind == "float":
        assert type(got) is float and struct.pack(">d", got).hex() == want["bits"], got
    elif kind == "complex":
        assert type(got) is complex
        check(got.real, want["real"])
        check(got.imag, want["imag"])
    elif kind == "device":
        assert type(got) is torch.device and str(got) == want["text"], got
    elif kind == "str":
        assert type(got) is str and got.encode("utf-8", "surrogateescape").hex() == want["hex"], repr(got)
    elif kind in ("list", "tuple"):
        assert type(got).__name__ == kind and len(got) == len(want["items"]), (type(got), len(got))
        for g, w in zip(got, want["items"]):
            check(g, w)
        if "storages" in want:
            assert len({g.untyped_storage().data_ptr() for g in got}) == want["storages"]
    elif kind == "dict":
        assert type(got) is dict and len(got) == len(want["items"])
        for (key, value), (want_key, want_value) in zip(got.items(), want["items"]):
            check(key, want_key)
            check(value, want_value)
    else:
        raise AssertionError(kind)


def check_container(path):
    """What torch.load does not look at: the zip itself, and that the pickle calls nothing but what it must."""
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        assert names[0] == "archive/data.pkl" and names[-1] == "archive/version", names
        assert all(info.compress_type == zipfile.ZIP_STORED for info in archive.infolist())
        unchecked = all(info.CRC == 0 for info in archive.infolist())
        if not unchecked:
            assert archive.testzip() is None
        with open(path, "rb") as file:
            file.seek(archive.getinfo("archive/data.pkl").header_offset + 26)
            name_bytes, extra_bytes = struct.unpack("<HH", file.read(4))
            file.seek(name_bytes + extra_bytes, 1)
            pickle = file.read(archive.getinfo("archive/data.pkl").file_size)
    for opcode, argument, _ in pickletools.genops(pickle):
        if opcode.name == "PROTO":
            assert argument == 2
        if opcode.name == "GLOBAL":
            is_named = argument.startswith("torch ") and hasattr(torch, argument.split(" ")[1])
            assert argument in ALLOWED_GLOBALS or is_named, argument


def main(folder):
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", message=".*ComplexHalf support is experimental.*")
    warnings.filterwarnings("ignore", message=".*[Ss]parse.*(beta|invariant).*")
    paths = sorted(pathlib.Path(folder).glob("*.pt"))
    failures = 0
    for path in paths:
        try:
            want = json.loads(path.with_suffix(".json").read_text())
            check(torch.load(path), want)
            # As SGLang's loader and comparator open their records.
            check(torch.load(path, weights_only=False, map_location="cpu"), want)
            check_container(path)
        except Exception as error:  # every case is judged, then all are told
            failures += 1
            print(f"{path.name}: {type(error).__name__}: {error}"[:500])
    print(f"{len(paths)} archives read, {failures} failed, torch {torch.__version__}")
    return 1 if failures or not paths else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
