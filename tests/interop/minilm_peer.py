# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
# What the tests of examples/minilm share: where things are, running the program, the same model in transformers.
import os
import pathlib
import subprocess
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"

SOURCE = pathlib.Path(os.environ["DBG_TEST_SOURCE_DIR"])
PROGRAMS = pathlib.Path(os.environ["DBG_TEST_BINARY_DIR"]) / "examples" / "minilm"
MODEL = pathlib.Path(os.environ["DBG_TEST_MINILM_DIR"])
MAX_LENGTH = 256


def skip(reason):
    print(f"SKIPPED: {reason}")
    sys.exit(77)


try:
    import torch
    import transformers
except ImportError as error:
    skip(f"{error}; `cmake/bootstrap.sh --full` installs the peers")
if not (MODEL / "model.safetensors").exists():
    skip(f"no model in {MODEL}; `cmake/bootstrap.sh --model` fetches it")


def run_minilm(arguments, env=None, check=True):
    """Runs the program; dumping is off unless `env` turns it on."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("DUMPER_")}
    result = subprocess.run(
        [PROGRAMS / "minilm", "--model", MODEL, *map(str, arguments)],
        env={**clean, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    if check and result.returncode != 0:
        raise AssertionError(f"minilm {arguments} ended with {result.returncode}: {result.stderr.decode()}")
    return result


def load_tokenizer():
    return transformers.AutoTokenizer.from_pretrained(MODEL)


def tokenize(tokenizer, lines):
    return tokenizer(lines, truncation=True, max_length=MAX_LENGTH)["input_ids"]


def dumping(folder, name):
    """The environment that makes a run write its records into `folder`/`name`."""
    return {
        "DUMPER_ENABLE": "1",
        "DUMPER_DIR": str(folder),
        "DUMPER_EXP_NAME": name,
        "DUMPER_ENABLE_OUTPUT_CONSOLE": "0",
    }


def run_twin(folder, name, arguments):
    """Starts minilm_twin.py, whose records SGLang's own dumper writes into `folder`/`name`."""
    return subprocess.Popen(
        [sys.executable, SOURCE / "tests/interop/minilm_twin.py", *map(str, arguments)],
        env={**os.environ, **dumping(folder, name), "PYTHONPATH": os.environ["DBG_TEST_SGLANG_DIR"]},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def wait_for(*processes):
    for process in processes:
        output = process.communicate()[0].decode()
        if process.returncode != 0:
            raise AssertionError(f"{process.args} ended with {process.returncode}: {output}")
