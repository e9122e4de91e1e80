# SPDX-License-Identifier: BSD-2-Clause
"""Frames that go nowhere: what the rings and the worker cost, beside DPDK's."""

import contextlib
import pathlib
import shutil
import tempfile
import time

import book as b

ABOUT = "64-byte frames into the null port, one processor for the back end, beside DPDK's net_vhost"
SIZE = 60  # 64 with the checksum that a wire adds


def figures(bench):
    return {"mpps": bench["frames_per_second"] / 1e6, "backlog": bench["backlog"]}


def ours(book, kind):
    def run():
        with b.uvhostd("null:", options=[f"--io={kind}"]) as back:
            return figures(b.load("tx", back.socket, f"--size={SIZE}", f"--time={book.seconds}"))
    return run


@contextlib.contextmanager
def testpmd():
    """DPDK's back end: one polling thread that receives and forgets."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "s"
        with b.process("timeout", "-k", "5", "300", "dpdk-testpmd", "-l", f"{b.BACK},{b.FRONT}",
                       "--main-lcore", b.FRONT, "--no-pci", "--no-huge", "-m", "512", "--no-telemetry",
                       "--file-prefix", f"uvhost{time.monotonic_ns()}",
                       "--vdev", f"net_vhost0,iface={path},queues=1", "--", "--nb-cores=1",
                       "--forward-mode=rxonly", "--auto-start", "--stats-period=60"):
            b.wait_for("testpmd", path.exists, 30)
            time.sleep(1)
            yield path


def dpdk(book):
    def run():
        with testpmd() as path:
            return figures(b.load("tx", path, f"--size={SIZE}", f"--time={book.seconds}"))
    return run


def run(book):
    variants = {"uvhostd, io_uring": ours(book, "uring"), "uvhostd, plain": ours(book, "plain")}
    if shutil.which("dpdk-testpmd"):
        variants["DPDK net_vhost"] = dpdk(book)
    else:
        print("(no DPDK here; tools/deps.sh peers gets it)")
    found = book.measure(variants)
    book.table("Million frames a second; share of the ring in use", found,
               {"Mpps": ("mpps", 2), "backlog": ("backlog", 2)})
    if "DPDK net_vhost" in found:
        book.bar("null-tx, io_uring : DPDK net_vhost",
                 book.ratio(found, "mpps", "uvhostd, io_uring", "DPDK net_vhost"), least=1.0)
    book.bar("mean backlog, io_uring", b.report.summary(
        [figures["backlog"] for figures in found["uvhostd, io_uring"]]), least=0.5)
