# SPDX-License-Identifier: BSD-2-Clause
"""What a User-mode Linux guest can do with its NIC: traffic, offloads, MTU, link, control queue."""

import json
import subprocess

import pytest
import uml

uml.require()

# The bits that stand for offloads, by the names of --offload.
OFFLOAD_BITS = {"host_csum": 0, "guest_csum": 1, "guest_tso4": 7, "guest_tso6": 8, "guest_ecn": 9,
                "host_tso4": 11, "host_tso6": 12, "host_ecn": 13}
# What ethtool -k calls them in the guest; rx-gro-hw is guest_tso4 or guest_tso6.
ETHTOOL_NAMES = {"host_csum": "tx-checksum-ip-generic", "guest_tso4": "rx-gro-hw",
                 "host_tso4": "tx-tcp-segmentation", "host_tso6": "tx-tcp6-segmentation",
                 "host_ecn": "tx-tcp-ecn-segmentation"}
ETHERNET_LEN = 14


class Lab:
    """One guest with everything as it is by default, and one with MTU 9000 and split rings."""

    def __init__(self, folder):
        self.std = uml.Machine(folder, 1)
        self.jumbo = uml.Machine(folder, 2, "mtu=9000,features=-packed")


@pytest.fixture(scope="module")
def lab(folder, namespace):
    lab = Lab(folder)
    with uml.booted(lab.std, lab.jumbo) as (lab.daemon, lab.guest, lab.jumbo_guest):
        uml.sh(f"ip link set {lab.jumbo.net.tap} mtu 9000")
        yield lab


def frame_len(daemon, machine, queue, do):
    """The mean length of the frames that a queue carries while @do() runs."""
    before = daemon.stats()["devices"][machine.name][queue]
    do()
    after = daemon.stats()["devices"][machine.name][queue]
    frames = after["frames"] - before["frames"]
    assert frames > 0
    return (after["bytes"] - before["bytes"]) / frames


def check_tcp(daemon, machine, guest, bulk, v6=False):
    """TCP both ways, byte for byte; the mean frame lengths: to the guest, from the guest."""
    path, data = bulk
    host = machine.net.host6 if v6 else machine.net.host
    inward = frame_len(daemon, machine, "rx", lambda: uml.check_inward(guest, host, data))
    outward = frame_len(daemon, machine, "tx", lambda: uml.check_outward(guest, host, path, data))
    return inward, outward


def offloads_seen(guest):
    """The names of the offloads that the guest has accepted, and its ethtool -k."""
    bits = guest.run("cat /sys/bus/virtio/devices/virtio*/features").strip()
    accepted = {name for name, bit in OFFLOAD_BITS.items() if bits[bit] == "1"}
    lines = guest.run("ethtool -k eth0").splitlines()[1:]
    settings = {name.strip(): value.split()[0] for name, value in (x.split(":", 1) for x in lines)}
    return accepted, settings


def test_ping(lab):
    assert uml.ping(lab.std.net.guest, count=20, interval=0.02) == 20
    out = lab.guest.run(f"ping -n -q -c 20 -i 0.02 -W 2 {lab.std.net.host}")
    assert " 0% packet loss" in out
    assert uml.ping(lab.std.net.guest6, count=3) == 3


def test_tcp(lab, bulk):
    inward, outward = check_tcp(lab.daemon, lab.std, lab.guest, bulk)
    assert inward > 2 * 1514 and outward > 2 * 1514
    inward, outward = check_tcp(lab.daemon, lab.std, lab.guest, bulk, v6=True)
    assert inward > 2 * 1514 and outward > 2 * 1514


@pytest.mark.parametrize("reverse", ["", "-R"])
def test_udp(lab, reverse):
    server = uml.spawn(["iperf3", "-s", "-1", "-B", lab.std.net.host],
                       stdout=subprocess.DEVNULL)
    try:
        uml.wait_for("iperf3", lambda: ":5201" in uml.sh("ss -Hltn"))
        out = lab.guest.run(f"iperf3 -J -u -b 5M -l 1200 -t 1 -c {lab.std.net.host} {reverse}")
        total = json.loads(out)["end"]["sum"]
        # A guest that is short of processor time loses some; nothing else is there to lose them.
        assert total["packets"] - total["lost_packets"] > 100
    finally:
        server.kill()
        server.wait()


