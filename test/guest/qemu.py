# SPDX-License-Identifier: BSD-2-Clause
"""A QEMU guest (TCG) that boots Debian's cloud kernel with an initramfs made of a few programs."""

import os
import pathlib
import re
import shutil
import subprocess

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"))
KERNEL = CACHE / "uvhost" / "kernel"
BUSYBOX = pathlib.Path("/bin/busybox")


class Missing(Exception):
    """A part is not on this machine."""


def parts(modules):
    """The kernel's image, and the files of its @modules (without .ko); Missing."""
    image = max(KERNEL.glob("boot/vmlinuz-*"), default=KERNEL / "boot/vmlinuz-*")
    files = [max(KERNEL.glob(f"lib/modules/*/kernel/**/{name}.ko"), default=KERNEL / f"{name}.ko")
             for name in modules]
    for path in (image, BUSYBOX, *files):
        if not path.exists():
            raise Missing(f"{path} (tools/deps.sh test gets what is not ours)")
    for tool in ("qemu-system-x86_64", "cpio"):
        if not shutil.which(tool):
            raise Missing(f"{tool} (tools/deps.sh test)")
    return image, files


def libraries(binary):
    """The shared libraries of a binary, the dynamic loader among them."""
    out = subprocess.run(["ldd", binary], check=True, capture_output=True, text=True).stdout
    return [pathlib.Path(path) for path in re.findall(r"(/\S+) \(0x", out)]


def make_initramfs(folder, programs, modules, commands, load=True):
    """Runs @commands, lines of shell, with busybox, @programs in / and @modules, which are loaded in
    their order unless @load is false."""
    root, image = folder / "root", folder / "initramfs"
    for name in ("bin", "dev", "proc", "sys", "tmp"):
        (root / name).mkdir(parents=True)
    shutil.copy(BUSYBOX, root / "bin")
    for path in (*programs, *modules):
        shutil.copy(path, root / pathlib.Path(path).name)
    for path in {library for program in programs for library in libraries(program)}:
        target = root / path.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    init = root / "init"
    init.write_text("\n".join([
        "#!/bin/busybox sh", "/bin/busybox mount -t proc proc /proc",
        "/bin/busybox mount -t sysfs sys /sys", "/bin/busybox mount -t devtmpfs dev /dev",
        *(f"/bin/busybox insmod /{path.name}" for path in modules if load), *commands,
        "/bin/busybox poweroff -f", ""]))
    init.chmod(0o755)
    names = "\n".join(str(path.relative_to(root)) for path in sorted(root.rglob("*")))
    with image.open("wb") as out:
        subprocess.run(["cpio", "--quiet", "-o", "-H", "newc", "-R", "0:0"], check=True, cwd=root,
                       input=names.encode(), stdout=out)
    return image


def command(kernel, initramfs, memory=512, seconds=180):
    """What runs a guest, with its console on standard output."""
    return ["timeout", "-k", "5", str(seconds), "qemu-system-x86_64", "-M", "q35", "-accel",
            "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", str(memory), "-nographic",
            "-no-reboot", "-nic", "none", "-kernel", str(kernel), "-initrd", str(initramfs),
            "-append", "console=ttyS0 quiet panic=-1"]


def boot(kernel, initramfs, **how):
    """Run the guest to its end; what it wrote on its console."""
    run = subprocess.run(command(kernel, initramfs, **how), stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return run.stdout.decode(errors="replace").replace("\r", "")
