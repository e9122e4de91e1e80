# SPDX-License-Identifier: BSD-2-Clause
"""From nothing to the first frame, with a guest of 64 GiB."""

import time

import book as b

ABOUT = "a driver with 64 GiB of sparse memory connects and gets its first frame back: ms"


def variant(memory):
    def run():
        with b.uvhostd("loop:") as back:
            start = time.monotonic()
            found = b.load("rr", back.socket, "--count=1", f"--memory={memory}")
            took = time.monotonic() - start
        assert found["good"] == 1
        return {"ms": found["setup_ns"] / 1e6, "process_ms": took * 1e3}
    return run


def run(book):
    found = book.measure({"64 GiB": variant(64 << 30), "1 MiB": variant(1 << 20)})
    book.table("Set-up", found, {"ms to the first frame back": ("ms", 2),
                                 "ms of the whole process": ("process_ms", 1)})
    book.bar("set-up to first frame, 64 GiB, ms",
             b.report.summary([figures["ms"] for figures in found["64 GiB"]]), most=50)
