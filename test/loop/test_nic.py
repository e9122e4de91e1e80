# SPDX-License-Identifier: BSD-2-Clause
"""uvhost nic: an interface in one network namespace, behind it a uvhostd with a tap in another."""

import ctypes
import json
import os
import re
import signal
import socket
import subprocess
import time

import pytest

UVHOST, UVHOSTD = os.environ["UVHOST"], os.environ["UVHOSTD"]
SANITIZED = os.environ.get("UVHOST_SANITIZE", "none") != "none"
SECONDS = 60 if SANITIZED else 15
LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x40000000
HOST, GUEST = "10.12.0.1", "10.12.0.2"


def sh(command, net=None, check=True, seconds=SECONDS):
    """A command in the network namespace of the process @net; its output."""
    inside = ["nsenter", f"--net=/proc/{net}/ns/net"] if net else []
    done = subprocess.run([*inside, "sh", "-c", command], capture_output=True, text=True,
                          timeout=seconds, check=False)
    assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def wait_for(what, condition, seconds=SECONDS):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


class Process:
    """Runs within the block; SIGTERM ends it, with status 0 unless that does not matter (None)."""

    def __init__(self, *args, net=None, status=0):
        self.status = status
        inside = ["nsenter", f"--net=/proc/{net}/ns/net"] if net else []
        self.args = [*inside, *map(str, args)]
        self.proc = None

    def __enter__(self):
        self.proc = subprocess.Popen(self.args, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                     text=True)
        return self

    def kill(self):
        self.proc.kill()
        self.proc.communicate()

    def __exit__(self, kind, *_):
        if self.proc.poll() is None:
            self.proc.send_signal(signal.SIGTERM)
        _, err = self.proc.communicate(timeout=SECONDS)
        if not kind and self.status == 0:
            assert self.proc.returncode in (0, -signal.SIGKILL), err
        elif kind:
            print(self.args, self.proc.returncode, err)


@pytest.fixture(scope="module", autouse=True)
def namespaces():
    """This process in one, a sleeping one in another, whose number the tests get."""
    before = os.open("/proc/self/ns/net", os.O_RDONLY)
    if LIBC.unshare(CLONE_NEWNET) != 0:
        pytest.skip("no network namespace is to be had here")
    sh("ip link set lo up")
    with subprocess.Popen(["unshare", "--net", "sleep", "600"]) as other:
        wait_for("its namespace", lambda: os.readlink(f"/proc/{other.pid}/ns/net") !=
                 os.readlink("/proc/self/ns/net"))
        yield other.pid
        other.kill()
    LIBC.setns(before, CLONE_NEWNET)
    os.close(before)


@pytest.fixture
def tap():
    """A tap that stays while uvhostd restarts, and keeps its address."""
    sh(f"ip tuntap add sw0 mode tap vnet_hdr; ip addr add {HOST}/24 dev sw0; ip link set sw0 up")
    yield "sw0"
    sh("ip link del sw0")


def daemon(path, *args):
    return Process(UVHOSTD, "--socket-path", path, "--port=tap:sw0", *args)


def has_carrier(net):
    return "LOWER_UP" in sh("ip link show vm0", net, check=False)


def set_up(net):
    wait_for("the interface", lambda: "vm0" in sh("ip -br link", net))
    sh(f"ip addr add {GUEST}/24 dev vm0; ip link set vm0 up", net)
    wait_for("a carrier", lambda: has_carrier(net))


def answers(net, seconds=SECONDS):
    wait_for("an answer", lambda: ", 0% packet loss" in sh(
        f"ping -n -c 1 -W 1 {HOST}", net, check=False), seconds)


def iperf(net, *args):
    out = json.loads(sh(f"iperf3 -J -c {HOST} -t 1 {' '.join(args)}", net, seconds=3 * SECONDS))
    return out["end"]


def test_traffic(tmp_path, namespaces, tap):
    """Ping, TCP and UDP both ways, with checksums and segmentation left to the other side."""
    path = tmp_path / "s"
    with daemon(path), Process(UVHOST, "nic", "--socket-path", path, "--tap=vm0", net=namespaces):
        set_up(namespaces)
        answers(namespaces)
        offloads = sh("ethtool -k vm0", namespaces)
        assert re.search("tx-checksumming: on", offloads)
        assert re.search("tcp-segmentation-offload: on", offloads)
        with Process("iperf3", "-s", "-B", HOST, status=None):
            time.sleep(0.3)
            for way in "", "-R":
                assert iperf(namespaces, way)["sum_received"]["bytes"] > 1 << 20
                assert iperf(namespaces, "-u -b 5M", way)["sum"]["packets"] > 100
        exchange(tmp_path, namespaces, 4 << 20)


CLIENT = """
import pathlib, socket, sys, threading
sock = socket.create_connection((sys.argv[1], 5001))
data = pathlib.Path(sys.argv[2]).read_bytes()
threading.Thread(target=lambda: (sock.sendall(data), sock.shutdown(socket.SHUT_WR))).start()
with open(sys.argv[3], "wb") as got:
    while piece := sock.recv(65536):
        got.write(piece)
"""


