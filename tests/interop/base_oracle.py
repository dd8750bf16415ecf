# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
"""What Python prints for floats, and what NumPy says of pairs of tensors; written into a folder for the C++ side.

floats.txt: one `bits text` a line. pairs.json: the cases; pairs.bin: their elements, little-endian.
"""

import json
import math
import pathlib
import random
import struct
import sys
from fractions import Fraction

import numpy as np

DTYPES = ["bool", "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64"] + [
    "float16", "float32", "float64", "complex64", "complex128"
]


def write_floats(folder, rng):
    with open(folder / "floats.txt", "w") as out:
        for _ in range(20000):
            if rng.random() < 0.5:
                bits = rng.getrandbits(64)
            else:  # the numbers people use: few digits, small exponents
                value = round(rng.uniform(-1, 1) * 10 ** rng.randint(-8, 20), rng.randint(0, 8))
                bits = struct.unpack("<Q", struct.pack("<d", value))[0]
            value = struct.unpack("<d", struct.pack("<Q", bits))[0]
            out.write(f"{bits} {value}\n")


def random_array(rng, dtype, shape):
    kind = np.dtype(dtype).kind
    if kind == "b":
        return rng.random(shape) < 0.5
    if kind in "iu":
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)
    if kind == "c":
        array = np.empty(shape, dtype)
        array.real, array.imag = random_array(rng, "float64", shape), random_array(rng, "float64", shape)
        return array
    array = np.asarray(rng.standard_normal(shape)).astype(dtype)
    for odd in (np.nan, np.inf, -np.inf):
        if rng.random() < 0.3:
            array[rng.random(shape) < 0.05] = odd
    return array


def numbers(array):
    """Exact numbers: Python ints for integers, else what NumPy holds, at double precision."""
    if array.dtype.kind in "biu":
        return [int(x) for x in array.reshape(-1)]
    if array.dtype.kind == "c":
        return [complex(x) for x in array.reshape(-1)]
    return [float(x) for x in array.reshape(-1)]


def parts(x):
    return (x.real, x.imag) if isinstance(x, complex) else (x, 0)


def is_nan(x):
    return any(math.isnan(p) for p in parts(x))


def is_inf(x):
    return any(math.isinf(p) for p in parts(x))


def equal(x, y):
    return all(p == q or (math.isnan(p) and math.isnan(q)) for p, q in zip(parts(x), parts(y)))


def oracle(a, b):
    xs, ys = numbers(a), numbers(b)
    out = dict.fromkeys(
        ["differing", "nan_in_both", "nan_only_in_a", "nan_only_in_b", "inf_in_both", "inf_unequal"], 0)
    odd_at = largest_at = None
    largest = 0
    squares, squared_differences, differences = [], [], []
    for i, (x, y) in enumerate(zip(xs, ys)):
        same = equal(x, y)
        out["differing"] += not same
        if is_nan(x) or is_nan(y) or is_inf(x) or is_inf(y):
            if is_nan(x) and is_nan(y):
                out["nan_in_both"] += 1
            elif is_nan(x):
                out["nan_only_in_a"] += 1
            elif is_nan(y):
                out["nan_only_in_b"] += 1
            else:
                out["inf_in_both" if same else "inf_unequal"] += 1
            if not same and odd_at is None:
                odd_at = i
            continue
        # As fractions: Python would turn an integer into a float before it subtracts one.
        apart = [float(abs(Fraction(p) - Fraction(q))) for p, q in zip(parts(x), parts(y))]
        distance = math.hypot(*apart) if apart[1] else apart[0]
        for p in parts(x) + parts(y):
            squares.append(float(p) ** 2)
        squared_differences.append(float(distance) ** 2)
        differences.append(float(distance))
        if distance > largest:
            largest, largest_at = distance, i
    if odd_at is not None:
        out |= {"rel_diff": None, "max_abs": None, "mean_abs": None}
    else:
        total = math.fsum(squares)
        out["rel_diff"] = math.fsum(squared_differences) / total if total else 0.0
        out["max_abs"] = float(largest)
        out["mean_abs"] = math.fsum(differences) / len(differences) if differences else 0.0
    place = odd_at if odd_at is not None else largest_at
    out["max_at"] = [int(i) for i in np.unravel_index(place, a.shape)] if place is not None else []
    out["same_bits"] = a.dtype == b.dtype and a.tobytes() == b.tobytes()
    return out


def write_pairs(folder, rng):
    cases = []
    with open(folder / "pairs.bin", "wb") as data:
        def put(array):
            at = data.tell()
            data.write(array.tobytes())
            return at

        for number in range(400):
            dtype = DTYPES[number % len(DTYPES)]
            shape = tuple(int(n) for n in rng.integers(0 if number % 17 == 0 else 1, 40, rng.integers(0, 3)))
            a = np.asarray(random_array(rng, dtype, shape))
            b = a.copy()
            how = number % 5
            if how == 1 and a.size:
                index = np.unravel_index(int(rng.integers(a.size)), a.shape)
                b[index] = random_array(rng, dtype, ()).astype(dtype)
            elif how == 2:
                b = np.asarray(random_array(rng, dtype, shape))
            elif how == 3 and a.dtype.kind == "f":
                b = (a * a.dtype.type(1 + 1e-3)).astype(dtype)
            elif how == 4:
                other = DTYPES[int(rng.integers(len(DTYPES)))]
                with np.errstate(all="ignore"):
                    b = np.asarray((a.real if np.dtype(other).kind != "c" else a).astype(other))
            cases.append({
                "dtype_a": str(a.dtype), "dtype_b": str(b.dtype), "shape": list(a.shape),
                "at_a": put(a), "at_b": put(b), "expected": oracle(a, b)
            })
    (folder / "pairs.json").write_text(json.dumps(cases))


def main():
    folder = pathlib.Path(sys.argv[1])
    write_floats(folder, random.Random(5))
    write_pairs(folder, np.random.default_rng(5))


main()
