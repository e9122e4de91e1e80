# SPDX-License-Identifier: BSD-2-Clause
"""Frames that go nowhere: what the rings and the worker cost, beside DPDK's."""

import contextlib
import pathlib
import shutil
import tempfile
import time

import book as b

ABOUT = "64-byte frames into the null port, one processor for the back end, beside DPDK's net_vhost"
BAR = "uvhostd, uring, poll-us 50"
SIZE = 60  # 64 with the checksum that a wire adds


def flood(book, socket):
    bench = b.load("tx", socket, f"--size={SIZE}", f"--time={book.seconds}", "--burst=64")
    return {"mpps": bench["frames_per_second"] / 1e6, "backlog": bench["backlog"]}


def ours(book, kind, poll_us):
    def run():
        with b.uvhostd("null:", options=[f"--io={kind}", f"--poll-us={poll_us}"]) as back:
            return flood(book, back.socket)
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
                       "--total-num-mbufs=16384", "--forward-mode=rxonly", "--auto-start", "--stats-period=60"):
            b.wait_for("testpmd", path.exists, 30)
            time.sleep(1)
            yield path


def dpdk(book):
    def run():
        with testpmd() as path:
            return flood(book, path)
    return run


def run(book):
    variants = {f"uvhostd, {kind}, poll-us {poll_us}": ours(book, kind, poll_us)
                for kind in ("uring", "plain") for poll_us in (0, 50)}
    if shutil.which("dpdk-testpmd"):
        variants["DPDK net_vhost"] = dpdk(book)
    else:
        print("(no DPDK here; tools/deps.sh peers gets it)")
    found = book.measure(variants)
    book.table("Million frames a second; share of the ring in use", found,
               {"Mpps": ("mpps", 2), "backlog": ("backlog", 2)})
    if "DPDK net_vhost" in found:
        # DPDK's thread never sleeps; with a poll window neither does ours under load.
        book.bar(f"null-tx, {BAR} : DPDK net_vhost",
                 book.ratio(found, "mpps", BAR, "DPDK net_vhost"), least=1.0)
    book.bar(f"share of the ring in use, {BAR}", b.report.summary(
        [figures["backlog"] for figures in found[BAR]]), least=0.5)
