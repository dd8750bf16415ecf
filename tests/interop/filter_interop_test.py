# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
"""Asks 10,000 filter questions of dbg and of the unmodified Python dumper; where the dumper answers, both must agree.

The expressions come from a seeded grammar that covers the whole language, badly typed operands included. The dumper
raises on those; dbg must then count a mismatch, and must not count one anywhere else.
"""

import collections
import importlib.util
import json
import os
import pathlib
import random
import subprocess
import sys
import warnings

SEED = int(os.environ.get("DBG_TEST_SEED", 20240917))
NUM_QUESTIONS = 10_000
MOST_EXCUSED = 0.20
LEAST_OF_EACH_ANSWER = 0.25

NAMES = [
    "layers.0.attn.q_proj",
    "layers.11.mlp.down_proj",
    "attn_out",
    "model.embed",
    "Attn",
    "logits\n",
    "привет.Слой",
    "層_3·出力",
    "naïve ÉTÉ",
    "𝔘nicode🙂",
    "",
    "a.b\\c'd\"e",
    "x\ny",
    "٣٤ ²Ⅷ_",
    "100%",
]
PHASES = ["prefill", "decode", "Decode", ""]
PIECES = ["attn", "layers", "proj", ".", "q", "o", "dec", "е", "層", "🙂", "", "É", "é", "\n", "out", "0", "11", "e"]
BIG = [2**31, 2**53 + 1, -(2**53) - 1, 2**62, 2**63 - 1, -(2**63)]