def exchange(folder, net, size):
    """There and back, byte by byte: the kernel trusts checksums that were left to others."""
    data = os.urandom(size)
    (folder / "data").write_bytes(data)
    with socket.create_server((HOST, 5001)) as server:
        server.settimeout(SECONDS)
        with subprocess.Popen(["nsenter", f"--net=/proc/{net}/ns/net", "python3", "-c", CLIENT, HOST,
                               folder / "data", folder / "got"]) as client:
            sock, _ = server.accept()
            with sock:
                while piece := sock.recv(65536):
                    sock.sendall(piece)
            assert client.wait(SECONDS) == 0
    assert (folder / "got").read_bytes() == data


def test_mtu(tmp_path, namespaces, tap):
    """The interface has the MTU and the MAC address of the back end."""
    path = tmp_path / "s"
    sh("ip link set sw0 mtu 9000")
    with daemon(path, "--mtu=9000", "--mac=52:54:00:00:00:07"), \
            Process(UVHOST, "nic", "--socket-path", path, "--tap=vm0", net=namespaces):
        set_up(namespaces)
        shown = sh("ip link show vm0", namespaces)
        assert "mtu 9000" in shown and "52:54:00:00:00:07" in shown
        answers(namespaces)
        assert ", 0% packet loss" in sh(f"ping -n -M do -s 8972 -c 3 -i 0.1 {HOST}", namespaces)


@pytest.mark.parametrize("offload", ["-all", "-tso", "-guest_csum"])
def test_offloads(tmp_path, namespaces, tap, offload):
    path = tmp_path / "s"
    with daemon(path, f"--offload={offload}"), \
            Process(UVHOST, "nic", "--socket-path", path, "--tap=vm0", net=namespaces):
        set_up(namespaces)
        answers(namespaces)
        exchange(tmp_path, namespaces, 1 << 20)


def files(process):
    """Its descriptors at rest: for the moment of an attempt to connect there is one more."""
    def now():
        time.sleep(0.02)
        return len(os.listdir(f"/proc/{process.proc.pid}/fd"))
    return min(now() for _ in range(10))


@pytest.mark.parametrize("busy", [False, True])
def test_restarts(tmp_path, namespaces, tap, busy):
    """The back end is killed five times: the carrier goes, comes, and traffic is back at once."""
    path = tmp_path / "s"
    with Process(UVHOST, "nic", "--socket-path", path, "--tap=vm0", net=namespaces) as nic:
        wait_for("the interface", lambda: "vm0" in sh("ip -br link", namespaces))
        fds = None
        if busy:
            sh(f"ip addr add {GUEST}/24 dev vm0; ip link set vm0 up", namespaces)
        with Process(*(["ping", "-q", "-f", HOST] if busy else ["sleep", "60"]), net=namespaces,
                     status=None):
            for i in range(5):
                with daemon(path) as back_end:
                    if i == 0 and not busy:
                        set_up(namespaces)
                    start = time.monotonic()
                    wait_for("a carrier", lambda: has_carrier(namespaces))
                    answers(namespaces)
                    assert time.monotonic() - start < (1.5 if SECONDS == 15 else 20)
                    back_end.kill()
                wait_for("no carrier", lambda: not has_carrier(namespaces))
                fds = fds or files(nic)
                wait_for("as few descriptors as before", lambda: fds == files(nic))


def test_link(tmp_path, namespaces, tap):
    """The carrier follows the back end's link."""
    path = tmp_path / "s"
    with daemon(path), Process(UVHOST, "nic", "--socket-path", path, "--tap=vm0", net=namespaces):
        set_up(namespaces)
        for _ in range(3):
            sh("ip link set sw0 down")
            wait_for("no carrier", lambda: not has_carrier(namespaces))
            sh("ip link set sw0 up")
            wait_for("a carrier", lambda: has_carrier(namespaces))
        answers(namespaces)


def test_listen(tmp_path, namespaces, tap):
    """The back end is the client, and there first."""
    path = tmp_path / "s"
    with daemon(path, "--client"), \
            Process(UVHOST, "nic", "--listen", "--socket-path", path, "--tap=vm0", net=namespaces):
        set_up(namespaces)
        answers(namespaces)


@pytest.mark.parametrize("args, says", [
    ((), "--socket-path and --tap"),
    (("--socket-path=/x", "--tap=averyveryverylongname"), "15"),
    (("--socket-path=/x", "--tap=a/b"), "--tap"),
    (("--socket-path=/x", "--tap=t", "--queues=0"), "1 to 16"),
    (("--socket-path=/x", "--tap"), "needs a value"),
    (("--frobnicate",), "no option"),
])
def test_refused(args, says):
    done = subprocess.run([UVHOST, "nic", *args], capture_output=True, text=True, timeout=SECONDS,
                          check=False)
    assert done.returncode == 2 and says in done.stderr
