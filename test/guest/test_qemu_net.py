# SPDX-License-Identifier: BSD-2-Clause
"""A QEMU guest (TCG, Debian's cloud kernel) on uvhostd: the front end that most people have."""

import contextlib
import re
import socket
import subprocess
import tempfile

import pytest
import qemu
import uml

uml.require()

MODULES = ["virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci",
           "failover", "net_failover", "virtio_net"]
MEMORY = 256
# As test/guest/init.sh, with busybox and a QEMU serial line.
INIT = r"""
B=/bin/busybox; $B mkdir /run; $B mount -t tmpfs run /run; $B --install -s /bin; export PATH=/bin:/
load_driver() { insmod /virtio_net.ko; }
unload_driver() { rmmod virtio_net; }
ip link set lo up
for module in MODULES; do insmod /$module.ko; done
serial=/dev/ttyS1
""" + (uml.HERE / "serial.sh").read_text()


@pytest.fixture(scope="module")
def parts(folder):
    """Kernel and initramfs."""
    try:
        kernel, modules = qemu.parts(MODULES)
    except qemu.Missing as missing:
        pytest.skip(f"missing: {missing}")
    script = INIT.replace("MODULES", " ".join(MODULES)).splitlines()
    return kernel, qemu.make_initramfs(folder, [], modules, script, load=False)


class Guest(uml.Guest):
    """The same way to talk to it, in another monitor."""

    def __init__(self, parts, path, device):
        super().__init__(path, "/", "qemu")
        self.parts, self.device = parts, device

    def __enter__(self):
        self.line, theirs = socket.socketpair()
        fd = theirs.fileno()
        self.console = tempfile.TemporaryFile()
        args = qemu.command(*self.parts, memory=MEMORY, seconds=uml.GUEST_SECONDS) + [
            "-monitor", "none", "-serial", "stdio",
            "-chardev", f"socket,id=line,fd={fd}", "-serial", "chardev:line",
            "-object", f"memory-backend-memfd,id=mem,size={MEMORY}M,share=on",
            "-machine", "memory-backend=mem", "-chardev", f"socket,id=nic,path={self.path}",
            "-netdev", "vhost-user,id=net,chardev=nic",
            "-device", f"virtio-net-pci,id=card,netdev=net,vectors=0{self.device}"]
        self.proc = uml.spawn(args, stdin=subprocess.DEVNULL, stdout=self.console,
                              stderr=subprocess.STDOUT, pass_fds=[fd])
        theirs.close()
        return self

    def fetch(self, address, port):
        return f"nc {address} {port} | sha256sum"

    def give(self, path, address, port):
        return f"cat {path} | nc {address} {port}"


@contextlib.contextmanager
def booted(parts, machine, device):
    with uml.Daemon(machine.device, sockets=[machine.path]) as daemon:
        with Guest(parts, machine.path, device) as guest:
            machine.net.set_up_host()
            set_up(guest, machine.net)
            uml.answers(machine.net.guest)
            yield daemon, guest
        for dev in daemon.stats()["devices"].values():
            uml.check_counters(dev)


def set_up(guest, net):
    guest.run(f"ip addr add {net.guest}/24 dev eth0 && ip link set eth0 up")


@pytest.fixture(autouse=True)
def namespace():
    with uml.Namespace():
        yield


def features(guest):
    bits = guest.run("cat /sys/bus/virtio/devices/virtio*/features").strip()
    return {bit for bit, value in enumerate(bits) if value == "1"}


@pytest.mark.parametrize("device, has, lacks", [
    ("", {32}, {34}),
    (",packed=on", {32, 34}, set()),
    (",disable-modern=on,disable-legacy=off", set(), {32, 34}),
    (",mrg_rxbuf=off,event_idx=off,indirect_desc=off", {32}, {15, 28, 29}),
], ids=["split", "packed", "legacy", "plain"])
def test_traffic(parts, folder, bulk, device, has, lacks):
    """Ping, TCP both ways, byte for byte, and the driver loaded anew."""
    machine = uml.Machine(folder, 1)
    _, data = bulk
    data = data[:2 << 20]
    with booted(parts, machine, device) as (daemon, guest):
        acked = features(guest)
        assert has <= acked and not lacks & acked
        assert uml.ping(machine.net.guest, count=5) == 5
        for _ in range(2):
            uml.check_inward(guest, machine.net.host, data)
            guest.run("head -c 2000000 /dev/urandom >/run/data")
            check_outward(guest, machine.net.host)
            guest.run("unload_driver && load_driver")
            set_up(guest, machine.net)
            uml.answers(machine.net.guest)
        assert daemon.stats()["devices"][machine.name]["connected"]


def check_outward(guest, address):
    digest = guest.run("sha256sum </run/data").split()[0]
    assert uml.take_outward(guest, address, "/run/data") == digest
