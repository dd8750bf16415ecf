# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
"""A rank of torch.distributed that meets dbg's in one gloo group.

    python objects_peer.py STORE_FILE RANK WORLD_SIZE

Does, in this order, what objects_interop_test.cpp does on its side, checks what arrives, and exits with 0 when all of it
was right.
"""

import collections
import datetime
import os
import pickle
import sys
import types

os.environ["GLOO_SOCKET_IFNAME"] = "lo"

import torch
import torch.distributed as dist

TensorMetadata = collections.namedtuple("TensorMetadata", ["device", "dtype", "size"])


def install_twins_module():
    """The module under whose name SGLang pickles its metadata, with the one class that is in the pickles."""
    for name in ("sglang", "sglang.srt", "sglang.srt.distributed", "sglang.srt.distributed.parallel_state"):
        sys.modules.setdefault(name, types.ModuleType(name))
    module = sys.modules["sglang.srt.distributed.parallel_state"]
    module.TensorMetadata = TensorMetadata
    TensorMetadata.__module__ = module.__name__


def object_of(rank):
    return {
        "rank": rank,
        "text": "x" * (100 * rank) + "é",
        "half": 0.5 + rank,
        "none": None,
        "flag": True,
        "list": [1, 2, (3, "four")],
        "tensor": torch.arange(rank + 1, dtype=torch.int16),
    }


def expect_object_of(got, rank):
    wanted = object_of(rank)
    assert got.keys() == wanted.keys(), got
    for key in wanted:
        if key == "tensor":
            assert got[key].dtype == torch.int16 and torch.equal(got[key], wanted[key]), got[key]
        else:
            assert got[key] == wanted[key], (key, got[key])


def dict_of(rank):
    return {
        "hidden": torch.arange(6, dtype=torch.bfloat16).reshape(2, 3) + rank,
        "nothing": torch.empty(0, 3),
        "step": rank,
        "ids": torch.arange(rank + 2),
    }


def expect_dict_of(got, rank):
    wanted = dict_of(rank)
    assert list(got) == list(wanted), got
    for key, value in wanted.items():
        if isinstance(value, torch.Tensor):
            assert got[key].dtype == value.dtype and torch.equal(got[key], value), (key, got[key])
        else:
            assert got[key] == value, key


def send_dict(tensors, dst):
    """SGLang's send_tensor_dict, on one group."""
    metadata = [
        (k, TensorMetadata(v.device.type, v.dtype, v.size())) if isinstance(v, torch.Tensor) else (k, v)
        for k, v in tensors.items()
    ]
    data = torch.frombuffer(bytearray(pickle.dumps(metadata)), dtype=torch.uint8)
    dist.send(torch.tensor([data.numel()], dtype=torch.long), dst)
    dist.send(data, dst)
    for value in tensors.values():
        if isinstance(value, torch.Tensor) and value.numel() > 0:
            dist.send(value, dst)


def receive_dict(src):
    """SGLang's recv_tensor_dict, on one group."""
    size = torch.empty(1, dtype=torch.long)
    dist.recv(size, src)
    data = torch.empty(size.item(), dtype=torch.uint8)
    dist.recv(data, src)
    tensors = {}
    for key, value in pickle.loads(data.numpy()):
        if isinstance(value, TensorMetadata):
            tensor = torch.empty(value.size, dtype=value.dtype, device=value.device)
            if tensor.numel() > 0:
                dist.recv(tensor, src)
            value = tensor
        tensors[key] = value
    return tensors


def main():
    path, rank, world_size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    install_twins_module()
    dist.init_process_group(
        "gloo",
        init_method=f"file://{path}",
        rank=rank,
        world_size=world_size,
        timeout=datetime.timedelta(seconds=60),
    )
    other = 1 - rank

    # Tensors.
    tensor = torch.arange(4, dtype=torch.float32) + rank
    dist.all_reduce(tensor)
    assert torch.equal(tensor, torch.arange(4, dtype=torch.float32) * 2 + 1), tensor
    tensors = [torch.zeros(2, dtype=torch.int64) for _ in range(world_size)]
    dist.all_gather(tensors, torch.full((2,), rank))
    assert [t.tolist() for t in tensors] == [[0, 0], [1, 1]], tensors
    tensor = torch.full((3,), float(rank))
    dist.broadcast(tensor, src=1)
    assert tensor.tolist() == [1.0, 1.0, 1.0]
    dist.barrier()
    if rank == 0:
        dist.send(torch.full((3,), 7.0), other, tag=4)
    else:
        tensor = torch.zeros(3)
        dist.recv(tensor, other, tag=4)
        assert tensor.tolist() == [7.0, 7.0, 7.0]

    # Objects.
    for src in range(world_size):
        objects = [object_of(rank) if rank == src else None]
        dist.broadcast_object_list(objects, src=src)
        expect_object_of(objects[0], src)
    objects = [None] * world_size
    dist.all_gather_object(objects, object_of(rank))
    for i, got in enumerate(objects):
        expect_object_of(got, i)
    for dst in range(world_size):
        objects = [None] * world_size
        dist.gather_object(object_of(rank), objects if rank == dst else None, dst=dst)
        if rank == dst:
            for i, got in enumerate(objects):
                expect_object_of(got, i)
    if rank == 0:
        dist.send_object_list([object_of(0)], dst=1)
        objects = [None]
        dist.recv_object_list(objects, src=1)
        expect_object_of(objects[0], 1)
    else:
        objects = [None]
        dist.recv_object_list(objects, src=0)
        expect_object_of(objects[0], 0)
        dist.send_object_list([object_of(1)], dst=0)

    # Tensor dicts.
    if rank == 0:
        send_dict(dict_of(0), 1)
        expect_dict_of(receive_dict(1), 1)
    else:
        expect_dict_of(receive_dict(0), 0)
        send_dict(dict_of(1), 0)

    # One object that no c10::IValue holds: an error there, and the group goes on.
    objects = [{"a set": {1, 2}} if rank != int(os.environ["DBG_TEST_CPP_RANK"]) else None]
    dist.broadcast_object_list(objects, src=1 - int(os.environ["DBG_TEST_CPP_RANK"]))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
