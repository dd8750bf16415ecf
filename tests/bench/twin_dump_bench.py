# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
"""Times SGLang's unmodified Python dumper at what dump_bench.cpp times; prints one JSON object of microseconds."""

import importlib.util
import json
import shutil
import statistics
import sys
import time

import torch


def load_twin(path):
    spec = importlib.util.spec_from_file_location("twin_dumper", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["twin_dumper"] = module
    spec.loader.exec_module(module)
    return module


def microseconds(call, rounds, repeats=5):
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(rounds):
            call()
        times.append((time.perf_counter() - start) / rounds * 1e6)
    return statistics.median(times)


def main():
    twin = load_twin(sys.argv[1])
    folder = sys.argv[2]
    value = torch.rand(3)
    common = dict(dir=folder, exp_name="bench", enable_output_console=False)

    def make(**fields):
        return twin._Dumper(config=twin.DumperConfig(**{**common, **fields}))

    def call(dumper):
        return lambda: dumper.dump("attn_out", value, layer_id=0, phase="prefill")

    result = {
        "off": microseconds(call(make(enable=False)), 200000),
        "filtered": microseconds(
            call(make(enable=True, filter="layer_id in (0, 1) and name.startswith('mlp')")), 20000
        ),
        "three_floats": microseconds(call(make(enable=True)), 1000),
    }
    shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(result))


main()