def test_control_commands(lab):
    before = lab.daemon.stats()["devices"][lab.std.name]["control"]
    commands = ["ip link set eth0 promisc on", "ip link set eth0 promisc off",
                "ip link set eth0 allmulticast on", "ip link set eth0 allmulticast off",
                "ip maddr add 01:00:5e:01:02:03 dev eth0"]
    for command in commands:
        lab.guest.run(command)
    after = lab.daemon.stats()["devices"][lab.std.name]["control"]
    # Each has the driver send both modes and the table of addresses.
    assert after["commands_ok"] >= before["commands_ok"] + 3 * len(commands)
    assert after["commands_refused"] == before["commands_refused"] == 0
    assert "Failed to" not in lab.guest.run("dmesg | grep virtio", check=False)
    assert "01:00:5e:01:02:03" in lab.guest.run("ip maddr show dev eth0")
    assert uml.ping(lab.std.net.guest) == 3


def test_ethtool_offloads(lab, bulk):
    accepted, settings = offloads_seen(lab.guest)
    assert accepted == set(OFFLOAD_BITS)
    assert all(settings[name] == "on" for name in ETHTOOL_NAMES.values())
    for off in ("tso off", "tx off", "sg off"):
        lab.guest.run(f"ethtool -K eth0 {off}")
        assert offloads_seen(lab.guest)[1]["tcp-segmentation-offload"] == "off"
        inward, outward = check_tcp(lab.daemon, lab.std, lab.guest, bulk)
        assert inward > 2 * 1514 and outward <= 1514
    assert offloads_seen(lab.guest)[1]["tx-checksum-ip-generic"] == "off"
    lab.guest.run("ethtool -K eth0 tx on sg on tso on")
    assert offloads_seen(lab.guest)[1]["tcp-segmentation-offload"] == "on"
    _, outward = check_tcp(lab.daemon, lab.std, lab.guest, bulk)
    assert outward > 2 * 1514


def test_link_down_and_up(lab, bulk):
    def carrier():
        return lab.guest.run("cat /sys/class/net/eth0/carrier").strip()

    assert carrier() == "1"
    for _ in range(2):
        uml.sh(f"ip link set {lab.std.net.tap} down")
        uml.wait_for("carrier down", lambda: carrier() == "0")
        assert not lab.daemon.stats()["devices"][lab.std.name]["link"]
        lab.guest.run(f"! ping -q -c 1 -W 1 {lab.std.net.host}")
        uml.sh(f"ip link set {lab.std.net.tap} up")
        uml.wait_for("carrier up", lambda: carrier() == "1")
        uml.answers(lab.std.net.guest)
    assert lab.daemon.stats()["devices"][lab.std.name]["link"]
    check_tcp(lab.daemon, lab.std, lab.guest, bulk)


def test_mtu_1500(lab):
    assert " mtu 1500 " in lab.guest.run("ip link show eth0")
    assert uml.ping(lab.std.net.guest, options="-M do -s 1472") == 3
    lab.guest.run(f"! ping -q -c 1 -W 1 -M do -s 1473 {lab.std.net.host}")


def test_mtu_9000(lab, bulk):
    net, guest = lab.jumbo.net, lab.jumbo_guest
    assert " mtu 9000 " in guest.run("ip link show eth0")
    assert uml.ping(net.guest, options="-M do -s 8972") == 3
    guest.run(f"ping -q -c 3 -i 0.1 -W 2 -M do -s 8972 {net.host}")
    guest.run(f"! ping -q -c 1 -W 1 -M do -s 8973 {net.host}")
    check_tcp(lab.daemon, lab.jumbo, guest, bulk)
    guest.run("ethtool -K eth0 tso off gso off")
    _, outward = check_tcp(lab.daemon, lab.jumbo, guest, bulk)
    assert 2 * 1514 < outward <= 9000 + ETHERNET_LEN


@pytest.mark.parametrize("spec, left", [
    ("-all", set()),
    ("-tso", {"host_csum", "guest_csum"}),
    ("-guest_csum,-host_tso4", {"host_csum", "host_tso6", "host_ecn"}),
])
def test_offload_option(folder, bulk, spec, left):
    machine = uml.Machine(folder, 3, f"offload={spec}")
    with uml.booted(machine) as (daemon, guest):
        accepted, settings = offloads_seen(guest)
        assert accepted == left
        for name, theirs in ETHTOOL_NAMES.items():
            assert (settings[theirs] == "on") == (name in left), theirs
        for v6 in (False, True):
            inward, outward = check_tcp(daemon, machine, guest, bulk, v6)
            assert (inward > 1514) == (("guest_tso6" if v6 else "guest_tso4") in left)
            assert (outward > 1514) == (("host_tso6" if v6 else "host_tso4") in left)


def test_plain_engine(folder, bulk):
    machine = uml.Machine(folder, 3)
    with uml.booted(machine, options=["--io=plain"]) as (daemon, guest):
        assert daemon.stats()["io"] == "plain"
        assert uml.ping(machine.net.guest, count=10, interval=0.02) == 10
        inward, outward = check_tcp(daemon, machine, guest, bulk)
        assert inward > 2 * 1514 and outward > 2 * 1514
