# SPDX-License-Identifier: BSD-2-Clause
"""What the scenarios share: medians with their spread, the machine, tables, JSON in bench/out/."""

import json
import os
import pathlib
import platform
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "bench" / "out"
PACKAGES = ("user-mode-linux", "iperf3", "iproute2", "liburing2", "gcc")


def summary(values):
    """Median and quartiles; a quarter of the runs was below, a quarter above."""
    if len(values) < 2:
        return {"median": values[0], "low": values[0], "high": values[0], "runs": len(values)}
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return {"median": median, "low": low, "high": high, "runs": len(values)}


def ratios(values, base):
    """Each run against the run of the base in the same round."""
    return summary([a / b for a, b in zip(values, base) if b])


def _first_line(path, key):
    for line in pathlib.Path(path).read_text().splitlines():
        if line.startswith(key):
            return line.split(":", 1)[1].strip()
    return ""


def machine():
    """Where the figures come from."""
    found = subprocess.run(["dpkg-query", "-W", "-f", "${Package} ${Version}\n", *PACKAGES],
                           check=False, capture_output=True, text=True).stdout.splitlines()
    return {"kernel": platform.release(), "cpus": os.cpu_count(),
            "cpu": _first_line("/proc/cpuinfo", "model name"),
            "memory": _first_line("/proc/meminfo", "MemTotal"),
            "packages": dict(line.split() for line in found),
            "load_before": round(os.getloadavg()[0], 2)}


def save(name, results):
    OUT.mkdir(exist_ok=True)
    path = OUT / f"{name}.json"
    path.write_text(json.dumps(results, indent=1) + "\n")
    print(f"\n{path.relative_to(ROOT)} has all of it")


def table(head, rows):
    """A table that is good Markdown as well."""
    rows = [head, ["---"] * len(head), *rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    for row in rows:
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |")


def spread(stat, digits=2):
    return f"{stat['median']:.{digits}f} ({stat['low']:.{digits}f} to {stat['high']:.{digits}f})"
