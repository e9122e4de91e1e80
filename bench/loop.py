# SPDX-License-Identifier: BSD-2-Clause
"""Frames there and back through the loop port, all checked."""

import book as b

ABOUT = "frames there and back through the loop port, all checked, by size and engine"


def variant(book, kind, size):
    def run():
        with b.uvhostd("loop:", options=[f"--io={kind}"]) as back:
            found = b.load("loop", back.socket, f"--size={size}", f"--time={book.seconds}")
        return {"mpps": found["frames_per_second"] / 1e6, "gbit": found["gbit_per_second"],
                "lost": found["missing"] + found["doubled"] + found["damaged"]}
    return run


def run(book):
    found = book.measure({f"{size} bytes, {kind}": variant(book, kind, size)
                          for size in (60, 1514, 9014) for kind in ("uring", "plain")})
    book.table("Both ways at once", found, {"Mpps": ("mpps", 2), "Gbit/s": ("gbit", 2)})
    book.bar("frames lost, doubled or damaged",
             sum(figures["lost"] for rounds in found.values() for figures in rounds), most=0)
