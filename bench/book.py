# SPDX-License-Identifier: BSD-2-Clause
"""The benchmark book: what every scenario does the same way.

A scenario is a file with ABOUT and run(book). It measures its variants in turn, several rounds of
all of them, so that what the machine does meanwhile meets each alike; compares them within a round; and
states bars: what has to hold. The figures go to the screen as tables, to bench/out/NAME.json, and as
a plot to bench/out/NAME.svg.
"""

import argparse
import contextlib
import ctypes
import importlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import report

ROOT = report.ROOT
UVHOSTD, UVHOST = ROOT / "build" / "uvhostd", ROOT / "build" / "uvhost"
RAW_TAP = ROOT / "build" / "bench" / "raw_tap"
CLONE_NEWNET = 0x40000000
BACK, FRONT = (0, 1) if os.cpu_count() > 1 else (0, 0)  # processors: of the back end, of its load


class Book:
    def __init__(self, name, about, argv):
        parser = argparse.ArgumentParser(prog=f"bench/run {name}", description=about)
        parser.add_argument("--rounds", type=int, default=5)
        parser.add_argument("--seconds", type=float, default=2, help="of each measurement")
        parser.add_argument("--enforce", action="store_true",
                            help="exit with 1 when a bar does not hold")
        self.name, self.options = name, parser.parse_args(argv)
        self.rounds, self.seconds = self.options.rounds, self.options.seconds
        self.result = {"command": " ".join(["bench/run", name, *argv]), "about": about,
                       "machine": report.machine(), "tables": [], "bars": []}
        print(f"{name}: {about}\n")

    def measure(self, variants):
        """{variant: [figures of each round]}; a variant is a function that returns a dict."""
        found = {name: [] for name in variants}
        for number in range(self.rounds):
            # Whoever is first finds the machine in another state than whoever is last.
            for name in list(variants)[:: 1 if number % 2 == 0 else -1]:
                found[name].append(variants[name]())
        return found

    def table(self, title, found, columns):
        """@columns: {head: (key, digits)}. Medians with quartiles."""
        stats = {variant: {key: report.summary([figures[key] for figures in rounds])
                           for key, _ in columns.values()}
                 for variant, rounds in found.items()}
        print(f"\n{title}\n")
        report.table(["", *columns], [
            [variant, *(report.spread(stat[key], digits) for key, digits in columns.values())]
            for variant, stat in stats.items()])
        self.result["tables"].append({"title": title, "figures": stats})

    def ratio(self, found, key, ours, theirs, invert=False):
        """Ours to theirs, round by round; @invert: less is better, so theirs to ours."""
        pair = [[figures[key] for figures in found[name]] for name in (ours, theirs)]
        return report.ratios(*(reversed(pair) if invert else pair))

    def note(self, what, stat):
        """A ratio without a bar."""
        print(f"\n{what}: {report.spread(stat)}")
        self.result.setdefault("notes", []).append({"what": what, "value": stat})

    def bar(self, what, stat, least=None, most=None):
        """@stat: a value, or a summary whose median counts."""
        stat = stat if isinstance(stat, dict) else report.summary([stat])
        holds = (least is None or stat["median"] >= least) and (
            most is None or stat["median"] <= most)
        self.result["bars"].append({"what": what, "value": stat, "least": least, "most": most,
                                    "holds": holds})

    def close(self):
        """The bars, the files; the exit status."""
        report.save(self.name, self.result)
        self._plot()
        bars = self.result["bars"]
        if bars:
            print()
        for bar in bars:
            limit = f">= {bar['least']}" if bar["least"] is not None else f"<= {bar['most']}"
            verdict = "holds" if bar["holds"] else "MISSED"
            print(f"{verdict:7} {bar['what']}: {report.spread(bar['value'], 3)}, must be {limit}")
        missed = not all(bar["holds"] for bar in bars)
        return 1 if missed and self.options.enforce else 0

    def _plot(self):
        """Each bar's value by its limit, with gnuplot where that is installed."""
        bars = self.result["bars"]
        if not bars:
            return
        rows = []
        for bar in bars:
            limit = (bar["least"] if bar["least"] is not None else bar["most"]) or 1
            rows.append(f'"{bar["what"]}" ' + " ".join(
                f"{bar['value'][key] / limit:.4f}" for key in ("median", "low", "high")))
        script = f"""
set terminal svg size 900,{120 + 60 * len(rows)} font "sans,12"
set output "{report.OUT / self.name}.svg"
set title "{self.name}: value by bar (1: the bar)"
set xrange [0:*]
set yrange [-0.5:{len(rows) - 0.5}]
unset key
set arrow from 1,-0.5 to 1,{len(rows) - 0.5} nohead lw 2
set ytics noenhanced
plot "-" using 2:0:3:4:yticlabels(1) with xerrorbars pt 7 lw 2
{chr(10).join(rows)}
e
"""
        with contextlib.suppress(FileNotFoundError):
            subprocess.run(["gnuplot"], input=script, text=True, check=False,
                           stderr=subprocess.DEVNULL)


