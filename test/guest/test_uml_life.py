# SPDX-License-Identifier: BSD-2-Clause
"""What happens to guests, drivers and taps while uvhostd serves: they go, and come back."""

import contextlib
import json
import os
import subprocess
import sys
import time

import pytest
import uml

uml.require()

# Datagrams to a port where nobody listens: ADDRESS PACKETS-A-SECOND
FLOOD = """
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
start, sent, rate = time.monotonic(), 0, int(sys.argv[2])
while True:
    while sent < (time.monotonic() - start) * rate:
        sent += 1
        try:
            s.sendto(b"x" * 100, (sys.argv[1], 9))
        except OSError:
            pass
    time.sleep(0.005)
"""


@pytest.fixture(autouse=True)
def namespace():
    """A fresh one each, so that no tap is left over."""
    with uml.Namespace():
        yield


@contextlib.contextmanager
def flood(address, rate):
    """Packets from the host to an address."""
    proc = uml.spawn([sys.executable, "-c", FLOOD, address, rate])
    try:
        yield
        assert proc.poll() is None
    finally:
        proc.kill()
        proc.wait()


@contextlib.contextmanager
def both_ways(machine, guest):
    """A flood from the guest, and one to it, also while it is not there."""
    net = machine.net
    mac = guest.run("cat /sys/class/net/eth0/address").strip()
    uml.sh(f"ip neigh replace {net.guest} lladdr {mac} dev {net.tap} nud permanent")
    guest.run(f"(while :; do ping -q -f -c 5000 {net.host}; done) >/dev/null 2>&1 & "
              "echo $! >/run/flood")
    with flood(net.guest, 2000):
        yield
    if guest.proc.poll() is None:
        guest.run("kill $(cat /run/flood); pkill ping; true") # perhaps between two
    uml.sh(f"ip neigh flush dev {net.tap} nud permanent")


def device(daemon, machine):
    return daemon.stats()["devices"][machine.name]


def check_flow(daemon, machine, frames=50):
    """Frames move in both directions."""
    before = device(daemon, machine)
    uml.wait_for("frames both ways", lambda: all(
        device(daemon, machine)[queue]["frames"] - before[queue]["frames"] >= frames
        for queue in ("rx", "tx")))


def check_tcp(machine, guest, bulk):
    path, data = bulk
    uml.check_inward(guest, machine.net.host, data)
    uml.check_outward(guest, machine.net.host, path, data)


def open_fds(daemon):
    return len(os.listdir(f"/proc/{daemon.proc.pid}/fd"))


def test_driver_reload_under_flood(folder, bulk):
    machine = uml.Machine(folder, 1)
    with uml.booted(machine) as (daemon, guest):
        with both_ways(machine, guest):
            for _ in range(4):
                check_flow(daemon, machine)
                guest.run("unload_driver && [ ! -e /sys/class/net/eth0 ]")
                guest.run("load_driver && [ -e /sys/class/net/eth0 ]")
                machine.net.set_up_guest(guest)
                uml.answers(machine.net.guest)
            check_flow(daemon, machine)
        check_tcp(machine, guest, bulk)
        # What the driver has given up is not looked at: neither in the gap, nor when it is back.
        for fault in ("cannot start a ring", "base is not"):
            assert fault not in daemon.messages()


def test_halted_killed_and_booted_again(folder, bulk):
    machine = uml.Machine(folder, 1)

    def gone():
        return not device(daemon, machine)["connected"]

    with uml.Daemon(machine.device, sockets=[machine.path]) as daemon:
        machine.net.set_up_host()
        idle_fds = open_fds(daemon)
        for end in ("halt", "kill", "kill"):
            with machine.boot() as guest:
                machine.net.set_up_guest(guest)
                uml.answers(machine.net.guest)
                assert not gone()
                check_tcp(machine, guest, bulk)
                if end == "halt":
                    guest.halt()
                else:
                    with both_ways(machine, guest):
                        check_flow(daemon, machine)
                        guest.kill()
                uml.wait_for("disconnection", gone)
                uml.wait_for("its descriptors back", lambda: open_fds(daemon) == idle_fds)
        uml.check_counters(device(daemon, machine))


