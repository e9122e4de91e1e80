# SPDX-License-Identifier: BSD-2-Clause
"""Instructions a frame: what time is too noisy to show, and CI therefore can hold."""

import pathlib
import re
import tempfile
import time

import book as b

ABOUT = "instructions of uvhostd a frame in user space (callgrind, one thread at a time)"
TAP = "bk0"
FRAMES = 20000
SIZE = 60
SPLIT = "--features=-packed"
# Name: port, load, what it is to be without, and how many it was last with Debian 12's gcc; a rise of more
# than RISE has to be wanted.
RECORDED = {
    "null:, tx": ("null:", "tx", [], 641),
    "null:, tx, split": ("null:", "tx", [SPLIT], 543),
    "tap:, tx": (f"tap:{TAP}", "tx", [], 827),
    "tap:, tx, split": (f"tap:{TAP}", "tx", [SPLIT], 729),
    "tap:, rx": (f"tap:{TAP}", "rx", [], 973),
    "tap:, rx, split": (f"tap:{TAP}", "rx", [SPLIT], 838),
    "loop:": ("loop:", "loop", [], 1525),
    "loop:, split": ("loop:", "loop", [SPLIT], 1283),
}
RISE = 1.05


def total(folder):
    return sum(int(re.search(r"^(?:summary|totals):\s+(\d+)", path.read_text(), re.MULTILINE)[1])
               for path in pathlib.Path(folder).glob("out.*") if path.stat().st_size)


def counted(port, load):
    """(frames, instructions) of a whole run; @load makes it and says how many frames."""
    with tempfile.TemporaryDirectory() as folder:
        with b.uvhostd(port, options=["--io=plain"],
                       wrap=["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out.%p",
                             "-q"]) as back:
            frames = load(back.socket)
        return frames, total(folder)


def send(mode, socket, options, much):
    cnt = 5 * FRAMES if much else FRAMES
    return b.load(mode, socket, f"--size={SIZE}", f"--count={cnt}", "--time=120", "--warmup=0",
                  *options)["sent"]


def receive(socket, options, much):
    seconds = 3 if much else 1
    with b.process(*b.on(b.FRONT, b.RAW_TAP, "flood", TAP, seconds + 2, SIZE)):
        time.sleep(0.5)
        found = b.load("rx", socket, f"--time={seconds}", "--ring=1024", "--warmup=0", "--wait=sleep",
                       *options, check=False)
    return found["good"] + found["other"] + found["damaged"]


def measure(port, mode, options):
    def load(socket, much):
        if mode == "rx":
            return receive(socket, options, much)
        return send(mode, socket, options, much)
    # The difference is without what set-up and end take.
    (few, least), (many, most) = (counted(port, lambda s, much=much: load(s, much))
                                  for much in (False, True))
    return (most - least) / (many - few)


def run(book):
    found = {}
    with b.network():
        b.sh(f"ip tuntap add {TAP} mode tap vnet_hdr; ip link set {TAP} master br0 up")
        for name, (port, mode, options, recorded) in RECORDED.items():
            value = measure(port, mode, options)
            found[name] = [{"instructions": value}]
            book.bar(f"instructions a frame, {name}, of {recorded}", value / recorded, most=RISE)
    book.table("Instructions a frame", found, {"": ("instructions", 0)})
