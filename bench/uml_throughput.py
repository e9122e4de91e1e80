#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""TCP, UDP and ping of User-mode Linux guests on a tap, by what carries their frames.

    iperf3 -c, ping (host, .1) --tap--> uvhostd --vhost-user--> guest (.2), iperf3 -s
                               --tap--> the guest's own "vector" driver

All guests are up at the same time in one namespace, each on a tap of its own, and are measured one
after the other, round by round: what else the machine does falls on all of them alike.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

import report
import uml

ABOUT = "a User-mode Linux guest: TCP, UDP, ping; io_uring, plain, the guest's own tap"

# The host's default may pace (BBR); the guest's kernel has but this one.
CONGESTION = "cubic"
CLOCK_TICK = os.sysconf("SC_CLK_TCK")


class Variant:
    """A guest, and what carries its frames."""

    def __init__(self, name, index, folder):
        self.name, self.folder = name, folder
        self.net = uml.Net(index)
        self.path = f"{folder}/{name}"

    def boot(self, stack):
        self.start(stack)
        self.guest = stack.enter_context(self.new_guest())
        self.net.set_up_host()

    def ready(self):
        self.guest.run(f"ip addr add {self.net.guest}/24 dev {self.nic}; ip link set {self.nic} up")
        self.guest.run("iperf3 -s -D >/dev/null 2>&1 </dev/null")
        uml.answers(self.net.guest)

    def guest_cpu(self):
        """Seconds of the guest's kernel and of the processes that run in it."""
        return sum(task_seconds(pid) for pid in descendants(self.guest.proc.pid))


class Uvhost(Variant):
    nic = "eth0"

    def __init__(self, name, index, folder, options, binary):
        super().__init__(name, index, folder)
        self.options, self.binary = options, binary

    def start(self, stack):
        os.environ["UVHOSTD"] = self.binary
        self.daemon = stack.enter_context(
            uml.Daemon(f"--socket-path={self.path}", f"--port=tap:{self.net.tap}", *self.options,
                       sockets=[self.path]))

    def new_guest(self):
        return uml.Guest(self.path, self.folder, f"{self.name}-guest")

    def host_cpu(self):
        return self.daemon.cpu_seconds()

    def counters(self):
        (dev,) = self.daemon.stats()["devices"].values()
        return dev


class Vector(Variant):
    """The guest's own transport: recvmmsg() and sendmmsg() on a tap that is there already."""

    nic = "vec0"

    def start(self, stack):
        uml.sh(f"ip tuntap add {self.net.tap} mode tap vnet_hdr")

    def new_guest(self):
        guest = uml.Guest(self.path, self.folder, f"{self.name}-guest")
        guest.nic = f"vec0:transport=tap,ifname={self.net.tap},depth=128,gro=1"
        return guest

    def host_cpu(self):
        return 0.0

    def counters(self):
        return None


