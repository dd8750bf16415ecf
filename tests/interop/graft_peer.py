# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
"""A Python rank for graft_interop_test.py: SGLang's unmodified dumper and its grafter, over gloo on a CPU.

Does what graft_peer.cpp does, in the same order; raw_* speak the twin's wire by hand. What it saw goes to standard output as
JSON, a line each.
"""

import datetime
import io
import json
import os
import pathlib
import pickle
import signal
import threading
import time

import torch
import torch.distributed as dist

BASELINE_SALT, TARGET_SALT = 1, 50
NOTHINGS = 3  # kinds of values in place of a tensor


def say(**what):
    print(json.dumps(what), flush=True)


def is_baseline():
    return os.environ["DUMPER_GRAFTER_ROLE"] == "baseline"


def salt():
    """Differs between any two ranks of both sides."""
    return (BASELINE_SALT if is_baseline() else TARGET_SALT) + int(os.environ["RANK"])


# ---- the tensors of graft_peer.cpp


def filled(dtype, shape, of):
    """Bytes below 120 in place of random ones: finite in every dtype, and not the same for another salt."""
    count = torch.Size(shape).numel()
    width = 1 if dtype == torch.bool else torch.empty(0, dtype=dtype).element_size()
    pattern = ((torch.arange(count * width) * 37 + of * 11) % 120).to(torch.uint8)
    if dtype == torch.bool:
        return (pattern // 3 % 2 == 1).reshape(shape)
    return pattern.view(dtype).reshape(shape)


def make_form(form, of, is_sender):
    plain = filled(torch.float32, (4, 6), of)
    if form == "scalar":
        return plain[1, 2].clone()
    if form == "empty":
        return torch.empty(0, 3)
    if form == "transposed":
        return plain.t()
    if form == "view":
        return plain[1:3, 2:4]
    if form == "parameter":
        return torch.nn.Parameter(plain)
    if form == "leaf":
        return plain.requires_grad_()
    if form == "computed":
        return plain.requires_grad_() * 1
    if form == "into_expanded":
        return plain if is_sender else plain[:1].expand(4, 6)
    if form == "from_expanded":
        return plain[:1].expand(4, 6) if is_sender else plain
    if form in ("from_conjugate", "from_negative"):
        pairs = filled(torch.complex64, (4, 6), of)
        lazy = pairs.conj() if form == "from_conjugate" else pairs.conj().imag
        return lazy if is_sender else lazy.clone().resolve_conj().resolve_neg()
    if form == "large":
        return filled(torch.float32, (3, 1 << 20), of)
    return filled(getattr(torch, form), (2, 3), of)


EXTRAS = {"shard": 3, "half": 0.5, "text": "é", "none": None, "list": [1, 2.5, True, "x"], "nested": {"pair": (1, "two")}}


# ---- transforms, named in DUMPER_GRAFTER_TRANSFORM_PATH


def average_or_spread(graft_input):
    """Of many senders the mean of this rank's part of them, of few the one whose part this rank holds."""
    received, rank, receivers = graft_input.received_list, dist.get_rank(), dist.get_world_size()
    say(transform=graft_input.tags["name"], firsts=[float(one.flatten()[0]) for one in received],
        extras=graft_input.received_extras_list)
    if len(received) >= receivers:
        part = len(received) // receivers
        return torch.stack(received[part * rank:part * (rank + 1)]).mean(0)
    return received[rank * len(received) // receivers]


# ---- what is done


def make_dumper():
    """The twin: it reads the environment when imported, and wants a default group of its own side."""
    dist.init_process_group(
        "gloo", init_method=f"file://{os.environ['GRAFT_PEER_STORE']}", rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]), timeout=datetime.timedelta(seconds=60))
    from sglang.srt.debug_utils import dumper as twin

    return twin.dumper


def run_forms(*forms):
    dumper = make_dumper()
    for form in forms:
        for direction in ("b2t", "t2b"):
            value = make_form(form, salt(), is_sender=is_baseline() == (direction == "b2t"))
            with torch.no_grad():
                try:
                    dumper.dump(f"{direction}_{form}", value)
                except AttributeError as error:
                    # Python can't unpickle what it pickled itself: a sender of fp8, say. It has been sent by then.
                    say(raised=form, error=str(error))
                    folder = pathlib.Path(os.environ["DUMPER_DIR"], os.environ["DUMPER_EXP_NAME"])
                    folder.mkdir(parents=True, exist_ok=True)
                    meta = {"name": f"{direction}_{form}", "rank": dist.get_rank()}
                    torch.save({"value": value, "meta": meta}, folder / f"raised_{direction}_{form}_{dist.get_rank()}.pt")
    dumper.step()


