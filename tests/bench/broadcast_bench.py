# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
"""Benchmark of the weight broadcast over rate-limited links: a network namespace a rank, two cards each.

    python tests/bench/broadcast_bench.py BUILD_FOLDER [--mbit 200] [--megabytes 24] [--svg FILE] [--rows NAME,...] [--modes MODE,...]

Needs root and the right to make namespaces; where that is refused it prints SKIPPED and exits with 77. Each rank has a
card "nic" to a common fabric, limited in both directions, and a card "nvl" to its node's neighbours without limit; a
route for each peer takes the one or the other. All of it lives in namespaces of its own and is gone with the program.
Bytes are checked on every consumer. Ratios are asserted, absolute rates are not.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

SKIPPED = 77
SCRATCH = "DBG_BENCH_NAMESPACE"
BUCKET_MEGABYTES = 4

# name, nodes of the actors, nodes of the rollouts, modes
ROWS = [
    ("1+1", "a", "b", ["gloo", "chain"]),
    ("2+2, one consumer node", "a,a", "b,b", ["gloo", "chain", "striped"]),
    ("4+4, one consumer node", "a,a,a,a", "b,b,b,b", ["gloo", "chain", "striped"]),
    ("2+4, two consumer nodes", "a,a", "b,b,c,c", ["gloo", "chain", "striped"]),
    ("2+6, three consumer nodes", "a,a", "b,b,c,c,d,d", ["gloo", "chain", "striped"]),
    ("2+3, one consumer a node", "a,a", "b,c,d", ["gloo", "chain", "striped"]),
    ("3+2, actors on two nodes", "a,a,e", "b,b", ["chain", "striped", "chain+allreduce", "striped+allreduce"]),
]


def ip(*arguments, namespace=None):
    prefix = ["ip"] if namespace is None else ["ip", "-n", namespace]
    subprocess.run(prefix + list(arguments), check=True, capture_output=True, text=True)


def limit(device, mbit, namespace=None):
    prefix = [] if namespace is None else ["ip", "netns", "exec", namespace]
    rule = ["tc", "qdisc", "add", "dev", device, "root", "tbf", "rate", f"{mbit}mbit", "burst", "96kb", "latency", "100ms"]
    subprocess.run(prefix + rule, check=True, capture_output=True, text=True)


def address(rank):
    return f"10.77.0.{rank + 1}"


class Network:
    """The namespaces of one row."""

    def __init__(self, nodes, mbit):
        self.nodes = nodes
        ip("link", "add", "fabric", "type", "bridge")
        ip("link", "set", "fabric", "up")
        for node in sorted(set(nodes)):
            ip("link", "add", f"node_{node}", "type", "bridge")
            ip("link", "set", f"node_{node}", "up")
        for rank, node in enumerate(nodes):
            space = f"r{rank}"
            ip("netns", "add", space)
            for card, bridge in (("nic", "fabric"), ("nvl", f"node_{node}")):
                ip("link", "add", f"{card}{rank}", "type", "veth", "peer", "name", card, "netns", space)
                ip("link", "set", f"{card}{rank}", "master", bridge)
                ip("link", "set", f"{card}{rank}", "up")
                ip("link", "set", card, "up", namespace=space)
            ip("link", "set", "lo", "up", namespace=space)
            ip("addr", "add", f"{address(rank)}/32", "dev", "nic", namespace=space)
            limit(f"nic{rank}", mbit)
            limit("nic", mbit, namespace=space)
        for rank, node in enumerate(nodes):
            for peer, peers_node in enumerate(nodes):
                if peer == rank:
                    continue
                card = "nvl" if peers_node == node else "nic"
                ip("route", "add", f"{address(peer)}/32", "dev", card, "src", address(rank), namespace=f"r{rank}")

    def close(self):
        for rank in range(len(self.nodes)):
            ip("netns", "del", f"r{rank}")
        for bridge in ["fabric"] + [f"node_{node}" for node in sorted(set(self.nodes))]:
            ip("link", "del", bridge)


def run(program, actors, rollouts, mode, megabytes, rounds, card_rate):
    """The root's answer; the bytes were right on every consumer."""
    count = len(actors.split(",")) + len(rollouts.split(","))
    with tempfile.TemporaryDirectory() as folder:
        processes = []
        for rank in range(count):
            command = ["ip", "netns", "exec", f"r{rank}", str(program), str(rank), actors, rollouts, mode, f"{folder}/store"]
            command += ["nic", str(megabytes), str(BUCKET_MEGABYTES), str(rounds), "12", str(card_rate)]
            processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        outputs = [process.communicate(timeout=300) for process in processes]
    for rank, process in enumerate(processes):
        if process.returncode != 0:
            raise SystemExit(f"rank {rank} of {mode} failed: {outputs[rank][1]}")
    return json.loads(outputs[0][0].strip().splitlines()[-1])


