# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
"""A port for a server that is started later, by a process that is told its number."""

import itertools
import os
import socket

FIRST, COUNT = 20000, 12000
_asked = itertools.count(os.getpid() % 1000 * 97)


def free_port():
    """One that nobody uses at the moment; no two calls of a process return the same.

    Below those that the kernel gives to outgoing connections, which are many while tests run beside each other; where to
    begin differs by process.
    """
    for _ in range(COUNT):
        port = FIRST + next(_asked) % COUNT
        with socket.socket() as taken:
            try:
                taken.bind(("", port))
            except OSError:
                continue
            return port
    raise OSError("no port is free")
