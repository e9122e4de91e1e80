# SPDX-License-Identifier: BSD-2-Clause
"""System calls a frame under load."""

import pathlib
import re
import tempfile

import book as b

ABOUT = "system calls of uvhostd a frame under a flood of 64-byte frames (strace -c -f)"
TAP = "bk0"


def variant(book, port, kind):
    def run():
        with tempfile.TemporaryDirectory() as folder:
            counts = pathlib.Path(folder) / "counts"
            with b.uvhostd(port, options=[f"--io={kind}"],
                           wrap=["strace", "-c", "-f", "-U", "calls,name", "-o", counts]) as back:
                found = b.load("tx", back.socket, "--size=60", f"--time={book.seconds}", "--warmup=0")
            calls = sum(int(line.split()[0]) for line in counts.read_text().splitlines()
                        if re.match(r"\s*\d+ (?!total)", line))
        return {"calls": calls / found["sent"], "per": found["sent"] / calls}
    return run


def run(book):
    with b.network():
        b.sh(f"ip tuntap add {TAP} mode tap vnet_hdr; ip link set {TAP} master br0 up")
        found = book.measure({f"{port}, {kind}": variant(book, port, kind)
                              for port in ("null:", f"tap:{TAP}") for kind in ("uring", "plain")})
    book.table("System calls a frame", found,
               {"calls a frame": ("calls", 4), "frames a call": ("per", 1)})
    for name in "null:, uring", f"tap:{TAP}, uring":
        book.bar(f"system calls a frame, {name}", b.report.summary(
            [figures["calls"] for figures in found[name]]), most=1 / 32)