def run_counts():
    dumper = make_dumper()
    for direction in ("b2t", "t2b"):
        extras = EXTRAS if int(os.environ["RANK"]) % 2 == 0 else None
        dumper.dump(f"{direction}_counts", torch.full((2, 3), float(salt())), grafter_extras=extras)
    dumper.step()


def run_unlike():
    """A fault of the receiver's, and a graft that works after it."""
    dumper = make_dumper()
    size = 3 if is_baseline() else 4
    for direction in ("b2t", "t2b"):
        dumper.dump(f"{direction}_unlike", torch.full((size,), float(salt())))
        dumper.dump(f"{direction}_alike", torch.full((5,), float(salt())))
    dumper.step()


def run_nothing():
    """Names under which the other side has no tensor, and a graft that works after each."""
    dumper = make_dumper()
    for number in range(NOTHINGS):
        for direction in ("b2t", "t2b"):
            value = torch.full((5,), float(salt()))
            dumper.dump(f"{direction}_nothing{number}", value)
            say(holds=value.tolist())
            dumper.dump(f"{direction}_alike{number}", torch.full((5,), float(salt() + number)))
    dumper.step()


def run_text():
    """A value that is no tensor takes the twin out of the call: the other side's call meets this side's next one."""
    dumper = make_dumper()
    dumper.dump("b2t_text", "text")
    for number in range(3):
        dumper.dump("b2t_next", torch.full((5,), float(salt() + number)))
    dumper.step()


def run_until_the_peer_is_gone():
    """Grafts of 4 MiB until one fails; the twin does not guard the gather, so that the failure comes out of dump()."""
    dumper = make_dumper()
    say(begins=True)
    for step in range(100000):
        began = time.monotonic()
        try:
            dumper.dump("b2t_step", torch.full((1 << 20,), float(salt() + step)))
            dumper.dump("t2b_step", torch.full((1 << 20,), float(salt() + step)))
        except RuntimeError as error:
            say(raised=str(error), seconds=time.monotonic() - began, step=step)
            return
        dumper.step()


def run_steps(count, die_at="-1", die_after="0"):
    """`count` grafts of 4 MiB; ends itself by SIGKILL within graft `die_at`, `die_after` milliseconds in."""
    dumper = make_dumper()
    for step in range(int(count)):
        if step == int(die_at):
            threading.Timer(float(die_after) / 1e3, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
        dumper.dump("b2t_step", torch.full((1 << 20,), float(salt() + step)))
        dumper.dump("t2b_step", torch.full((1 << 20,), float(salt() + step)))
        dumper.step()
        say(step=step)


# ---- the same wire, by hand


def raw_group():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    from sglang.srt.debug_utils import dumper as twin

    baseline, target = (int(os.environ[f"DUMPER_GRAFTER_{side}_WORLD_SIZE"]) for side in ("BASELINE", "TARGET"))
    address, port = os.environ["DUMPER_GRAFTER_MASTER_ADDRESS"], os.environ["DUMPER_GRAFTER_MASTER_PORT"]
    return twin._init_custom_process_group(
        backend="gloo", init_method=f"tcp://{address}:{port}", world_size=baseline + target,
        rank=0 if is_baseline() else baseline, group_name="graft", timeout=datetime.timedelta(seconds=30))


def raw_gather(group, payload, claimed=None):
    """One call of all_gather_object with these bytes; `claimed` in place of their number stops after the lengths."""
    lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(group.size())]
    dist.all_gather(lengths, torch.tensor([len(payload) if claimed is None else claimed]), group=group)
    if claimed is not None:
        return
    longest = max(int(one) for one in lengths)
    mine = torch.zeros(longest, dtype=torch.uint8)
    if payload:
        mine[:len(payload)] = torch.frombuffer(bytearray(payload), dtype=torch.uint8)
    dist.all_gather([torch.empty_like(mine) for _ in lengths], mine, group=group)