def draw(results, rate, path):
    """Bars of MB/s by row and mode, with the limit of one card and of all that can be used."""
    colours = {"gloo": "#9aa5b1", "chain": "#5b8def", "striped": "#1c9e6e"}
    bars = [(row, mode, result["rate"]) for row, modes in results.items() for mode, result in modes.items()]
    most = max(value for _, _, value in bars) * 1.12
    width, left, height = 760, 210, 22
    lines = []
    y = 40
    last = None
    for row, mode, value in bars:
        if row != last:
            y += 12
            lines.append(f'<text x="{left - 10}" y="{y + 15}" text-anchor="end">{row}</text>')
            last = row
        length = (width - left - 120) * value / most
        colour = colours[mode.split("+")[0]]
        lines.append(f'<rect x="{left}" y="{y}" width="{length:.1f}" height="{height - 4}" fill="{colour}"/>')
        lines.append(f'<text x="{left + length + 6:.1f}" y="{y + 14}">{value:.1f} MB/s {mode}</text>')
        y += height
    at = left + (width - left - 120) * rate / most
    lines.append(f'<line x1="{at:.1f}" y1="40" x2="{at:.1f}" y2="{y + 4}" stroke="#c2410c" stroke-dasharray="4 3"/>')
    lines.append(f'<text x="{at:.1f}" y="32" text-anchor="middle" fill="#c2410c">one card: {rate:.1f} MB/s</text>')
    body = "\n".join(lines)
    pathlib.Path(path).write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y + 20}" font-family="sans-serif" font-size="12">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--mbit", type=int, default=200)
    parser.add_argument("--megabytes", type=float, default=24)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--svg")
    parser.add_argument("--rows", help="only rows whose name holds one of these, separated by commas")
    parser.add_argument("--modes", help="only these, separated by commas")
    arguments = parser.parse_args()
    program = (arguments.build / "tests/bench/broadcast_bench").resolve()

    if SCRATCH not in os.environ:
        # Everything below happens in a mount and a network namespace of its own.
        probe = subprocess.run(["unshare", "-m", "-n", "true"], capture_output=True)
        if probe.returncode != 0:
            print("SKIPPED: no right to make namespaces:", probe.stderr.decode().strip())
            return SKIPPED
        os.environ[SCRATCH] = "1"
        os.execvp("unshare", ["unshare", "-m", "-n", sys.executable, *sys.argv])
    os.makedirs("/run/netns", exist_ok=True)
    try:
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run/netns"], check=True, capture_output=True)
        ip("link", "set", "lo", "up")
        Network(["a", "b"], arguments.mbit).close()
    except (subprocess.CalledProcessError, FileNotFoundError) as error:
        print("SKIPPED: the network can't be laid out:", getattr(error, "stderr", error))
        return SKIPPED

    rate = arguments.mbit / 8  # MB/s of one card
    # A full Ethernet frame of 1514 bytes carries 1448 of TCP's.
    goodput = arguments.mbit * 1e6 / 8 * 1448 / 1514
    payload = arguments.megabytes * (1 << 20) / 1e6
    results = {}
    print(f"{arguments.mbit} Mbit/s a card, {payload:.1f} MB, the best of {arguments.rounds} rounds")
    print(f"{'row':28} {'mode':18} {'s':>8} {'MB/s':>8} {'of a card':>10} {'to chain':>9} {'predicted':>10} {'busy cores':>11}")
    for name, actors, rollouts, modes in ROWS:
        if arguments.rows and not any(word in name for word in arguments.rows.split(",")):
            continue
        network = Network((actors + "," + rollouts).split(","), arguments.mbit)
        results[name] = {}
        for mode in modes:
            if arguments.modes and mode not in arguments.modes.split(","):
                continue
            answer = run(program, actors, rollouts, mode, arguments.megabytes, arguments.rounds, goodput)
            seconds, busy, produced = min(zip(answer["seconds"], answer["busy_cores"], answer["produced"]))
            chain = results[name].get("chain" + mode.partition("striped")[2].partition("chain")[2]) if mode != "gloo" else None
            result = {"seconds": seconds, "rate": payload / seconds, "produced": produced, "predicted": answer["predicted"], "busy": busy}
            results[name][mode] = result
            ratio = f"{chain['seconds'] / seconds:9.2f}" if chain else f"{'':>9}"
            print(f"{name:28} {mode:18} {seconds:8.3f} {result['rate']:8.1f} {result['rate'] / rate:10.2f} {ratio} {answer['predicted']:10.3f} {busy:5.2f} of {os.cpu_count()}", flush=True)
            if answer["report"]:
                print(f"{'':28} {answer['report']}")
        network.close()
    if arguments.svg:
        draw(results, rate, arguments.svg)

    failures = []

    def demand(holds, text):
        if not holds:
            failures.append(text)

    for name, modes in results.items():
        for mode in ("chain", "striped"):
            if mode in modes:
                off = modes[mode]["predicted"] / modes[mode]["seconds"] - 1
                demand(abs(off) <= 0.15, f"{name}, {mode}: the model is off by {off:+.0%}")
            reducing = modes.get(f"{mode}+allreduce")
            if mode in modes and reducing:
                # The source and the wire side by side: the longer one, and one bucket of the other.
                pair = (reducing["produced"], modes[mode]["seconds"])
                aim = max(pair) + min(pair) / -(-payload * 1e6 // (BUCKET_MEGABYTES << 20))
                demand(reducing["seconds"] <= 1.15 * aim, f"{name}, {mode}: {reducing['seconds']:.2f} s beside a source of {pair[0]:.2f} s and a wire of {pair[1]:.2f} s, which leave {aim:.2f} s")
        if "chain" not in modes:
            continue
        demand(modes["chain"]["rate"] * 1e6 >= 0.95 * goodput, f"{name}: the chain has {modes['chain']['rate'] * 1e6 / goodput:.2f} of what a card carries")
        if "gloo" in modes:
            demand(modes["chain"]["seconds"] <= 1.05 * modes["gloo"]["seconds"], f"{name}: the chain is slower than gloo")
        if "striped" in modes:
            actors, rollouts = next((row[1], row[2]) for row in ROWS if row[0] == name)
            nodes = rollouts.split(",")
            senders = actors.split(",").count(actors[0])
            gain = min(senders, min(nodes.count(node) for node in nodes))
            demand(
                modes["chain"]["seconds"] / modes["striped"]["seconds"] >= 0.9 * gain,
                f"{name}: striped is {modes['chain']['seconds'] / modes['striped']['seconds']:.2f} times the chain, of {gain}",
            )
    for failure in failures:
        print("NOT:", failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
