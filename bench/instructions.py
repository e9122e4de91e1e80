# SPDX-License-Identifier: BSD-2-Clause
"""Instructions a frame: what time is too noisy to show."""

import pathlib
import re
import tempfile

import book as b

ABOUT = "instructions of uvhostd a frame in user space (callgrind, one thread at a time)"
TAP = "bk0"
FRAMES = 20000


def total(folder):
    return sum(int(re.search(r"^(?:summary|totals):\s+(\d+)", path.read_text(), re.MULTILINE)[1])
               for path in pathlib.Path(folder).glob("out.*") if path.stat().st_size)


def instructions(port, frames):
    """Of a whole run with so many frames."""
    with tempfile.TemporaryDirectory() as folder:
        with b.uvhostd(port, options=["--io=plain"],
                       wrap=["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out.%p",
                             "-q"]) as back:
            b.load("tx", back.socket, "--size=60", f"--count={frames}", "--time=120", "--warmup=0")
        return total(folder)


def run(book):
    with b.network():
        b.sh(f"ip tuntap add {TAP} mode tap vnet_hdr; ip link set {TAP} master br0 up")
        found = {}
        for port in "null:", f"tap:{TAP}":
            # The difference is without what set-up and end take.
            few, many = (instructions(port, cnt) for cnt in (FRAMES, 5 * FRAMES))
            found[port] = [{"instructions": (many - few) / (4 * FRAMES)}]
    book.table("Instructions a frame", found, {"tx": ("instructions", 0)})
