# SPDX-License-Identifier: BSD-2-Clause
"""The engine suite (unit/test_io.c) on Linux 6.1, the oldest kernel whose io_uring is used.

    QEMU (TCG) > Debian's cloud kernel > initramfs: busybox, tun.ko, test_io and its libraries

Taps of that kernel have no RWF_NOWAIT, pipes neither: reads are taken back by a cancel there.
Set UVHOST_TEST_IO to the test binary.
"""

import os
import pathlib
import re

import pytest
import qemu


def test_engines(tmp_path):
    test = pathlib.Path(os.environ.get("UVHOST_TEST_IO", "UVHOST_TEST_IO is not set"))
    try:
        kernel, modules = qemu.parts(["tun"])
    except qemu.Missing as missing:
        pytest.skip(f"missing: {missing}")
    initramfs = qemu.make_initramfs(tmp_path, [test], modules,
                                    ["/test_io", 'echo "test_io ended with $?"'])
    console = qemu.boot(kernel, initramfs)
    print(console)
    ran = re.findall(r"(\d+) test\(s\) run\.", console)
    passed = re.findall(r"\[  PASSED  \] (\d+) test\(s\)\.", console)
    assert "uring:" in console.split("\n")
    assert "FAILED" not in console and "SKIPPED" not in console
    assert ran and ran == passed
    assert "test_io ended with 0" in console