class Calls:
    """Pickles as a call of `function`."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


def storage_bytes(tensor):
    stream = io.BytesIO()
    torch.save(tensor.storage(), stream, _use_new_zipfile_serialization=False)
    return stream.getvalue()


def rebuilt(tensor, offset, size, stride):
    """The tensor as the twin sends it, but with another view of its storage."""
    storage = Calls(torch.storage._load_from_bytes, storage_bytes(tensor))
    return Calls(torch._utils._rebuild_tensor_v2, storage, offset, size, stride, False, {})


def hostile_payloads(marker):
    tensor = torch.ones(4)
    good = pickle.dumps((tensor, None))
    touch = f"touch {marker}"
    yield "os.system", pickle.dumps((Calls(os.system, touch), None))
    yield "os.system in a storage", pickle.dumps((Calls(torch.storage._load_from_bytes, pickle.dumps(Calls(os.system, touch))), None))
    yield "eval", pickle.dumps((Calls(eval, f"__import__('os').system({touch!r})"), None))
    yield "cut", good[:len(good) // 2]
    yield "one byte short", good[:-1]
    yield "no bytes", b""
    yield "noise", bytes(range(256)) * 3
    yield "not a pair", pickle.dumps(tensor)
    yield "three", pickle.dumps((tensor, None, None))
    yield "text for a tensor", pickle.dumps(("tensor", None))
    yield "past its storage", pickle.dumps((rebuilt(tensor, 0, (1 << 20,), (1,)), None))
    yield "a huge stride", pickle.dumps((rebuilt(tensor, 0, (4,), (1 << 60,)), None))
    yield "a negative offset", pickle.dumps((rebuilt(tensor, -8, (4,), (1,)), None))
    yield "a negative size", pickle.dumps((rebuilt(tensor, 0, (-4,), (1,)), None))
    yield "a huge string", b"\x80\x04\x8e" + (1 << 62).to_bytes(8, "little") + b"."
    yield "nested lists", b"\x80\x04" + b"]" * 100000 + b"a" * 99999 + b"."
    yield "a reference to nothing", b"\x80\x04h\x07."


def run_raw_hostile(marker):
    """Each hostile payload, and a good one after it."""
    group = raw_group()
    for number, (what, payload) in enumerate(hostile_payloads(marker)):
        raw_gather(group, payload)
        raw_gather(group, pickle.dumps((torch.full((4,), 100.0 + number), None)))
        say(sent=what)


def run_raw_extras(marker):
    """A tensor as it should be beside extras that hold a call."""
    raw_gather(raw_group(), pickle.dumps((torch.full((4,), 7.0), {"x": Calls(os.system, f"touch {marker}"), "y": 1})))


def run_raw_length(claimed):
    group = raw_group()
    raw_gather(group, pickle.dumps((torch.full((4,), 7.0), None)))
    raw_gather(group, b"", claimed=int(claimed))
    say(sent=claimed)
    # Stays, as a peer would that has posted the second half.
    threading.Event().wait(20)


def run_raw_location(location):
    """A tensor that says it comes from another device."""
    torch.serialization.location_tag = lambda _: location
    payload = pickle.dumps((torch.full((4,), 7.0), None))
    assert location.encode() in payload
    raw_gather(raw_group(), payload)


def run_raw_nccl():
    """Meets in the store as the twin does. At the first collective NCCL's first rank leaves a key, which the others wait for
    without leaving anything."""
    address, port = os.environ["DUMPER_GRAFTER_MASTER_ADDRESS"], int(os.environ["DUMPER_GRAFTER_MASTER_PORT"])
    store = dist.TCPStore(address, port, 2, is_baseline(), datetime.timedelta(seconds=60), multi_tenant=True)
    for prefix in ("graft", "graft/", "cuda/"):
        store = dist.PrefixStore(prefix, store)
    if is_baseline():
        store.set("0", b"x" * 128)
    say(joined=True)
    threading.Event().wait(60)


def run(environment, words, log):
    """The whole of one rank; never returns."""
    os.environ.update(environment)
    with open(log, "wb", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    torch.set_num_threads(1)
    # The name under which the twin finds the transforms.
    import sys

    sys.path.insert(0, os.environ["GRAFT_PEER_SGLANG"])
    status = 1
    try:
        globals()[f"run_{words[0]}"](*words[1:])
        status = 0
    except BaseException:  # reported like any other end
        import traceback

        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    # Not by the interpreter's end: with gloo's threads still there, torch aborts in it now and then.
    os._exit(status)
