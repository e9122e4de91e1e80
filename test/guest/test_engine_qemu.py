# SPDX-License-Identifier: BSD-2-Clause
"""The engine suite (unit/test_io.c) on Linux 6.1, the oldest kernel whose io_uring is used.

    QEMU (TCG) > Debian's cloud kernel > initramfs: busybox, tun.ko, test_io and its libraries

Taps of that kernel have no RWF_NOWAIT, pipes neither: reads are taken back by a cancel there.
Set UVHOST_TEST_IO to the test binary.
"""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"))
KERNEL = CACHE / "uvhost" / "kernel"
BUSYBOX = pathlib.Path("/bin/busybox")
SECONDS = 180

INIT = """#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox insmod /tun.ko
/test_io
echo "test_io ended with $?"
/bin/busybox poweroff -f
"""


def needs():
    """What the guest is made of; skips when a part is missing here."""
    test = pathlib.Path(os.environ.get("UVHOST_TEST_IO", "UVHOST_TEST_IO is not set"))
    image = max(KERNEL.glob("boot/vmlinuz-*"), default=KERNEL / "boot/vmlinuz-*")
    tun = max(KERNEL.glob("lib/modules/*/kernel/drivers/net/tun.ko"), default=KERNEL / "tun.ko")
    for path in (test, image, tun, BUSYBOX):
        if not path.exists():
            pytest.skip(f"missing: {path} (tools/deps.sh test gets what is not ours)")
    for tool in ("qemu-system-x86_64", "cpio"):
        if not shutil.which(tool):
            pytest.skip(f"missing: {tool} (tools/deps.sh test)")
    return test, image, tun


def libraries(binary):
    """The shared libraries of a binary, the dynamic loader among them."""
    out = subprocess.run(["ldd", binary], check=True, capture_output=True, text=True).stdout
    return [pathlib.Path(path) for path in re.findall(r"(/\S+) \(0x", out)]


def pack(root, image):
    """Make an initramfs of a folder."""
    names = "\n".join(str(path.relative_to(root)) for path in sorted(root.rglob("*")))
    with image.open("wb") as out:
        subprocess.run(["cpio", "--quiet", "-o", "-H", "newc", "-R", "0:0"], check=True, cwd=root,
                       input=names.encode(), stdout=out)


def make_root(root, test, tun):
    for folder in ("bin", "dev", "proc"):
        (root / folder).mkdir(parents=True)
    shutil.copy(BUSYBOX, root / "bin")
    shutil.copy(tun, root / "tun.ko")
    shutil.copy(test, root / "test_io")
    for library in libraries(test):
        target = root / library.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, target)
    init = root / "init"
    init.write_text(INIT)
    init.chmod(0o755)


def boot(kernel, initramfs):
    """Run the guest to its end; what it wrote on its console."""
    qemu = ["timeout", "-k", "5", str(SECONDS), "qemu-system-x86_64", "-M", "q35", "-accel", "tcg",
            "-cpu", "max", "-smp", "2", "-m", "512", "-nographic", "-no-reboot", "-nic", "none",
            "-kernel", kernel, "-initrd", initramfs, "-append", "console=ttyS0 quiet panic=-1"]
    run = subprocess.run(qemu, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, check=False)
    return run.stdout.decode(errors="replace").replace("\r", "")


def test_engines(tmp_path):
    test, kernel, tun = needs()
    root, initramfs = tmp_path / "root", tmp_path / "initramfs"
    make_root(root, test, tun)
    pack(root, initramfs)
    console = boot(kernel, initramfs)
    print(console)
    ran = re.findall(r"(\d+) test\(s\) run\.", console)
    passed = re.findall(r"\[  PASSED  \] (\d+) test\(s\)\.", console)
    assert "uring:" in console.split("\n")
    assert "FAILED" not in console and "SKIPPED" not in console
    assert ran and ran == passed
    assert "test_io ended with 0" in console
