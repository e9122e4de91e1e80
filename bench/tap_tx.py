# SPDX-License-Identifier: BSD-2-Clause
"""Frames out to a tap, beside the least that writes to one."""

import json
import subprocess

import book as b

ABOUT = "64-byte frames to a tap in a bridge towards a veth, beside raw loops on the same tap"
SIZE = 60
TAP = "bk0"


def raw(book, mode):
    def run():
        out = subprocess.run(b.on(b.BACK, b.RAW_TAP, mode, TAP, book.seconds, SIZE), check=True,
                             stdout=subprocess.PIPE, text=True).stdout
        found = json.loads(out)
        return {"mpps": found["frames"] / found["seconds"] / 1e6,
                "ns": found["cpu_ns"] / found["frames"]}
    return run


def ours(book, kind):
    def run():
        with b.uvhostd(f"tap:{TAP}", options=[f"--io={kind}"]) as back:
            before = b.cpu_ns(back.pid)
            found = b.load("tx", back.socket, f"--size={SIZE}", f"--time={book.seconds}",
                           "--warmup=0")
            spent = b.cpu_ns(back.pid) - before
        return {"mpps": found["frames_per_second"] / 1e6, "ns": spent / found["sent"]}
    return run


def run(book):
    with b.network():
        b.sh(f"ip tuntap add {TAP} mode tap vnet_hdr; ip link set {TAP} master br0 up")
        found = book.measure({
            "raw writev a frame": raw(book, "write"), "raw io_uring, 64 a batch": raw(book, "uring-write"),
            "uvhostd, io_uring": ours(book, "uring"), "uvhostd, plain": ours(book, "plain")})
    book.table("To a tap", found, {"Mpps": ("mpps", 3), "ns of CPU a frame": ("ns", 0)})
    for us, them, least in (("uvhostd, io_uring", "raw io_uring, 64 a batch", 0.85),
                            ("uvhostd, io_uring", "raw writev a frame", 2.5),
                            ("uvhostd, plain", "raw writev a frame", 0.9)):
        book.bar(f"tap-tx, {us} : {them}", book.ratio(found, "mpps", us, them), least=least)