def descendants(pid):
    """A process and all below it."""
    found = [pid]
    for parent in found:
        with contextlib.suppress(OSError):
            for task in pathlib.Path(f"/proc/{parent}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
    return found


def task_seconds(pid):
    with contextlib.suppress(OSError):
        return int(pathlib.Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    return 0.0


# ---- what is measured ----

def iperf(variant, seconds, *options):
    """One run of iperf3; its report."""
    args = ["timeout", "-k", "5", str(seconds + 15), "iperf3", "-J", "-c", variant.net.guest, "-t",
            str(seconds), *options]
    for _ in range(3):  # a server that still ends the run before refuses
        run = subprocess.run(args, check=False, capture_output=True, text=True)
        result = json.loads(run.stdout or "{}")
        if "sum_received" in result.get("end", {}) or "sum" in result.get("end", {}):
            return result["end"]
        time.sleep(0.5)
    raise RuntimeError(f"{variant.name}: {run.stdout[-500:]}{run.stderr}")


def tcp(variant, seconds, *options):
    """Gbit/s and what a gigabyte costs."""
    before = variant.counters(), variant.guest_cpu(), variant.host_cpu(), time.monotonic()
    end = iperf(variant, seconds, "-C", CONGESTION, *options)
    wall = time.monotonic() - before[3]
    got = end["sum_received"]
    result = {
        "gbit_s": got["bits_per_second"] / 1e9,
        "retransmits": end["sum_sent"].get("retransmits", 0),
        "guest_cpu_s_gb": (variant.guest_cpu() - before[1]) / (got["bytes"] / 1e9),
        "guest_cpu_share": (variant.guest_cpu() - before[1]) / wall,
        "daemon_cpu_s_gb": (variant.host_cpu() - before[2]) / (got["bytes"] / 1e9),
        "daemon_cpu_share": (variant.host_cpu() - before[2]) / wall,
    }
    after = variant.counters()
    if after:
        for queue in ("rx", "tx"):
            frames, size, calls = (after[queue][key] - before[0][queue][key]
                                   for key in ("frames", "bytes", "calls"))
            result[f"{queue}_bytes_frame"] = size / max(frames, 1)
            result[f"{queue}_frames_call"] = frames / max(calls, 1)
    return result


def loopback(variant, seconds):
    """The guest with itself: what it can do at best, in this minute on this machine."""
    out = variant.guest.run(f"iperf3 -J -c 127.0.0.1 -t {seconds}", seconds + 20)
    return {"gbit_s": json.loads(out)["end"]["sum_received"]["bits_per_second"] / 1e9}


def udp(variant, seconds, *options):
    """20 Mbit/s in datagrams of 1,400 bytes, about what a guest's process can take: what arrived."""
    end = iperf(variant, seconds, "-u", "-b", "20M", "-l", "1400", *options)
    total = end["sum"]
    return {"mbit_s": (1 - total["lost_percent"] / 100) * total["bits_per_second"] / 1e6,
            "lost_percent": total["lost_percent"], "jitter_ms": total["jitter_ms"]}


def ping(variant):
    out = uml.sh(f"ping -n -q -c 100 -i 0.01 -W 2 {variant.net.guest}")
    low, mean, *_ = map(float, re.search(r"= ([\d./]+)", out)[1].split("/"))
    return {"mean_ms": mean, "min_ms": low}


# iperf3 moves 128 KiB a system call unless told otherwise, and a guest's system call is dear here.
MEASURES = {
    "tcp_in": tcp,
    "tcp_out": lambda v, seconds: tcp(v, seconds, "-R"),
    "tcp_in_1m": lambda v, seconds: tcp(v, seconds, "-l", "1M"),
    "tcp_out_1m": lambda v, seconds: tcp(v, seconds, "-l", "1M", "-R"),
    "loopback": loopback,
    "udp_in": udp,
    "udp_out": lambda v, seconds: udp(v, seconds, "-R"),
    "ping": lambda v, seconds: ping(v),
}


# ---- the run ----

def variants(folder, binaries):
    """Two engines with and without segmentation offload, and the guest's own transport."""
    index = iter(range(1, 100))
    for n, binary in enumerate(binaries):
        tag = "" if n == 0 else f"-{n}"
        binary, *more = shlex.split(binary)
        for engine in ("uring", "plain") if len(binaries) == 1 else ("uring",):
            for name, options in ((engine, []), (f"{engine}-notso", ["--offload=-tso"])):
                if len(binaries) == 1 or not options:
                    yield Uvhost(name + tag, next(index), folder,
                                 [f"--io={engine}", *options, *more], binary)
    yield Vector("vec", next(index), folder)


def measure(machines, wanted, rounds, seconds):
    """runs[measure][variant] = a list, one result a round."""
    # A guest with itself is the same in all.
    who = {name: machines[:1] if name == "loopback" else machines for name in wanted}
    runs = {name: {v.name: [] for v in who[name]} for name in wanted}
    for turn in range(rounds):
        for name in wanted:
            first = turn % len(who[name])  # each round begins with another one
            for variant in who[name][first:] + who[name][:first]:
                runs[name][variant.name].append(MEASURES[name](variant, seconds))
                print(".", end="", flush=True, file=sys.stderr)
    print(file=sys.stderr)
    return runs


def figures(runs):
    """Medians of everything, ratios of the first figure to the first variant's."""
    result = {}
    for name, by_variant in runs.items():
        result[name] = {}
        base = next(iter(by_variant.values()))
        for variant, values in by_variant.items():
            stats = {key: report.summary([v[key] for v in values]) for key in values[0]}
            key = next(iter(values[0]))
            stats["ratio"] = report.ratios([v[key] for v in values], [v[key] for v in base])
            result[name][variant] = stats
    return result


def show(result):
    for name, by_variant in result.items():
        keys = [key for key in next(iter(by_variant.values())) if key != "ratio"]
        print(f"\n{name}\n")
        report.table(["", keys[0], "ratio", *keys[1:]], [
            [variant, report.spread(stats[keys[0]]), report.spread(stats["ratio"]),
             *(f"{stats[key]['median']:.2f}" if key in stats else "" for key in keys[1:])]
            for variant, stats in by_variant.items()])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=int, default=2, help="of each TCP run")
    parser.add_argument("--only", default="", help="comma-separated variants")
    parser.add_argument("--measure", default=",".join(MEASURES), help="comma-separated measures")
    parser.add_argument("binary", nargs="*", default=[str(report.ROOT / "build" / "uvhostd")],
                        help="uvhostd with options; more than one are compared")
    args = parser.parse_args()
    wanted = [name for name in args.measure.split(",") if name]

    os.environ.setdefault("UVHOSTD", args.binary[0])
    uml.GUEST_SECONDS = 580
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="uvhost-bench."))
        stack.enter_context(uml.Namespace())
        machines = [v for v in variants(folder, args.binary)
                    if not args.only or v.name in args.only.split(",")]
        about = report.machine()
        for variant in machines:
            variant.boot(stack)
        for variant in machines:
            variant.ready()
        result = figures(measure(machines, wanted, args.rounds, args.seconds))
        stack.callback(lambda: [v.guest.halt() for v in machines])
    show(result)
    report.save("uml-throughput", {
        "command": "bench/run uml-throughput", "machine": about,
        "rounds": args.rounds, "seconds": args.seconds, "congestion": CONGESTION,
        "figures": result})


if __name__ == "__main__":
    main()
