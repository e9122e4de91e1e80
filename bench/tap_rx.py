# SPDX-License-Identifier: BSD-2-Clause
"""Frames in from a tap that never runs dry, beside the least that reads one."""

import json
import subprocess
import time

import book as b

ABOUT = "64-byte frames from a flooded tap, beside raw loops on the same tap"
SIZE = 60
TAP = "bk0"


def flooded(book):
    return b.process(*b.on(b.FRONT, b.RAW_TAP, "flood", TAP, book.seconds + 2, SIZE))


def raw(book, mode):
    def run():
        with flooded(book):
            out = subprocess.run(b.on(b.BACK, b.RAW_TAP, mode, TAP, book.seconds, SIZE), check=True,
                                 stdout=subprocess.PIPE, text=True).stdout
        found = json.loads(out)
        return {"mpps": found["frames"] / found["seconds"] / 1e6,
                "ns": found["cpu_ns"] / found["frames"]}
    return run


def ours(book, kind):
    """The guest shares its processor with the flood: it only has to give its buffers back."""
    def run():
        with b.uvhostd(f"tap:{TAP}", options=[f"--io={kind}"]) as back, flooded(book):
            time.sleep(0.2)
            before, start = b.cpu_ns(back.pid), time.monotonic()
            found = b.load("rx", back.socket, f"--time={book.seconds}", "--ring=1024", "--warmup=0.1",
                           "--wait=sleep", check=False)
            spent, took = b.cpu_ns(back.pid) - before, time.monotonic() - start
        frames = found["good"] + found["other"] + found["damaged"]
        return {"mpps": frames / took / 1e6, "ns": spent / max(frames, 1)}
    return run


def run(book):
    with b.network():
        b.sh(f"ip tuntap add {TAP} mode tap vnet_hdr; ip link set {TAP} up")
        found = book.measure({
            "raw read a frame": raw(book, "read"), "raw io_uring, 64 a batch": raw(book, "uring-read"),
            "uvhostd, io_uring": ours(book, "uring"), "uvhostd, plain": ours(book, "plain")})
    book.table("From a tap", found, {"Mpps": ("mpps", 3), "ns of CPU a frame": ("ns", 0)})
    book.bar("tap-rx, raw io_uring : uvhostd, CPU a frame",
             book.ratio(found, "ns", "uvhostd, io_uring", "raw io_uring, 64 a batch", invert=True),
             least=0.8)