# ---- processes ----


def on(cpu, *args):
    """A command on one processor, with a limit to its life."""
    return ["timeout", "-k", "5", "300", "taskset", "-c", str(cpu), *map(str, args)]


def wait_for(what, condition, seconds=10):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.01)


@contextlib.contextmanager
def process(*args, **how):
    """Ended, by its group, at the end of the block."""
    with subprocess.Popen(list(map(str, args)), stdin=subprocess.DEVNULL, start_new_session=True,
                          **{"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **how},
                          ) as proc:
        try:
            yield proc
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(proc.pid, signal.SIGTERM)
            try:
                proc.wait(5)
            except subprocess.TimeoutExpired:
                os.killpg(proc.pid, signal.SIGKILL)


def pid_of(proc, name):
    """The process called @name in the session that @proc leads."""
    for entry in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            stat = (entry / "stat").read_text()
            command, rest = stat[stat.index("(") + 1:stat.rindex(")")], stat[stat.rindex(")"):]
            if command == name[:15] and int(rest.split()[4]) == proc.pid:
                return int(entry.name)
    raise ProcessLookupError(name)


def cpu_ns(pid):
    """Processor time of all threads, from the scheduler."""
    return sum(int((task / "schedstat").read_text().split()[0])
               for task in pathlib.Path(f"/proc/{pid}/task").iterdir())


class BackEnd:
    """A uvhostd on its processor; pid None: hidden inside of @wrap."""

    def __init__(self, proc, sockets):
        self.proc, self.sockets, self.socket, self.pid = proc, sockets, sockets[0], None
        with contextlib.suppress(ProcessLookupError):
            self.pid = pid_of(proc, "uvhostd")


@contextlib.contextmanager
def uvhostd(*ports, options=(), cpu=BACK, wrap=()):
    """A device a port."""
    with tempfile.TemporaryDirectory() as folder:
        sockets = [pathlib.Path(folder) / f"s{i}" for i in range(len(ports))]
        devices = [arg for path, port in zip(sockets, ports)
                   for arg in ("--device", f"socket-path={path},port={port}")]
        with process(*on(cpu, *wrap, UVHOSTD, *devices, *options)) as proc:
            wait_for("uvhostd", lambda: all(path.exists() for path in sockets), 30)
            time.sleep(0.1)
            yield BackEnd(proc, sockets)


def load(mode, socket, *options, cpu=FRONT, check=True):
    """uvhost bench; its report."""
    done = subprocess.run(on(cpu, UVHOST, "bench", mode, "--json", f"--socket-path={socket}",
                             *options), stdout=subprocess.PIPE, text=True, check=False)
    if check and not done.stdout:
        raise RuntimeError(f"uvhost bench {mode} ended with {done.returncode}")
    return json.loads(done.stdout)


def sh(command):
    subprocess.run(["sh", "-ec", command], check=True)


@contextlib.contextmanager
def network():
    """This process in a network namespace of its own: a bridge br0 with one end of a veth."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/self/ns/net", os.O_RDONLY)
    if libc.unshare(CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "no network namespace is to be had")
    try:
        sh("for f in /proc/sys/net/ipv6/conf/*/disable_ipv6; do echo 1 >$f; done; ip link set lo up; "
           "ip link add br0 type bridge; ip link set br0 up; "
           "ip link add v0 type veth peer name v1; ip link set v0 master br0 up; ip link set v1 up")
        yield
    finally:
        libc.setns(before, CLONE_NEWNET)
        os.close(before)


def main():
    name, *argv = sys.argv[1:]
    scenario = importlib.import_module(name.replace("-", "_"))
    if hasattr(scenario, "main"):  # one that has a page of its own in the book
        sys.argv[:] = [name, *argv]
        scenario.main()
        return 0
    book = Book(name, scenario.ABOUT, argv)
    scenario.run(book)
    return book.close()


if __name__ == "__main__":
    sys.modules["book"] = sys.modules["__main__"]
    sys.exit(main())
