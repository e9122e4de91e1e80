# SPDX-License-Identifier: BSD-2-Clause
"""What 64 connected devices cost that have nothing to do."""

import contextlib
import pathlib
import re
import time

import book as b

ABOUT = "64 connected and idle devices in one process: processor time, and memory a device"
DEVICES, SECONDS = 64, 30


def pss_kib(pid):
    return int(re.search(r"^Pss:\s+(\d+)", pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text(),
                         re.MULTILINE)[1])


@contextlib.contextmanager
def guests(sockets):
    """A sleeping driver for each."""
    with contextlib.ExitStack() as stack:
        for socket in sockets:
            stack.enter_context(b.process("timeout", "-k", "5", "200", b.UVHOST, "bench", "rx",
                                          f"--socket-path={socket}", "--time=150", "--wait=sleep"))
        time.sleep(3)
        yield


def run(book):
    kib = {}
    for devices in 1, DEVICES:
        with b.uvhostd(*["null:"] * devices) as back, guests(back.sockets):
            kib[devices] = pss_kib(back.pid)
            if devices == DEVICES:
                before = b.cpu_ns(back.pid)
                time.sleep(SECONDS)
                share = (b.cpu_ns(back.pid) - before) / (SECONDS * 1e9) * 100
    slope = (kib[DEVICES] - kib[1]) / (DEVICES - 1)
    print(f"{DEVICES} devices: {share:.4f} % of a processor over {SECONDS} s; "
          f"{kib[1]} KiB with one, {kib[DEVICES]} KiB with all, {slope:.0f} KiB each")
    book.bar("CPU of 64 idle devices, %", share, most=0.1)
    book.bar("memory of an idle device, KiB", slope, most=256)
