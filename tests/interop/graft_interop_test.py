# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
"""C++ ranks graft with SGLang's unmodified grafter: both roles and directions, many to few and few to many, every dtype
and form of tensor, extras, hostile payloads, peers that end.

Both sides record what they hold after each graft, so the sender's record is what the receiver's must be.

usage: graft_interop_test.py [twins] [test ...]    `twins`: Python on both sides, to see that the ranks do what they should
"""

import json
import os
import pathlib
import sys
import tempfile
import time
import traceback
from random import Random

from graft_peer import BASELINE_SALT, EXTRAS, NOTHINGS, TARGET_SALT, make_form
from graft_ranks import SGLANG, Side, check, records, run, same, start, wait, wait_for_text

DTYPES = """float32 float64 bfloat16 float16 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu
    int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool complex32 complex64 complex128""".split()
# Python cannot read what it wrote of these itself: its sender fails once they are sent.
NOT_READ_BY_PYTHON = {one for one in DTYPES if one.startswith("float8") or one in ("uint16", "uint32", "uint64", "complex32")}
SHAPES = """scalar empty transposed view parameter leaf computed into_expanded from_expanded from_conjugate from_negative
    large""".split()

MIXED = [("python", "cpp"), ("cpp", "python")]
SALTS = {"baseline": BASELINE_SALT, "target": TARGET_SALT}


def other(role):
    return "target" if role == "baseline" else "baseline"


def senders_of(name):
    return "baseline" if name.startswith("b2t_") else "target"


def state_of(rank):
    return rank.said()[-1]


def expect_state(ranks, language, **wanted):
    """What each C++ rank counted."""
    if language == "cpp":
        for rank in ranks:
            state = state_of(rank)
            check({key: state[key] for key in wanted} == wanted, rank.name, state, "wanted", wanted, "\n", rank.text())


# ---- forms


def forms_between(folder, baseline, target, count, forms):
    ranks = run(folder, Side(baseline, count, ["forms", *forms]), Side(target, count, ["forms", *forms]))
    language = {"baseline": baseline, "target": target}
    held = {role: records(folder, role) for role in language}
    for form in forms:
        for direction in ("b2t", "t2b"):
            name = f"{direction}_{form}"
            sender = senders_of(name)
            for rank in range(count):
                sent, got = held[sender][name, rank][0], held[other(sender)][name, rank][0]
                own = make_form(form, SALTS[other(sender)] + rank, is_sender=False).detach()
                wanted = own if form == "into_expanded" else sent
                check(same(got, wanted), f"{baseline} to {target}: {name}, rank {rank}: sent", sent, "held", got)
                check(form == "empty" or not same(own, sent), f"{name}: both sides had the same")
    kept = 1 if "into_expanded" in forms else 0
    for role, side in ranks.items():
        expect_state(side, language[role], phase="grafting", peers="python", sent=len(forms),
                     grafted=len(forms) - kept, empty=kept, failed=0, refused=0)
        if language[role] == "python":
            for rank in side:
                raised = {line["raised"] for line in rank.said() if "raised" in line}
                check(raised == NOT_READ_BY_PYTHON & set(forms), rank.name, raised)


def test_every_dtype_and_form_with_one_rank_a_side(folder):
    for baseline, target in MIXED:
        forms_between(folder / f"{baseline}_{target}", baseline, target, 1, DTYPES + SHAPES)


def test_two_ranks_a_side(folder):
    for baseline, target in MIXED:
        forms_between(folder / f"{baseline}_{target}", baseline, target, 2, ["float32", "bfloat16", "large", "scalar"])


# ---- unlike counts, extras


