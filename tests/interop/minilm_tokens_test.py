# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
# The example's tokenizer against transformers' own: real text of many scripts, odd input, every code point.
import collections
import gettext
import pathlib
import sys
import tempfile
import unicodedata

from minilm_peer import MAX_LENGTH, load_tokenizer, run_minilm, skip, tokenize

NUM_LINES = 1000


def real_lines():
    """NUM_LINES messages of Django's translations, taken from its languages in turn."""
    try:
        import django
    except ImportError as error:
        skip(f"{error}; `cmake/bootstrap.sh --full` installs the peers")
    by_language = []
    for path in sorted((pathlib.Path(django.__file__).parent / "conf" / "locale").glob("*/LC_MESSAGES/django.mo")):
        with open(path, "rb") as file:
            messages = gettext.GNUTranslations(file)._catalog
        texts = [v.replace("\n", " ") for k, v in messages.items() if k and isinstance(v, str) and len(v) > 20]
        by_language.append(sorted(texts, key=len, reverse=True))
    num_languages = sum(1 for texts in by_language if texts)
    lines = []
    while len(lines) < NUM_LINES:
        left = len(lines)
        for texts in by_language:
            if texts:
                lines.append(texts.pop(0))
        assert len(lines) > left, f"Django has only {len(lines)} messages"
    return lines[:NUM_LINES], num_languages


ODD_LINES = [
    "",
    "   \t ",
    "x" * 100 + " " + "x" * 101,
    "word " * 300,
    "ünïcödé " * 300,
    "[CLS] a [SEP] b [MASK][PAD] [UNK] [cls] [SEPx [",
    "it's re-entrant, isn't it? yes/no (maybe) $5.00 100% #1 a_b a^b `c` ~d",
    "zero\u200bwidth soft\u00adhyphen bidi\u202emark bom\ufeffhere nul\x00in bell\x07in \ufffd",
    "no\u00a0break en\u2002space ideographic\u3000space line\u2028separator next\u0085line vertical\x0btab",
    "e\u0301 \u00e9 \u0130stanbul \u0131 \u00df \u1e9e \u01c5 \u03a3\u03af\u03c3\u03c5\u03c6\u03bf\u03c2 \ufb01n",
    "\u1112\u1161\u11ab\uae00 \ud55c\uae00 \u304c\u3099 \u30ac \uff76\uff9e \u4e2d\u6587\u5b57 \uf900 \U00020000 \U0002f800",
    "emoji \U0001f469\u200d\U0001f4bb \U0001f1e9\U0001f1ea \u2764\ufe0f 1\ufe0f\u20e3 \U0001f44d\U0001f3fd",
    "\u0915\u094d\u0937\u093f \u0e01\u0e33 \u0f40\u0fb5 \u1780\u17d2\u1798 \u0627\u0644\u0633\u0651\u0644\u0627\u0645",
    "\u2018quoted\u2019 \u201cdouble\u201d \u00abguillemets\u00bb \u2014 dash \u2026 \u00bf\u00a1 \u3001\u3002 \u060c \u0964",
    "x\u00b2 \u2460 \u215b \u20ac5 \u00a35 \u2122 \u00aa \u2126 \u212b \u00b5m",
]


def check(tokenizer, lines, what):
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", newline="\n", suffix=".txt") as file:
        file.write("".join(line + "\n" for line in lines))
        file.flush()
        output = run_minilm(["--sentences", file.name, "--token-ids"]).stdout.decode().split("\n")
    assert output.pop() == "" and len(output) == len(lines), f"{what}: {len(lines)} lines in, {len(output)} out"
    wanted = tokenize(tokenizer, lines)
    return [(line, ids, got) for line, ids, got in zip(lines, wanted, output) if got != " ".join(map(str, ids))]


def check_real(tokenizer):
    lines, num_languages = real_lines()
    text = "".join(lines)
    scripts = collections.Counter(unicodedata.name(c, "?").split()[0] for c in text if c.isalpha())
    scripts = [s for s, count in scripts.items() if count >= 20]
    assert num_languages >= 80 and len(scripts) >= 15, (num_languages, scripts)
    wrong = check(tokenizer, lines, "real text")
    for line, ids, got in wrong[:10]:
        print(f"  {line!r}\n    transformers {ids}\n    minilm       {got}")
    print(f"real text: {len(lines) - len(wrong)} of {len(lines)} lines equal; {num_languages} languages, "
          f"{len(scripts)} scripts, {sum(len(i) for i in tokenize(tokenizer, lines))} tokens")
    return not wrong


def check_odd(tokenizer):
    assert max(len(ids) for ids in tokenize(tokenizer, ODD_LINES)) == MAX_LENGTH, "no line is long enough to be cut"
    wrong = check(tokenizer, ODD_LINES, "odd text")
    for line, ids, got in wrong:
        print(f"  {line!r}\n    transformers {ids}\n    minilm       {got}")
    print(f"odd text: {len(ODD_LINES) - len(wrong)} of {len(ODD_LINES)} lines equal")
    return not wrong


def check_code_points(tokenizer):
    """Every assigned code point, within a word and alone.

    tokenizers' tables are of Unicode 8, utf8proc's are newer. What was added between them may differ, if it is a mark,
    a sign or a format character: letters may not, and no character of a living language's everyday text is among them.
    """
    assigned = [c for c in map(chr, range(1, sys.maxunicode + 1)) if unicodedata.category(c) not in ("Cn", "Cs", "Co")]
    points = [c for c in assigned if c != "\n"]
    wrong = check(tokenizer, [f"a{c}b {c}" for c in points], "code points")
    kinds = collections.Counter(unicodedata.category(line[1]) for line, _, _ in wrong)
    print(f"code points: {len(points) - len(wrong)} of {len(points)} equal; the others by category: {dict(kinds)}")
    letters = [line for line, _, _ in wrong if unicodedata.category(line[1])[0] in "LNZ" or line[1] < "\u0300"]
    return not letters and len(wrong) < 600


def main():
    tokenizer = load_tokenizer()
    # A list, so that each is run and reported whatever the others say.
    return 0 if all([check_real(tokenizer), check_odd(tokenizer), check_code_points(tokenizer)]) else 1


if __name__ == "__main__":
    sys.exit(main())
