# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
# Every dump point of the example, and its embeddings, against the unmodified transformers BertModel on 50 sentences.
import pathlib
import sys
import tempfile

import torch
from minilm_peer import MAX_LENGTH, SOURCE, dumping, run_minilm
from minilm_reference import POINTS_PER_STEP, Reference

BATCH = 8
TOLERANCE = 1e-5  # of a tensor's largest magnitude


def fifty_sentences():
    lines = (SOURCE / "examples/minilm/sentences.txt").read_text(encoding="utf-8").splitlines()
    lines += (SOURCE / "tests/interop/minilm_sentences.txt").read_text(encoding="utf-8").splitlines()
    # Two that are cut: everything so far in one line, there and back.
    lines += [" ".join(lines), " ".join(reversed(lines))]
    assert len(lines) == 50, len(lines)
    return lines


def read_records(folder):
    """(step, name, layer or None) -> tensor. Opened as a user would: torch.load with no other argument."""
    records = {}
    for path in folder.glob("*.pt"):
        record = torch.load(path)
        assert set(record) == {"value", "meta"}, (path.name, set(record))
        meta = record["meta"]
        key = (meta["step"], meta["name"], meta.get("layer_id"))
        assert key not in records, f"two records of {key}"
        records[key] = record["value"]
    return records


def main():
    sentences = fifty_sentences()
    steps = [sentences[i:i + BATCH] for i in range(0, len(sentences), BATCH)]
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "sentences.txt"
        file.write_text("".join(line + "\n" for line in sentences), encoding="utf-8")
        run_minilm(["--sentences", file, "--batch", BATCH], env=dumping(folder, "run"))
        records = read_records(pathlib.Path(folder) / "run")
    assert len(records) == POINTS_PER_STEP * len(steps), (len(records), POINTS_PER_STEP, len(steps))

    points = {}
    step = 0

    def on_point(name, layer_id, value):
        points[step, name, layer_id] = value.clone()

    reference = Reference(on_point)
    padded = cut = 0
    for step, batch in enumerate(steps):
        reference.embed(batch)
        ids = points[step, "input_ids", None]
        padded += int((ids == 0).any())
        cut += int((ids.shape[1] == MAX_LENGTH) and (ids[:, -1] == 102).any())
    assert padded >= 5 and cut >= 1, f"{padded} padded and {cut} cut batches: the sentences test too little"
    assert points.keys() == records.keys(), points.keys() ^ records.keys()

    failed = 0
    worst = {}
    for key, wanted in points.items():
        got = records[key]
        if got.shape != wanted.shape or got.dtype != wanted.dtype:
            print(f"{key}: {got.dtype}{list(got.shape)}, transformers {wanted.dtype}{list(wanted.shape)}")
            failed += 1
            continue
        if not wanted.is_floating_point():
            error = 0.0 if torch.equal(got, wanted) else float("inf")
        else:
            assert torch.isfinite(got).all() and torch.isfinite(wanted).all(), key
            error = ((got.double() - wanted.double()).abs().max() / wanted.abs().max()).item()
        worst[key[1]] = max(worst.get(key[1], 0.0), error)
        if not error <= TOLERANCE:
            print(f"{key}: {error:.3g} of its largest magnitude, more than {TOLERANCE}")
            failed += 1
    for name, error in worst.items():
        print(f"  {name:15} {error:.2e}")
    print(f"{len(points)} tensors in {len(steps)} steps ({POINTS_PER_STEP} points each), {padded} padded, {cut} cut: "
          f"{failed} beyond {TOLERANCE} of their largest magnitude, the worst at {max(worst.values()):.2e}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