class Grammar:
    """Random expressions; `kind` says what an expression most likely is, so that most of them mean something."""

    def __init__(self, rng):
        self.rng = rng

    def pick(self, *options):
        return self.rng.choice(options)

    def chance(self, share):
        return self.rng.random() < share

    # --- Literals ---

    def text(self, value=None):
        value = self.pick(*PIECES, *NAMES, *PHASES) if value is None else value
        style = self.rng.randrange(6)
        if style == 0:
            return repr(value)
        if style == 1:
            return ascii(value)
        if style == 2 and "\\" not in value and '"' not in value and "\n" not in value:
            return f'r"{value}"'
        if style == 3 and len(value) > 1:
            cut = self.rng.randrange(len(value))
            return f"{value[:cut]!r} {value[cut:]!r}"
        if style == 4 and "\\" not in value and not value.endswith('"'):
            return f'"""{value}"""'
        if any(c in "\\'\n" for c in value):
            return repr(value)
        return "'" + "".join(self.escaped(c) for c in value) + "'"

    def escaped(self, char):
        if ord(char) < 256 and self.chance(0.3):
            return f"\\x{ord(char):02x}"
        return f"\\U{ord(char):08X}" if self.chance(0.1) else char

    def integer(self):
        value = self.pick(0, 1, 2, 3, 5, 7, 11, 12, 31, self.rng.randrange(100))
        return self.pick(str(value), str(value), hex(value), oct(value), bin(value))

    def real(self):
        return self.pick("0.5", "1.0", "2.", ".25", "1e1", "3.5e-1", "1_0.0_1", "1E+2", "11.0", "-0.0", "0.1")

    # --- Values ---

    def number(self, depth):
        if depth <= 0 or self.chance(0.3):
            return self.pick("layer_id", "layer_id", "step", "scale", "flag", self.integer(), self.integer(), self.real())
        kind = self.rng.randrange(8)
        if kind <= 3:
            left, right = self.number(depth - 1), self.number(depth - 1)
            return f"({left} {self.pick('+', '-', '*', '//', '%')} {right})"
        if kind == 4:
            return f"{self.pick('-', '+', '--')}{self.number(depth - 1)}"
        if kind == 5:
            return f"({self.number(depth - 1)} if {self.truth(depth - 1)} else {self.number(depth - 1)})"
        if kind == 6:
            items = [self.number(depth - 1) for _ in range(1 + self.rng.randrange(3))]
            return f"[{', '.join(items)}][{self.pick('0', '0', '-1', 'False', '1')}]"
        return self.pick("big", str(self.pick(*BIG)), "(big - 1)", "(big + layer_id)")

    def string(self, depth):
        if depth <= 0 or self.chance(0.5):
            return self.pick("name", "name", "name", "phase", "phase", self.text())
        kind = self.rng.randrange(6)
        if kind == 0:
            return f"({self.string(depth - 1)} + {self.string(depth - 1)})"
        if kind == 1:
            return f"({self.string(depth - 1)} * {self.pick('0', '1', '2', '3', '-1', 'True')})"
        if kind == 2:
            return f"{self.string(depth - 1)}[{self.bound()}]"
        if kind == 3:
            return f"({self.string(depth - 1)} {self.pick('or', 'and')} {self.string(depth - 1)})"
        if kind == 4:
            return f"({self.string(depth - 1)} if {self.truth(depth - 1)} else {self.string(depth - 1)})"
        return f"{self.string(depth - 1)}{self.slice()}"

    def bound(self):
        return self.pick("0", "-1", "2", "layer_id", "True")

    def slice(self):
        bounds = ["", "", "0", "1", "3", "-1", "-3", "100", "-100", "None", "layer_id", "9223372036854775807"]
        start, stop = self.pick(*bounds), self.pick(*bounds)
        if self.chance(0.5):
            return f"[{start}:{stop}]"
        return f"[{start}:{stop}:{self.pick('', '1', '2', '-1', '-2', '3', '-7', 'None')}]"

    def sequence(self, depth):
        items = [self.value(depth - 1) for _ in range(self.rng.randrange(4))]
        if depth > 0 and self.chance(0.2):
            return f"({self.sequence(depth - 1)} {self.pick('+', '+', '*')} {self.pick(self.sequence(depth - 1), '2')})"
        if depth > 0 and self.chance(0.15):
            return f"{self.sequence(depth - 1)}{self.slice()}"
        if self.chance(0.5):
            return f"[{', '.join(items)}]"
        return f"({', '.join(items)}{',' if len(items) == 1 or items and self.chance(0.3) else ''})"

    def set(self, depth):
        items = [self.hashable(depth - 1) for _ in range(1 + self.rng.randrange(4))]
        if depth > 0 and self.chance(0.2):
            return f"({self.set(depth - 1)} - {self.set(depth - 1)})"
        return f"{{{', '.join(items)}}}"

    def hashable(self, depth):
        if depth > 0 and self.chance(0.2):
            return f"({self.hashable(depth - 1)}, {self.hashable(depth - 1)})"
        return self.pick(self.number(0), self.number(0), self.string(0), "None", "True", "absent")

    def value(self, depth):
        kind = self.rng.randrange(12)
        if kind <= 4:
            return self.number(depth)
        if kind <= 8:
            return self.string(depth)
        if kind == 9:
            return self.pick("None", "True", "False", "absent", "flag")
        return self.sequence(depth) if depth > 0 else self.number(0)

    # --- Conditions ---

    def truth(self, depth):
        if depth <= 0:
            return self.pick("flag", "True", "False", "layer_id is None", "name", "layer_id", "not absent")
        kind = self.rng.randrange(20)
        if kind <= 3:
            joint = self.pick(" and ", " or ")
            return f"({joint.join(self.truth(depth - 1) for _ in range(2 + self.rng.randrange(2)))})"
        if kind <= 5:
            return f"not {self.pick('', 'not ')}{self.comparison(depth - 1)}"
        if kind == 6:
            return self.value(depth - 1)
        if kind <= 9:
            return f"{self.pick('search', 'search', 'match')}({self.text(self.pattern())}, {self.subject(depth - 1)})"
        if kind <= 11:
            method = self.pick("startswith", "endswith")
            return f"{self.subject(depth - 1)}.{method}({self.affix(depth - 1)})"
        return self.comparison(depth)

    def subject(self, depth):
        return self.pick("name", "name", "name", "phase", self.string(depth))

    def affix(self, depth):
        if self.chance(0.3):
            texts = [self.string(0) for _ in range(self.rng.randrange(4))]
            return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"
        return self.string(depth)

    def comparison(self, depth):
        kind = self.rng.randrange(12)
        order = lambda: self.pick("<", "<=", ">", ">=", "==", "!=")
        if kind <= 2:
            chain = self.number(depth)
            for _ in range(1 + self.rng.randrange(3)):
                chain += f" {order()} {self.number(depth - 1)}"
            return chain
        if kind <= 4:
            return f"{self.string(depth)} {order()} {self.string(depth - 1)}"
        if kind == 5:
            return f"{self.value(depth)} {self.pick('==', '!=')} {self.value(depth)}"
        if kind == 6:
            return f"{self.value(depth)} {self.pick('is', 'is not')} {self.pick('None', 'None', 'True', 'False')}"
        if kind == 7:
            return f"{self.string(depth)} {self.pick('in', 'not in')} {self.string(depth)}"
        if kind == 8:
            left = self.pick(self.value(0), self.value(0), self.hashable(depth))
            return f"{left} {self.pick('in', 'not in')} {self.pick(self.sequence(depth), self.set(depth))}"
        if kind == 9:
            return f"{self.sequence(depth)} {order()} {self.sequence(depth)}"
        if kind == 10:
            return f"{self.set(depth)} {order()} {self.set(depth)}"
        if self.chance(0.6):
            return f"{self.value(depth)} {self.pick('==', '!=')} {self.value(depth)}"
        return f"{self.value(depth)} {order()} {self.value(depth)}"  # anything with anything

    # --- Patterns ---

    def pattern(self):
        head = self.pick("", "", "", "(?i)", "(?s)", "(?m)", "(?a)", "(?ai)", "(?i)(?s)")
        body = self.branch(2)
        tail = self.pick("", "", "", "$", r"\Z", "(?:$|x)", "(?:$)?")
        multiline = "m" in head
        if multiline and self.chance(0.5):
            body = self.pick("^", "") + body + self.pick("$\n", "$", "") + self.branch(1)
        return head + self.pick("", "", "^", r"\A") + body + tail

    def branch(self, depth):
        options = [self.pieces(depth) for _ in range(self.pick(1, 1, 2, 3))]
        return f"(?:{'|'.join(options)})" if len(options) > 1 else options[0]

    def pieces(self, depth):
        return "".join(self.piece(depth) for _ in range(1 + self.rng.randrange(3)))

    def quantifier(self):
        return self.pick("", "", "", "", "*", "+", "?", "*?", "+?", "??", "{2}", "{1,3}", "{,2}", "{1,}", "{0}")

    def piece(self, depth):
        if depth > 0 and self.chance(0.3):
            return self.pick("(", "(?:", "(?P<g%d>" % self.rng.randrange(10**9), "(?i:", "(?-i:", "(?s:", "(?a:") + (
                # No endless repeat of a group: Python would take exponential time where dbg does not.
                self.branch(depth - 1) + ")" + self.pick("", "", "?", "{2}", "{,2}", "??", "{0}")
            )
        return self.single() + self.quantifier()

    def single(self):
        kind = self.rng.randrange(10)
        if kind <= 4:
            return self.pick("a", "t", "o", "e", "q", "p", "_", r"\.", "l", "層", "е", "П", "é", "k", "s", "i", "0", "1", "{", "x{")
        if kind <= 6:
            return self.pick(r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", ".", r"\n", r"\x2e", r"\056", r"\u0065", r"\-", r"\t")
        if kind == 7:
            return "."
        return self.char_class()

    def char_class(self):
        if self.chance(0.1):
            return self.pick(r"[^\W]", r"[\W_]", r"[\W\d]", "[]a]", "[^]a]", "[a-]", "[-a]", r"[\]\-]", "[.*+?{}()|^$]", r"[\b]")
        items = "".join(
            self.pick("a-f", "A-Z", "0-9", "а-я", "é", "_", ".", r"\d", r"\s", r"\w", r"\D", r"\x61-\x7a", "^", "層", "i-k", r"\S")
            for _ in range(1 + self.rng.randrange(3))
        )
        items = "^".join(["o", *items.split("^")[1:]]) if items.startswith("^") else items
        return f"[{self.pick('', '^')}{items}]"

    # --- Tags ---

    def tags(self):
        tags = {"name": self.pick(*NAMES)}
        if self.chance(0.97):
            tags["layer_id"] = self.pick(0, 1, 2, 3, 7, 11, 31, True, 1.0) if self.chance(0.97) else None
        if self.chance(0.95):
            tags["phase"] = self.pick(*PHASES)
        tags["step"] = self.rng.randrange(20)
        tags["flag"] = self.pick(True, False)
        tags["scale"] = self.pick(0.5, 1.0, -2.25, 11.0, 1e-9, -0.0, 7)
        tags["big"] = self.pick(*BIG)
        return tags


def load_peer():
    path = pathlib.Path(os.environ["DBG_TEST_SGLANG_DIR"]) / "sglang" / "srt" / "debug_utils" / "dumper.py"
    if not path.exists():
        print(f"SKIPPED: no {path}; `cmake/bootstrap.sh --full` brings the peers")
        sys.exit(77)
    try:
        spec = importlib.util.spec_from_file_location("peer_dumper", path)
        module = importlib.util.module_from_spec(spec)
        sys.modules["peer_dumper"] = module
        spec.loader.exec_module(module)
    except ImportError as error:
        print(f"SKIPPED: {error}; `cmake/bootstrap.sh --full` brings the peers")
        sys.exit(77)
    return module


def typed(key, value):
    kind = "none" if value is None else {bool: "bool", int: "int", float: "float", str: "text"}[type(value)]
    return [key, kind, value if kind == "text" else repr(value)]


def main():
    warnings.simplefilter("ignore")  # '"x" is None' and its like
    peer = load_peer()
    grammar = Grammar(random.Random(SEED))
    questions = [(grammar.truth(1 + grammar.rng.randrange(3)), grammar.tags()) for _ in range(NUM_QUESTIONS)]
    asked = "".join(
        json.dumps({"filter": text, "tags": [typed(k, v) for k, v in tags.items()]}) + "\n" for text, tags in questions
    )
    program = pathlib.Path(os.environ["DBG_TEST_BINARY_DIR"]) / "tests" / "interop" / "filter_answers"
    answers = subprocess.run([program], input=asked, capture_output=True, text=True, check=True, timeout=100).stdout
    answers = [json.loads(line) for line in answers.splitlines()]
    assert len(answers) == NUM_QUESTIONS, len(answers)

    count = collections.Counter()
    failures = []
    for (text, tags), answer in zip(questions, answers):
        try:
            expected = peer._evaluate_filter(text, tags)
        except SyntaxError as error:
            failures.append((text, tags, answer, f"the grammar made what Python refuses: {error}"))
            continue
        except Exception as error:  # what the peer refuses to do, it raises in the middle of a run
            expected = error
        raised = isinstance(expected, Exception)
        count["excused" if raised else str(expected)] += 1
        if raised:
            right = answer.get("mismatches", 0) > 0
        else:
            right = answer.get("keeps") is expected and answer["mismatches"] == 0
        if not right:
            failures.append((text, tags, answer, repr(expected)))

    for text, tags, answer, expected in failures[:20]:
        print(f"filter   {text}\n  tags   {tags}\n  dbg    {answer}\n  peer   {expected}")
    excused = count["excused"] / NUM_QUESTIONS
    print(f"{NUM_QUESTIONS} questions: True {count['True']}, False {count['False']}, excused {excused:.1%}")
    assert not failures, f"{len(failures)} answers differ"
    assert excused < MOST_EXCUSED, "too many questions without an answer say too little"
    assert min(count["True"], count["False"]) > LEAST_OF_EACH_ANSWER * NUM_QUESTIONS, "one answer is too rare"


if __name__ == "__main__":
    main()
