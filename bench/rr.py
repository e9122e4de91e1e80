# SPDX-License-Identifier: BSD-2-Clause
"""Latency of one frame there and back."""

import book as b

ABOUT = "one frame there and back through the loop port: latency, us"


def variant(book, kind, wait, poll_us):
    def run():
        with b.uvhostd("loop:", options=[f"--io={kind}", f"--poll-us={poll_us}"]) as back:
            found = b.load("rr", back.socket, f"--time={book.seconds}", f"--wait={wait}")
        return {key: found["latency_ns"][key] / 1e3 for key in ("p50", "p99", "p999")}
    return run


def run(book):
    found = book.measure({
        f"{kind}, guest {'sleeps' if wait == 'sleep' else 'polls'}, poll-us {poll_us}":
        variant(book, kind, wait, poll_us)
        for kind in ("uring", "plain") for wait in ("poll", "sleep") for poll_us in (0, 50)})
    book.table("us there and back", found,
               {"half": ("p50", 1), "99 %": ("p99", 1), "99.9 %": ("p999", 1)})
