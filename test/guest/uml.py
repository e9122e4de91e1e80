# SPDX-License-Identifier: BSD-2-Clause
"""Real guests for tests: User-mode Linux in front of uvhostd, with its tap in a namespace of ours.

    guest: linux.uml, eth0 --vhost-user--> uvhostd --tap--> this process and its children

A guest runs init.sh and does what run() tells it over a serial line.
"""

import contextlib
import ctypes
import hashlib
import json
import os
import pathlib
import re
import select
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import pytest

HERE = pathlib.Path(__file__).resolve().parent
SANITIZED = os.environ.get("UVHOST_SANITIZE", "none") != "none"
# Deadlines are for a machine that does something else as well.
PATIENCE = 3 if SANITIZED else 1
GUEST_SECONDS = 200
LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG = 1


def require():
    """Skip unless guests can run here."""
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    tools = ["linux.uml", "unshare", "ip", "ping", "iperf3", "ethtool", "insmod"]
    missing = [tool for tool in tools if not shutil.which(tool, path=path)]
    if missing:
        pytest.skip(f"missing: {' '.join(missing)} (tools/deps.sh test)", allow_module_level=True)
    if "UVHOSTD" not in os.environ:
        pytest.skip("UVHOSTD is not set: run through meson test", allow_module_level=True)
    if os.geteuid() != 0 or not os.path.exists("/dev/net/tun"):
        pytest.skip("needs root and /dev/net/tun", allow_module_level=True)
    if subprocess.run(["unshare", "--net", "--pid", "--fork", "true"], check=False,
                      capture_output=True).returncode != 0:
        pytest.skip("may not make namespaces here", allow_module_level=True)


def sh(command, seconds=30):
    """Run a command of the host; what it wrote. It has to succeed."""
    run = subprocess.run(["timeout", "-k", "5", str(seconds), *shlex.split(command)], check=False,
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, text=True)
    assert run.returncode == 0, f"{command}: status {run.returncode}\n{run.stdout}"
    return run.stdout


def wait_for(what, condition, seconds=10):
    """Wait until a condition holds, and give what it returned; fails with `what` otherwise."""
    end = time.monotonic() + seconds * PATIENCE
    while not (result := condition()):
        assert time.monotonic() < end, f"waited in vain for: {what}"
        time.sleep(0.02)
    return result


def spawn(args, **how):
    """Start a process that dies with this one."""
    return subprocess.Popen([str(arg) for arg in args],
                            preexec_fn=lambda: LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL), **how)


