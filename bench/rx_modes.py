#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Figures of rx_modes.c: CPU time a frame of the ways to receive from a tap, side by side."""

import argparse
import collections
import json
import subprocess

import report

ABOUT = "ways to receive from a tap: slots, direct, and the alternative"

BINARY = report.ROOT / "build" / "bench" / "rx_modes"


def collect(rounds):
    """runs[load, guest_buf, traffic][mode] = a list, one run a round."""
    runs = collections.defaultdict(lambda: collections.defaultdict(list))
    out = subprocess.run(["timeout", "-k", "5", "300", BINARY, str(rounds)], check=True,
                         stdout=subprocess.PIPE, text=True).stdout
    for run in map(json.loads, out.splitlines()):
        mix = f"{run['len']} of {run['every']}" if run["every"] > 1 else str(run["len"])
        run["cpu_ns_frame"] = run["cpu_ns"] / max(run["frames"], 1)
        run["calls_frame"] = run["calls"] / max(run["frames"], 1)
        run["frames_s"] = run["frames"] / run["wall_ns"] * 1e9
        run["moved_frame"] = run["moved"] / max(run["frames"], 1)
        runs[run["load"], run["guest_buf"], mix][run["mode"]].append(run)
    return runs


def figures(runs):
    return [{"load": load, "guest_buf": guest_buf, "traffic": traffic, "mode": mode,
             **{key: report.summary([run[key] for run in by_mode[mode]])
                for key in ("cpu_ns_frame", "frames_s", "calls_frame", "moved_frame")}}
            for (load, guest_buf, traffic), by_mode in runs.items() for mode in by_mode]


TITLES = {"backlog": "The queue is full", "half": "Half of each burst finds nothing",
          "paced": "Even pace, the reader sleeps in between", "mix": "Large frames among small ones"}


def show(result):
    groups = collections.defaultdict(dict)
    for row in result:
        load = "mix" if " of " in row["traffic"] else row["load"]
        groups[load, row["guest_buf"]].setdefault(row["traffic"], {})[row["mode"]] = row
    for (load, guest_buf), by_traffic in groups.items():
        modes = list(next(iter(by_traffic.values())))
        print(f"\n{TITLES[load]}, guest buffers of {guest_buf} bytes: ns of CPU a frame "
              "(quartiles), system calls a frame\n")
        report.table(["bytes", *modes], [
            [traffic, *(f"{report.spread(by_mode[mode]['cpu_ns_frame'], 0)} "
                        f"{by_mode[mode]['calls_frame']['median']:.2f}" for mode in modes)]
            for traffic, by_mode in by_traffic.items()])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    about = report.machine()
    result = figures(collect(args.rounds))
    show(result)
    report.save("rx-modes", {"command": "bench/run rx-modes", "machine": about,
                             "rounds": args.rounds, "figures": result})


if __name__ == "__main__":
    main()
