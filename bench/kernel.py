# SPDX-License-Identifier: BSD-2-Clause
"""The kernel's vhost-net and uvhostd, with the same driver, in the same emulated machine."""

import json
import pathlib
import re
import tempfile

import book as b
import qemu

ABOUT = "frames to and from a tap by the kernel's vhost-net and by uvhostd, in one QEMU guest (TCG)"
MODULES = ["tap", "vhost_iotlb", "vhost", "tun", "vhost_net"]
UVHOSTD, UVHOST, RAW = b.UVHOSTD, b.UVHOST, b.RAW_TAP


def commands(book):
    """Each pair of runs after the other, as often as there are rounds; JSON on the console."""
    script = ["B=/bin/busybox", "$B ip link set lo up"]
    for _ in range(book.rounds):
        for mode, size in ("tx", 60), ("rx", 60), ("tx", 1514):
            flood = f"/raw_tap flood t0 {book.seconds + 3} {size} >/dev/null & F=$!; $B sleep 1"
            run = f"--time={book.seconds} --warmup=0.5 --ring=256 --json"
            wait = "poll" if mode == "tx" else "sleep"
            for who, back, start, end in (
                    ("kernel", "--vhost-net=t0", "", ""),
                    ("uvhostd", "--socket-path=/tmp/s",
                     "/uvhostd --socket-path=/tmp/s --port=tap:t0 2>/dev/null & D=$!",
                     "kill $D; wait $D")):
                script += ["$B tunctl -t t0 >/dev/null", "$B ip link set t0 up", start,
                           "$B sleep 1", flood if mode == "rx" else "",
                           f'echo "@ {who} {mode} {size} $(/uvhost bench {mode} {back} --size={size} '
                           f'--wait={wait} {run})"',
                           "kill $F; wait $F" if mode == "rx" else "", end,
                           "$B tunctl -d t0 >/dev/null"]
    return script


def run(book):
    try:
        image, modules = qemu.parts(MODULES)
    except qemu.Missing as missing:
        raise SystemExit(f"missing: {missing}") from None
    with tempfile.TemporaryDirectory() as folder:
        initramfs = qemu.make_initramfs(pathlib.Path(folder), [UVHOSTD, UVHOST, RAW], modules,
                                        commands(book))
        console = qemu.boot(image, initramfs, memory=1500, seconds=900)
    found = {}
    for who, mode, size, line in re.findall(r"^@ (\w+) (\w+) (\d+) (\{.*\})$", console, re.MULTILINE):
        bench = json.loads(line)
        frames = (bench["good"] + bench["other"] + bench["damaged"]) / bench["seconds"] \
            if mode == "rx" else bench["frames_per_second"]
        found.setdefault(f"{mode} {size}, {who}", []).append({"kpps": frames / 1e3})
    if not found:
        raise SystemExit(console[-3000:])
    book.table("Thousand frames a second", found, {"kpps": ("kpps", 1)})
    for mode in "tx 60", "rx 60", "tx 1514":
        book.note(f"{mode}, uvhostd : the kernel's vhost-net",
                  book.ratio(found, "kpps", f"{mode}, uvhostd", f"{mode}, kernel"))
