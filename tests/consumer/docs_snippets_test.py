# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
"""Compiles the C++ snippets of README.md, docs/ and examples/ as a client would; errors name the page and its line.

    python tests/consumer/docs_snippets_test.py COMPILER [FLAG ...]

A block with a main() is a program and is compiled alone. Any other is a fragment: its leading #include lines come first,
the rest stands in a function of its own, with the names of docs_names.h declared before. Fragments without includes get
all of dbg. A block that can't be compiled says so in its fence, ```cpp no-compile, and is listed.
"""

import os
import pathlib
import re
import subprocess
import sys

SOURCE_DIR = pathlib.Path(os.environ["DBG_TEST_SOURCE_DIR"])
NAMES = '#include "consumer/docs_names.h"\n'
# A program that passes a store on includes its header, as docs/weight_broadcaster.md says.
ALL_OF_DBG = "#include <dbg/dbg.h>\n#include <torch/csrc/distributed/c10d/Store.hpp>\n"


class Block:
    """One fenced block: `line` is that of its first line of code."""

    def __init__(self, page, line, lines, info):
        self.page, self.line, self.lines, self.info = page, line, lines, info
        self.head = 0  # how many lines of includes it begins with
        while self.head < len(lines) and re.match(r"\s*(#include\b.*)?$", lines[self.head]):
            self.head += 1
        if not any(line.strip() for line in lines[:self.head]):
            self.head = 0

    def part(self, first, last):
        return f'#line {self.line + first} "{self.page}"\n' + "".join(line + "\n" for line in self.lines[first:last])

    def is_program(self):
        return any(re.match(r"int main\(", line) for line in self.lines)


def blocks_of(page, text):
    """The C++ blocks of a page, in order."""
    blocks, fence, info, start, lines = [], None, "", 0, []
    for number, line in enumerate(text.splitlines(), 1):
        mark = re.match(r"\s*(```+)\s*(.*?)\s*$", line)
        if fence is None and mark:
            fence, info, start, lines = mark[1], mark[2], number + 1, []
        elif fence is not None and mark and mark[1] == fence and not mark[2]:
            if re.match(r"(cpp|c\+\+|cxx)\b", info, re.IGNORECASE):
                blocks.append(Block(page, start, lines, info))
            fence = None
        elif fence is not None:
            lines.append(line)
    if fence is not None:
        sys.exit(f"{page}:{start - 1}: this fence has no end")
    return blocks


def sources_of(blocks):
    """The translation units: one for each program, one for all fragments."""
    programs = [block for block in blocks if block.is_program()]
    # Those with includes first, while nothing but their own is there.
    fragments = sorted((block for block in blocks if not block.is_program()), key=lambda block: block.head == 0)
    text, complete = NAMES, False
    for number, block in enumerate(fragments):
        if block.head == 0 and not complete:
            text, complete = text + ALL_OF_DBG, True
        text += block.part(0, block.head)
        text += f"namespace docs {{\nvoid snippet_{number}() {{\n" + block.part(block.head, len(block.lines)) + "}\n}\n"
    return [block.part(0, len(block.lines)) for block in programs] + ([text] if fragments else [])


def compile_source(compiler, text):
    """What the compiler has to say; empty when it takes the text."""
    # The older of the standards that the headers promise. Names that nobody uses are what an example is made of.
    command = compiler + ["-std=c++17", "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wno-unused",
                          "-Wunused-result", f"-I{SOURCE_DIR / 'tests'}", "-x", "c++", "-"]
    run = subprocess.run(command, input=text, text=True, stderr=subprocess.PIPE, check=False,
                         env={**os.environ, "LC_ALL": "C"})
    return "" if run.returncode == 0 else run.stderr or f"the compiler ended with {run.returncode}"


def check_that_it_can_fail(compiler):
    """Planted pages, without any header, to cost next to nothing."""
    page = "Text.\n\n```sh\nint not_cpp;\n```\n\n```cpp\n#include <cstddef>\n\nint fine = 0;\nint wrong = no_such_name;\n```\n"
    found = blocks_of("planted.md", page + "```cpp no-compile\n...\n```\n")
    assert [(block.line, block.head, block.info) for block in found] == [(8, 2, "cpp"), (14, 0, "cpp no-compile")], found
    text = sources_of(found[:1])[0].replace(NAMES, "")
    said = compile_source(compiler, text)
    assert "planted.md:11:" in said and "no_such_name" in said, f"a wrong snippet was not found:\n{text}\n{said}"
    said = compile_source(compiler, text.replace("no_such_name", "1"))
    assert not said, f"a right snippet was refused:\n{text}\n{said}"
    program = sources_of(blocks_of("planted.md", "```cpp\nint main() {\n  return 0\n}\n```\n"))
    assert len(program) == 1 and "planted.md:3:" in compile_source(compiler, program[0]), program


def main():
    compiler = sys.argv[1:]
    check_that_it_can_fail(compiler)
    pages = [SOURCE_DIR / "README.md"] + sorted(SOURCE_DIR.glob("docs/*.md")) + sorted(SOURCE_DIR.glob("examples/*.md"))
    found = []
    for page in pages:
        name = str(page.relative_to(SOURCE_DIR))
        for block in blocks_of(name, page.read_text(encoding="utf-8")):
            left_out = block.info == "cpp no-compile"
            print(f"{name}:{block.line}: {len(block.lines)} lines{', not compiled' if left_out else ''}")
            if not left_out:
                found.append(block)
    if len(found) < 7:
        sys.exit(f"only {len(found)} snippets found: where are the others?")
    said = "".join(compile_source(compiler, text) for text in sources_of(found))
    if said:
        sys.exit(f"snippets that a client can't compile:\n{said}")


if __name__ == "__main__":
    main()