def test_tap_deleted(folder, bulk):
    ours, theirs = uml.Machine(folder, 1), uml.Machine(folder, 2)
    make = f"ip tuntap add {theirs.net.tap} mode tap vnet_hdr"

    def carriers():
        return [guest.run("cat /sys/class/net/eth0/carrier").strip() for guest in guests]

    uml.sh(make)
    with uml.booted(ours, theirs) as (daemon, *guests):
        for _ in range(2):
            with both_ways(ours, guests[0]), both_ways(theirs, guests[1]):
                check_flow(daemon, ours)
                check_flow(daemon, theirs)
                for machine in (ours, theirs):
                    uml.sh(f"ip link del {machine.net.tap}")
                # One comes back by itself, but down; the other waits for whoever made it.
                uml.wait_for("the tap that uvhostd makes", lambda: ours.net.tap in links())
                uml.wait_for("carriers down", lambda: carriers() == ["0", "0"])
                time.sleep(0.3)
                assert theirs.net.tap not in links()
                uml.sh(make)
                for machine in (ours, theirs):
                    machine.net.set_up_host()
                uml.wait_for("carriers up", lambda: carriers() == ["1", "1"])
            for machine, guest in zip((ours, theirs), guests):
                uml.answers(machine.net.guest)
                check_tcp(machine, guest, bulk)
    assert ours.net.tap not in links() and theirs.net.tap in links()
    uml.sh(f"ip link del {theirs.net.tap}")


def links():
    return uml.sh("ip -br link").split()


def test_nic_down_costs_nothing(folder):
    """1,000 broadcasts a second to guests with a NIC that is down, and that never was up."""
    was_up, never = uml.Machine(folder, 1), uml.Machine(folder, 2)
    with uml.Daemon(was_up.device, never.device, sockets=[was_up.path, never.path]) as daemon, \
            was_up.boot() as guest, never.boot() as other:
        was_up.net.set_up_host()
        never.net.set_up_host()
        was_up.net.set_up_guest(guest)
        uml.answers(was_up.net.guest)
        guest.run("ip link set eth0 down")
        assert "state DOWN" in other.run("ip link show eth0")
        with flood(was_up.net.broadcast, 1000), flood(never.net.broadcast, 1000):
            time.sleep(1)
            sent = [tap_frames(machine) for machine in (was_up, never)]
            start, cpu = time.monotonic(), daemon.cpu_seconds()
            time.sleep(10)
            cpu = (daemon.cpu_seconds() - cpu) / (time.monotonic() - start)
            sent = [tap_frames(was_up) - sent[0], tap_frames(never) - sent[1]]
        print(f"{sent} frames, {cpu:.3%} of a processor")
        assert min(sent) > 5000
        assert daemon.cpu_seconds() > 0  # there is such an account here
        assert cpu < 0.01 * uml.PATIENCE
        # It works again, with what is fresh.
        guest.run("ip link set eth0 up")
        uml.answers(was_up.net.guest)


def tap_frames(machine):
    """The frames that the host gave to a tap, taken or not."""
    tx = json.loads(uml.sh(f"ip -s -j link show {machine.net.tap}"))[0]["stats64"]["tx"]
    return tx["packets"] + tx["dropped"]


def test_two_guests(folder, bulk):
    first, second = uml.Machine(folder, 1), uml.Machine(folder, 2)
    with uml.booted(first, second) as (daemon, one, two):
        # While one is killed and boots again, the other loses nothing.
        pings = uml.spawn(["ping", "-n", "-q", "-i", "0.02", "-c", "200", second.net.guest],
                          stdout=subprocess.PIPE, text=True)
        time.sleep(0.5)
        one.kill()
        check_tcp(second, two, bulk)
        with first.boot() as again:
            first.net.set_up_guest(again)
            uml.answers(first.net.guest)
            check_tcp(first, again, bulk)
            check_tcp(second, two, bulk)
        assert " 0% packet loss" in pings.communicate(timeout=30)[0]
