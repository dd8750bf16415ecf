# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
"""A rank of torch.distributed that meets dbg's in one gloo group.

    python objects_peer.py STORE_FILE RANK WORLD_SIZE

Does, in this order, what objects_interop_test.cpp does on its side, checks what arrives, and exits with 0 when all of it
was right.
"""

import ast
import datetime
import os
import sys
import types

os.environ["GLOO_SOCKET_IFNAME"] = "lo"

import torch
import torch.distributed as dist

TWIN = "sglang.srt.distributed.parallel_state"
METHODS = {
    "broadcast_object",
    "send_object",
    "recv_object",
    "broadcast_tensor_dict",
    "send_tensor_dict",
    "recv_tensor_dict",
}


def twins_group(path, rank, world_size):
    """SGLang's GroupCoordinator with the methods that pass dicts, from its own source, over the world's group. The module
    as a whole can't be imported without an engine around it."""
    with open(path) as file:
        tree = ast.parse(file.read(), path)
    # The name under which its metadata is pickled.
    parts = TWIN.split(".")
    for i in range(len(parts)):
        module = sys.modules.setdefault(".".join(parts[: i + 1]), types.ModuleType(".".join(parts[: i + 1])))
    for words in ("import pickle, torch", "from typing import *", "from collections import namedtuple"):
        exec(words, module.__dict__)
    exec("from dataclasses import dataclass\nfrom torch.distributed import ProcessGroup", module.__dict__)
    wanted = []
    for node in tree.body:
        name = getattr(node, "name", None) or getattr(getattr(node, "targets", [None])[0], "id", None)
        if name == "GroupCoordinator":
            node.body = [one for one in node.body if getattr(one, "name", None) in METHODS]
            assert len(node.body) == len(METHODS), [one.name for one in node.body]
        if name in ("TensorMetadata", "P2PWork", "_split_tensor_dict", "GroupCoordinator"):
            wanted.append(node)
    exec(compile(ast.Module(wanted, []), path, "exec"), module.__dict__)
    group = object.__new__(module.GroupCoordinator)
    group.world_size, group.ranks, group.rank_in_group = world_size, list(range(world_size)), rank
    group.device_group = group.cpu_group = group.mq_broadcaster = None  # torch takes None for the world's group
    return group


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


def main():
    path, rank, world_size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
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

    # Tensor dicts, by the twin.
    twin = os.environ["DBG_TEST_TWIN"]
    if twin:
        group = twins_group(twin, rank, world_size)
        for src in range(world_size):
            expect_dict_of(group.broadcast_tensor_dict(dict_of(rank) if rank == src else None, src), src)
        if rank == 0:
            group.send_tensor_dict(dict_of(0))
            expect_dict_of(group.recv_tensor_dict(1), 1)
        else:
            expect_dict_of(group.recv_tensor_dict(), 0)
            group.send_tensor_dict(dict_of(1), 0)

    # One object that no c10::IValue holds: an error there, and the group goes on.
    objects = [{"a set": {1, 2}} if rank != int(os.environ["DBG_TEST_CPP_RANK"]) else None]
    dist.broadcast_object_list(objects, src=1 - int(os.environ["DBG_TEST_CPP_RANK"]))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