def counts_between(folder, baseline, target):
    """Senders in rank order, their extras beside them, and what the transform makes of them."""
    transform = {"python": "grafter_transform_path", "cpp": "grafter_transform"}
    named = {"python": "graft_peer.average_or_spread", "cpp": "average_or_spread"}
    for side in (baseline, target):
        side.settings[transform[side.language]] = named[side.language]
    ranks = run(folder, baseline, target)
    counts = {"baseline": baseline.count, "target": target.count}
    # As JSON has them: a tuple is a list there.
    extras_of = json.loads(json.dumps([EXTRAS if rank % 2 == 0 else None for rank in range(4)]))
    for direction in ("b2t", "t2b"):
        name = f"{direction}_counts"
        sender = senders_of(name)
        firsts = [float(SALTS[sender] + rank) for rank in range(counts[sender])]
        held = records(folder, other(sender))
        senders, receivers = counts[sender], counts[other(sender)]
        said = [line for rank in ranks[other(sender)] for line in rank.said() if line.get("transform") == name]
        check(len(said) == receivers, name, said)
        for line in said:
            check(line["firsts"] == firsts, name, line)
            check(line["extras"] == extras_of[:senders], name, line)
        for rank in range(receivers):
            part = firsts[rank * senders // receivers:(rank + 1) * senders // receivers]
            part = part or [firsts[rank * senders // receivers]]
            value = held[name, rank][0]
            check((value == sum(part) / len(part)).all(), name, "rank", rank, value, part)


def test_many_to_few_and_few_to_many(folder):
    for baseline, target in MIXED:
        for counts in ((4, 2), (2, 4)):
            counts_between(folder / f"{baseline}_{target}_{counts[0]}_{counts[1]}", Side(baseline, counts[0], ["counts"]),
                           Side(target, counts[1], ["counts"]))


def test_threads_of_one_process(folder):
    counts_between(folder / "baseline", Side("cpp", 4, ["counts"], threads=True), Side("python", 2, ["counts"]))
    counts_between(folder / "target", Side("python", 2, ["counts"]), Side("cpp", 4, ["counts"], threads=True))


def test_a_shape_that_does_not_fit_leaves_the_target_and_the_next_graft(folder):
    for baseline, target in MIXED:
        inner = folder / f"{baseline}_{target}"
        ranks = run(inner, Side(baseline, 1, ["unlike"]), Side(target, 1, ["unlike"]))
        for role, language in (("baseline", baseline), ("target", target)):
            name = "t2b" if role == "baseline" else "b2t"
            held = records(inner, role)
            check((held[f"{name}_unlike", 0][0] == SALTS[role]).all(), role, held)
            check((held[f"{name}_alike", 0][0] == SALTS[other(role)]).all(), role, held)
            expect_state(ranks[role], language, sent=2, grafted=1, failed=1, phase="grafting")


def test_unlike_counts_without_a_transform_are_an_error_on_receivers_only(folder):
    for baseline, target in MIXED:
        inner = folder / f"{baseline}_{target}"
        ranks = run(inner, Side(baseline, 2, ["counts"]), Side(target, 1, ["counts"]))
        said = {"cpp": "there are {} senders and {} receivers; register a transform",
                "python": "requires #senders == #recvs but got #senders={} vs #recvs={}"}
        for role, language, senders, receivers in (("baseline", baseline, 1, 2), ("target", target, 2, 1)):
            name = "t2b_counts" if role == "baseline" else "b2t_counts"
            held = records(inner, role)
            for rank in ranks[role]:
                check(said[language].format(senders, receivers) in rank.text(), rank.text())
            for rank in range(receivers):
                check((held[name, rank][0] == SALTS[role] + rank).all(), role, rank, held[name, rank])
            expect_state(ranks[role], language, sent=1, grafted=0, failed=1, phase="grafting")


def test_a_side_without_a_tensor_takes_part_and_the_twin_survives_it(folder):
    """As sender dbg gives (None, None), which the twin's transform fails on inside its guard."""
    for baseline, target in MIXED:
        inner = folder / f"{baseline}_{target}"
        ranks = run(inner, Side(baseline, 1, ["nothing"]), Side(target, 1, ["nothing"]))
        for role, language in (("baseline", baseline), ("target", target)):
            held = records(inner, role)
            own = "t2b" if role == "baseline" else "b2t"
            for number in range(NOTHINGS):
                check((held[f"{own}_alike{number}", 0][0] == SALTS[other(role)] + number).all(), role, number, held)
            rank = ranks[role][0]
            if language == "python":
                holds = [line["holds"] for line in rank.said() if "holds" in line]
                check(holds == [[float(SALTS[role])] * 5] * (2 * NOTHINGS), holds, rank.text())
            else:
                expect_state([rank], "cpp", sent=NOTHINGS, grafted=NOTHINGS, empty=2 * NOTHINGS, phase="grafting")
                check("a Python rank takes no part" in rank.text(), rank.text())


def test_a_python_value_that_is_no_tensor_shifts_the_calls_by_one(folder):
    """What docs/grafting.md warns of: the twin leaves the call out, and nothing on its wire says which call one is."""
    ranks = run(folder / "run", Side("python", 1, ["text"]), Side("cpp", 1, ["text"]))
    holds = [line["holds"] for line in ranks["target"][0].said() if "holds" in line]
    check(holds == [[float(BASELINE_SALT + 1)] * 5, [float(BASELINE_SALT + 2)] * 5], holds, ranks["target"][0].text())


# ---- peers that mean harm, or end


def raw_peer(words, calls):
    """A hand-made Python sender and a C++ receiver, as either role."""
    return [(Side("python", 1, words), Side("cpp", 1, ["receive", "b2t", calls])),
            (Side("cpp", 1, ["receive", "t2b", calls]), Side("python", 1, words))]


def test_hostile_payloads_are_refused_and_the_run_goes_on(folder):
    from graft_peer import hostile_payloads

    marker = folder / "touched"
    count = sum(1 for _ in hostile_payloads(marker))
    for number, (baseline, target) in enumerate(raw_peer(["raw_hostile", marker], 2 * count)):
        ranks = run(folder / str(number), baseline, target)
        role = "target" if target.language == "cpp" else "baseline"
        rank = ranks[role][0]
        holds = [line["holds"] for line in rank.said() if "holds" in line]
        check(holds[0::2] == [[float(SALTS[role])] * 4] * count, rank.name, holds, rank.text())
        check(holds[1::2] == [[100.0 + i] * 4 for i in range(count)], rank.name, holds, rank.text())
        expect_state([rank], "cpp", refused=count, grafted=count, phase="grafting")
        check(not marker.exists(), "a payload was executed")


def test_a_call_in_the_extras_is_left_out_and_named(folder):
    marker = folder / "touched"
    for number, (baseline, target) in enumerate(raw_peer(["raw_extras", marker], 1)):
        ranks = run(folder / str(number), baseline, target)
        rank = ranks["target" if target.language == "cpp" else "baseline"][0]
        check(rank.said()[0] == {"holds": [7.0] * 4}, rank.text())
        check("posix.system" in rank.text() and "value[1]['x']" in rank.text(), rank.text())
        check(not marker.exists(), "the extras were executed")


def test_a_length_beyond_the_cap_ends_grafting_and_allocates_nothing(folder):
    for claimed in (1 << 62, -1, (4 << 30) + 1):
        baseline, target = raw_peer(["raw_length", claimed], 3)[0]
        inner = folder / str(claimed)
        inner.mkdir()
        ranks = start(inner, baseline, target)
        try:
            # The peer that lied may end as it likes.
            wait(ranks["target"])
        finally:
            ranks["baseline"][0].kill()
        rank = ranks["target"][0]
        holds = [line["holds"] for line in rank.said() if "holds" in line]
        check(holds == [[7.0] * 4] + [[float(TARGET_SALT)] * 4] * 2, holds, rank.text())
        expect_state([rank], "cpp", phase="off", grafted=1)
        check(str(claimed) in rank.text(), rank.text())


def test_a_payload_of_another_device_lands_on_the_targets(folder):
    for number, (baseline, target) in enumerate(raw_peer(["raw_location", "cuda:3"], 1)):
        ranks = run(folder / str(number), baseline, target)
        rank = ranks["target" if target.language == "cpp" else "baseline"][0]
        check(rank.said()[0] == {"holds": [7.0] * 4}, rank.text())


def test_a_peer_on_nccl_is_named(folder):
    """As baseline by what it leaves; as target it leaves nothing, and is the likely cause when time is up."""
    started = []
    try:
        for number, (baseline, target) in enumerate(raw_peer(["raw_nccl"], 1)):
            inner = folder / str(number)
            inner.mkdir()
            role = "target" if target.language == "cpp" else "baseline"
            (target if role == "target" else baseline).settings["grafter_timeout"] = 9
            started.append((role, start(inner, baseline, target)))
        for role, ranks in started:
            wait_for_text(ranks[other(role)][0], "joined")
            wait(ranks[role])
            rank = ranks[role][0]
            check("DUMPER_GRAFTER_BACKEND=gloo there" in state_of(rank)["cause"], rank.text())
            check(("the peer uses nccl" in rank.text()) == (role == "target"), rank.text())
            expect_state([rank], "cpp", phase="off", grafted=0)
    finally:
        for _, ranks in started:
            for side in ranks.values():
                for rank in side:
                    rank.kill()


def test_a_python_peer_that_is_killed_leaves_the_run_alive(folder):
    """Before, within and between grafts. One that dies before the sides have met is waited for as long as the timeout says:
    beside the others."""
    waiting = []
    for number, (die_at, die_after) in enumerate([(0, 300), (1, 0), (2, 3), (2, 8), (3, 15)]):
        for role in ("baseline", "target"):
            victim = Side("python", 1, ["steps", 6, die_at, die_after])
            survivor = Side("cpp", 1, ["steps", 6], grafter_timeout=20)
            inner = folder / f"{number}_{role}"
            inner.mkdir()
            ranks = start(inner, *((victim, survivor) if role == "baseline" else (survivor, victim)))
            wait(ranks[role], {ranks[role][0].name: -9})
            waiting.append((inner, ranks[other(role)], other(role)))
            if die_at > 0:
                wait(ranks[other(role)])
    for inner, survivors, role in waiting:
        wait(survivors)
        expect_state(survivors, "cpp", phase="off")
        check(len(records(inner, role)["b2t_step", 0]) == 6, survivors[0].text())


def test_a_cpp_peer_that_is_killed_leaves_its_siblings_running_and_python_not_waiting(folder):
    """At seeded offsets, before, within and between grafts; every other time beside a C++ rank that stays. The twin's dump()
    raises, which is the twin's own way."""
    random = Random(1)
    for kill in range(int(os.environ.get("DBG_TEST_GRAFT_KILLS", "4"))):
        role = ("baseline", "target")[kill // 2 % 2]  # the victim's
        count = 1 + kill % 2
        offset = random.uniform(0, 0.4)
        victims = Side("cpp", count, ["until_the_peer_is_gone"])
        survivor = Side("python", 1, ["until_the_peer_is_gone"])
        inner = folder / str(kill)
        inner.mkdir()
        ranks = start(inner, *((victims, survivor) if role == "baseline" else (survivor, victims)))
        rank, python = ranks[role][random.randrange(count)], ranks[other(role)][0]
        wait_for_text(rank, '{"step":0}')
        time.sleep(offset)
        rank.kill()
        siblings = [one for one in ranks[role] if one is not rank]
        wait([python, *siblings])
        what = f"kill {kill}, {rank.name} of {count}, {offset:.3f} s:"
        last = python.said()[-1]
        check(last.get("raised") and last["seconds"] < 10, what, python.text())
        expect_state(siblings, "cpp", phase="off")
        for one in siblings:
            check(one.said()[-3]["seconds"] < 10, what, one.text())


# ---- main


def skip(reason):
    print(f"SKIPPED: {reason}")
    sys.exit(77)


def main():
    chosen = sys.argv[1:]
    if not (pathlib.Path(SGLANG) / "sglang/srt/debug_utils/dumper.py").exists():
        skip(f"no SGLang debug tools in {SGLANG!r}; `cmake/bootstrap.sh --full` unpacks them")
    if chosen[:1] == ["twins"]:
        chosen = chosen[1:]
        MIXED[:] = [("python", "python")]
        DTYPES[:] = [one for one in DTYPES if one not in NOT_READ_BY_PYTHON]
    tests = {name: value for name, value in globals().items() if name.startswith("test_")}
    failed = []
    for name, test in tests.items():
        if chosen and name not in chosen:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                began = time.monotonic()
                test(pathlib.Path(folder))
                print(f"passed {name} ({time.monotonic() - began:.1f} s)", flush=True)
            except Exception:  # all are reported
                failed.append(name)
                print("FAILED", name, traceback.format_exc(), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
