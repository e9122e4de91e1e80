#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""What bounds a User-mode Linux guest on uvhostd: system calls a frame, and what one costs it.

perf counts the calls (Debian: linux-perf); without it strace counts those of the daemon, and slows it
down.
"""

import argparse
import contextlib
import os
import re
import subprocess
import tempfile
import time

import report
import uml
import uml_throughput as bench

ABOUT = "what bounds that guest: its system calls, by block size and by frame"

CALLS = {
    "guest": ("ptrace", "wait4", "epoll_wait", "rt_sigreturn", "read", "write"),
    "daemon": ("io_uring_enter", "readv", "writev", "epoll_pwait2", "sendto", "write"),
}
# With the kernel's tracing files, for this process alone.
PERF = ["unshare", "--mount", "sh", "-c",
        'mount -t tracefs tracefs /sys/kernel/tracing; exec perf "$@"', "perf"]
BLOCKS = ("16K", "128K", "1M")
PRICE = ("import os, time; begin = time.time(); [os.getppid() for _ in range(5000)]; "
         "print((time.time() - begin) / 5000 * 1e6)")


def perf_counts(names, pids, seconds):
    """{call: how often} of some processes."""
    events = ",".join(f"syscalls:sys_enter_{name}" for name in names)
    run = subprocess.run([*PERF, "stat", "-x", ",", "-e", f"{events},raw_syscalls:sys_enter", "-p",
                          ",".join(map(str, pids)), "--", "sleep", str(seconds)], check=True,
                         stdin=subprocess.DEVNULL, capture_output=True, text=True)
    rows = (line.split(",") for line in run.stderr.splitlines() if "sys_enter" in line)
    return {row[2].rsplit("sys_enter_")[-1].replace("raw_syscalls:sys_enter", "all"): int(row[0])
            for row in rows if row[0].isdigit()}


def strace_counts(pid, seconds):
    run = subprocess.run(["timeout", "-s", "INT", str(seconds), "strace", "-c", "-f", "-U",
                          "name,calls", "-p", str(pid)], check=False, stdin=subprocess.DEVNULL,
                         capture_output=True, text=True)
    counts = {name: int(n) for name, n in re.findall(r"^(\w+) +(\d+)$", run.stderr, re.MULTILINE)}
    return {"all" if name == "total" else name: n for name, n in counts.items()}


def have_perf():
    return subprocess.run([*PERF, "stat", "-e", "syscalls:sys_enter_read", "true"], check=False,
                          capture_output=True).returncode == 0


def calls_a_frame(variant, queue, options, seconds):
    """System calls of guest and daemon while iperf3 runs, by frames of the queue."""
    client = uml.spawn(["timeout", "-k", "5", "60", "iperf3", "-c", variant.net.guest, "-C",
                        bench.CONGESTION, "-t", 2 * seconds + 3, *options],
                       stdout=subprocess.DEVNULL)
    time.sleep(1)
    result = {}
    for who, pids in (("guest", bench.descendants(variant.guest.proc.pid)),
                      ("daemon", [variant.daemon.proc.pid])):
        if who == "guest" and not have_perf():
            continue
        before = variant.counters()[queue]["frames"]
        counts = perf_counts(CALLS[who], pids, seconds) if have_perf() else \
            strace_counts(pids[0], seconds)
        frames = max(variant.counters()[queue]["frames"] - before, 1)
        result[who] = {name: n / frames for name, n in counts.items() if n / frames >= 0.005}
    assert client.wait() == 0
    return result


def measure(variant, rounds, seconds):
    runs = {(way, block): [] for way in ("in", "out") for block in BLOCKS}
    prices = []
    for _ in range(rounds):
        prices.append(float(variant.guest.run(f"python3 -c '{PRICE}'")))
        for (way, block), results in runs.items():
            back = ["-R"] if way == "out" else []
            results.append(bench.tcp(variant, seconds, "-l", block, *back))
    return {
        "system_call_us": report.summary(prices),
        "blocks": [{"way": way, "block": block,
                    **{key: report.summary([r[key] for r in results]) for key in results[0]}}
                   for (way, block), results in runs.items()],
        "calls_a_frame": {"in": calls_a_frame(variant, "rx", [], seconds),
                          "out": calls_a_frame(variant, "tx", ["-R"], seconds)},
    }


def show(result):
    print(f"\nA system call costs the guest {report.spread(result['system_call_us'], 0)} us.\n")
    report.table(["iperf3 -l", "Gbit/s", "guest CPU s/GB", "daemon CPU s/GB", "guest busy",
                  "daemon busy"], [
        [f"{row['block']} {row['way']}", report.spread(row["gbit_s"]),
         report.spread(row["guest_cpu_s_gb"]), report.spread(row["daemon_cpu_s_gb"]),
         f"{row['guest_cpu_share']['median']:.2f}", f"{row['daemon_cpu_share']['median']:.2f}"]
        for row in result["blocks"]])
    print("\nSystem calls a frame\n")
    report.table(["", "all", "which"], [
        [f"{who} {way}", f"{counts.get('all', 0):.2f}",
         ", ".join(f"{name} {n:.2f}" for name, n in counts.items() if name != "all")]
        for way, by_who in result["calls_a_frame"].items() for who, counts in by_who.items()])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=2)
    args = parser.parse_args()
    binary = str(report.ROOT / "build" / "uvhostd")
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="uvhost-bench."))
        stack.enter_context(uml.Namespace())
        os.environ.setdefault("UVHOSTD", binary)
        about = report.machine()
        variant = bench.Uvhost("uring", 1, folder, ["--io=uring"], binary)
        variant.boot(stack)
        variant.ready()
        result = measure(variant, args.rounds, args.seconds)
        stack.callback(variant.guest.halt)
    show(result)
    report.save("uml-profile", {"command": "bench/run uml-profile", "machine": about,
                                "rounds": args.rounds, "seconds": args.seconds, **result})


if __name__ == "__main__":
    main()
