# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
"""Grafts with the dumper of a newer SGLang: graft_interop_test.py with another version's unmodified file; what it prints
goes to docs/compat.md with its date.

    python tests/newer_sglang.py BUILD_FOLDER [--version 0.5.23] [test ...]

The python that runs this needs torch, pip and pyzmq. Of SGLang only the debug tools are unpacked. What the file imports from
the rest of it, which would want a GPU, is replaced by modules that hold no more than the names.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

TESTS = pathlib.Path(__file__).resolve().parent
STUBS = {
    "sglang/__init__.py": "",
    "sglang/srt/__init__.py": "",
    "sglang/srt/managers/__init__.py": "",
    "sglang/srt/managers/io_struct.py": "sock_recv = sock_send = wrap_as_pickle = None\n",
    "sglang/srt/runtime_context.py": "get_parallel = get_server_args = get_serving = None\n",
    "sglang/srt/utils.py": "def get_device():\n    return 'cpu'\n",
}


def unpack(version, folder):
    """The debug tools of the wheel, and the stubs beside them."""
    with tempfile.TemporaryDirectory() as downloads:
        # The tree wanted is plain Python; the platform is named because the wheel as a whole is built for few.
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--python-version",
             "3.11", "--platform", "manylinux_2_34_x86_64", "--dest", downloads, f"sglang=={version}"], check=True)
        (wheel,) = pathlib.Path(downloads).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            tools = [name for name in archive.namelist() if name.startswith("sglang/srt/debug_utils/")]
            archive.extractall(folder, tools)
    for name, text in STUBS.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--version", default="0.5.23")
    parser.add_argument("tests", nargs="*")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        unpack(arguments.version, pathlib.Path(folder))
        print(f"sglang {arguments.version}", flush=True)
        environment = dict(os.environ, DBG_TEST_SGLANG_DIR=folder, DBG_TEST_BINARY_DIR=str(arguments.build.resolve()))
        command = [sys.executable, str(TESTS / "interop/graft_interop_test.py"), *arguments.tests]
        return subprocess.run(command, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