class Namespace:
    """A network namespace for this thread, and for whatever it starts."""

    def __enter__(self):
        self.before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        assert LIBC.unshare(CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
        sh("ip link set lo up")
        return self

    def __exit__(self, *_):
        assert LIBC.setns(self.before, CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
        os.close(self.before)


class Daemon:
    """uvhostd. At the end it has to exit with 0 and without a sanitizer's report."""

    def __init__(self, *args, sockets=()):
        self.args = args
        self.sockets = sockets
        self.log = tempfile.TemporaryFile()
        self.out = tempfile.TemporaryFile()

    def __enter__(self):
        self.proc = spawn([os.environ["UVHOSTD"], *self.args], stdin=subprocess.DEVNULL,
                          stdout=self.out, stderr=self.log)
        try:
            for path in self.sockets:
                wait_for(f"uvhostd listens at {path}", lambda p=path: self.alive() and listens(p))
        except BaseException:
            self.proc.kill()
            self.proc.wait()
            print(self.messages())
            raise
        return self

    def __exit__(self, exc_type, *_):
        self.proc.terminate()
        try:
            status = self.proc.wait(10 * PATIENCE)
        except subprocess.TimeoutExpired:
            self.proc.kill()
            status = self.proc.wait()
        messages = self.messages()
        print(f"uvhostd, ended with {status}:\n{messages}")
        if exc_type is None:
            assert status == 0
            assert not re.search(r"ERROR: |Sanitizer|runtime error:", messages)

    def alive(self):
        assert self.proc.poll() is None, f"uvhostd has ended:\n{self.messages()}"
        return True

    def messages(self):
        return written(self.log)

    def stats(self):
        """The counters: a dictionary, with the devices by name."""
        seen = self._lines()
        self.proc.send_signal(signal.SIGUSR1)
        wait_for("counters", lambda: self.alive() and len(self._lines()) > len(seen))
        stats = json.loads(self._lines()[-1])
        stats["devices"] = {dev["name"]: dev for dev in stats["devices"]}
        return stats

    def _lines(self):
        return [line for line in written(self.out).splitlines(True) if line.endswith("\n")]

    def cpu_seconds(self):
        """What all threads have used of the processor."""
        tasks = pathlib.Path(f"/proc/{self.proc.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def written(file):
    """What a child has written to a file; its position, which is shared, stays where it is."""
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode(errors="replace")


def listens(path):
    """Has somebody a listening socket at this path?"""
    table = pathlib.Path("/proc/net/unix").read_text().splitlines()
    return any(line.endswith(f" {path}") and line.split()[3] == "00010000" for line in table)


class Guest:
    """A User-mode Linux guest. Entered, it is booting; the first command waits until it has."""

    def __init__(self, path, folder, name="guest"):
        self.path, self.folder, self.name = path, pathlib.Path(folder), name
        self.nic = f"virtio_uml.device={path}:1"
        self.buffer = b""
        self.booted = False

    def __enter__(self):
        self.line, theirs = socket.socketpair()
        fd = theirs.fileno()
        self.console = tempfile.TemporaryFile()
        # In a process namespace of its own: all its helpers end with it.
        self.proc = spawn(
            ["unshare", "--pid", "--fork", "--kill-child", "timeout", "-k", "5", GUEST_SECONDS,
             "linux.uml", "mem=256M", "rootfstype=hostfs", "root=/dev/root", "ro",
             f"init={HERE / 'init.sh'}", "con=null", "con0=fd:0,fd:1", f"ssl0=fd:{fd},fd:{fd}",
             f"uml_dir={self.folder}", f"umid={self.name}", self.nic],
            stdin=subprocess.DEVNULL, stdout=self.console, stderr=subprocess.STDOUT, pass_fds=[fd])
        theirs.close()
        return self

    def __exit__(self, exc_type, *_):
        if exc_type is not None:
            print(f"{self.name}:\n{written(self.console)[-3000:]}")
        self.kill()
        self.console.close()

    def send(self, command):
        """Begin a command; result() ends it."""
        if not self.booted:
            self._until(rb"\x1eready\n", 40)
            self.booted = True
        self.line.sendall(command.encode() + b"\n")

    def result(self, seconds=20, check=True):
        """What the command that was begun wrote; it has to succeed unless `check` is false."""
        out, end = self._until(rb"\x1e(\d+)\n", seconds)
        out = out.decode(errors="replace")
        assert not check or end[1] == b"0", f"{self.name}: status {end[1].decode()}\n{out}"
        return out

    def run(self, command, seconds=20, check=True):
        """Have the guest's shell run a command (one line)."""
        self.send(command)
        return self.result(seconds, check)

    def _until(self, pattern, seconds):
        end = time.monotonic() + seconds * PATIENCE
        while not (found := re.search(pattern, self.buffer)):
            left = end - time.monotonic()
            assert left > 0, f"{self.name}: no answer in {seconds} s, but: {self.buffer[-2000:]}"
            if select.select([self.line], [], [], left)[0]:
                data = self.line.recv(1 << 16)
                assert data, f"{self.name} has ended unasked"
                self.buffer += data
        before, self.buffer = self.buffer[:found.start()], self.buffer[found.end():]
        return before, found

    def fetch(self, address, port):
        """The command that reads a byte stream and prints its digest."""
        return f"sha256sum </dev/tcp/{address}/{port}"

    def give(self, path, address, port):
        """The command that sends a file."""
        return f"cat {path} >/dev/tcp/{address}/{port}"

    def halt(self):
        """Have it power off, and wait until it has."""
        self.line.shutdown(socket.SHUT_WR)
        assert self.proc.wait(30 * PATIENCE) == 0
        self.line.close()

    def kill(self):
        """End it at once, as SIGKILL ends a virtual machine monitor."""
        self.proc.kill()
        self.proc.wait()
        self.line.close()


class Net:
    """The addresses of one tap and its guest: the host is .1, the guest .2."""

    def __init__(self, index):
        self.tap = f"tap{index}"
        self.host, self.guest = f"10.9.{index}.1", f"10.9.{index}.2"
        self.broadcast = f"10.9.{index}.255"
        self.host6, self.guest6 = f"fd09:{index}::1", f"fd09:{index}::2"

    def set_up_host(self, mtu=1500):
        sh(f"ip link set {self.tap} mtu {mtu} up")
        sh(f"ip addr add {self.host}/24 dev {self.tap}")
        sh(f"ip addr add {self.host6}/64 dev {self.tap} nodad")

    def set_up_guest(self, guest):
        guest.run(f"ip addr add {self.guest}/24 dev eth0 && "
                  f"ip addr add {self.guest6}/64 dev eth0 nodad && ip link set eth0 up")


class Machine:
    """A device of uvhostd, the guest on it, and how they are called."""

    def __init__(self, folder, index, options=""):
        self.folder, self.index = folder, index
        self.net = Net(index)
        self.name = f"vm{index}"
        self.path = f"{folder}/{self.name}"
        self.device = f"--device=socket-path={self.path},port=tap:{self.net.tap}"
        if options:
            self.device += f",{options}"
        self.boots = 0

    def boot(self):
        self.boots += 1
        return Guest(self.path, self.folder, f"{self.name}-{self.boots}")


def ping(address, count=3, interval=0.1, options=""):
    """Ping from the host: how many answers came."""
    run = subprocess.run(["timeout", "-k", "5", "60", "ping", "-n", "-q", "-c", str(count), "-i",
                          str(interval), "-W", "2", *options.split(), address],
                         check=False, capture_output=True, text=True)
    found = re.search(r"(\d+) received", run.stdout)
    assert found, run.stdout + run.stderr
    return int(found[1])


def answers(address, seconds=10):
    """Wait until something answers there."""
    wait_for(f"{address} answers", lambda: ping(address, count=1) == 1, seconds)


@contextlib.contextmanager
def listener(address):
    """A TCP server of the host, for a guest that connects to it: server and port."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as server:
        server.settimeout(20 * PATIENCE)
        yield server, server.getsockname()[1]


def accept(server):
    conn, _ = server.accept()
    conn.settimeout(20 * PATIENCE)
    return conn


def check_inward(guest, address, data):
    """A byte stream from the host to the guest arrives as it was sent."""
    with listener(address) as (server, port):
        guest.send(guest.fetch(address, port))
        with accept(server) as conn:
            conn.sendall(data)
        assert guest.result().split()[0] == hashlib.sha256(data).hexdigest()


def take_outward(guest, address, path):
    """A byte stream from the guest to the host, out of the file @path: its digest as it arrived."""
    digest = hashlib.sha256()
    with listener(address) as (server, port):
        guest.send(guest.give(path, address, port))
        with accept(server) as conn:
            while piece := conn.recv(1 << 20):
                digest.update(piece)
        guest.result()
    return digest.hexdigest()


def check_outward(guest, address, path, data):
    """The same of the file @path with @data, which arrives as it was."""
    assert take_outward(guest, address, path) == hashlib.sha256(data).hexdigest()


@contextlib.contextmanager
def booted(*machines, options=()):
    """A daemon with machines, booted side by side: the daemon and the guests."""
    with contextlib.ExitStack() as stack:
        daemon = stack.enter_context(Daemon(*(m.device for m in machines), *options,
                                            sockets=[m.path for m in machines]))
        guests = [stack.enter_context(m.boot()) for m in machines]
        for machine, guest in zip(machines, guests):
            machine.net.set_up_host()
            machine.net.set_up_guest(guest)
            answers(machine.net.guest)
        yield daemon, *guests
        for dev in daemon.stats()["devices"].values():
            check_counters(dev)


def check_counters(dev):
    """Nothing was wrong with what the front end and the guest said."""
    assert dev["bad_messages"] == 0
    assert dev["control"]["commands_refused"] == 0
    for queue in ("rx", "tx", "control"):
        wrong = ("bad_chain", "bad_header", "not_negotiated", "too_big", "fault", "port_error")
        assert {name: dev[queue]["drops"][name] for name in wrong} == dict.fromkeys(wrong, 0), queue
