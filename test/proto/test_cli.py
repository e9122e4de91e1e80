# SPDX-License-Identifier: BSD-2-Clause
"""The command line of uvhostd, and how it starts, waits and ends: what an operator meets."""

import contextlib
import ctypes
import grp
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import stat
import struct
import subprocess
import time

import pytest

UVHOSTD = os.environ["UVHOSTD"]
SECONDS = 60 if os.environ.get("UVHOST_SANITIZE", "none") != "none" else 15
GET_FEATURES = struct.pack("<III", 1, 1, 0)


def run(*args, **kwargs):
    """uvhostd to its end: (status, stdout, stderr)."""
    done = subprocess.run([UVHOSTD, *map(str, args)], capture_output=True, text=True,
                          timeout=SECONDS, check=False, **kwargs)
    return done.returncode, done.stdout, done.stderr


class Daemon:
    """A uvhostd that runs; ends, with status 0 and in time, with the block."""

    def __init__(self, *args, status=0, **kwargs):
        self.status = status
        self.proc = subprocess.Popen([UVHOSTD, *map(str, args)], stdout=subprocess.PIPE,
                                     stderr=subprocess.PIPE, text=True, **kwargs)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind:
            self.proc.kill()
        else:
            self.end()
        self.proc.communicate()

    def end(self):
        """SIGTERM, unless it has ended; what it wrote."""
        if self.proc.returncode is None:
            self.proc.send_signal(signal.SIGTERM)
        out, err = self.proc.communicate(timeout=SECONDS)
        assert self.proc.returncode == self.status, err
        assert "Sanitizer" not in err and "runtime error" not in err
        return out, err


def wait_for(condition):
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def connect(path):
    """A front end's connection, when somebody listens there."""
    deadline = time.monotonic() + SECONDS
    while True:
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.connect(str(path))
            return sock
        except (FileNotFoundError, ConnectionRefusedError):
            sock.close()
            assert time.monotonic() < deadline
            time.sleep(0.005)


def features(sock):
    """Asks for the virtio features, as a front end does first."""
    sock.settimeout(SECONDS)
    sock.sendall(GET_FEATURES)
    reply = sock.recv(100)
    request, flags, size, value = struct.unpack("<IIIQ", reply)
    assert (request, flags & 4, size) == (1, 4, 8)
    return value


# ---- what prints and ends ----


def test_capabilities():
    status, out, err = run("--print-capabilities")
    assert (status, err) == (0, "")
    assert json.loads(out) == {"type": "net"}
    # Whatever else is said is not looked at.
    assert run("--print-capabilities", "--socket-path=/nowhere/x")[0] == 0


def test_help():
    status, out, err = run("--help")
    assert (status, err) == (0, "")
    manual = (pathlib.Path(__file__).parents[2] / "man/uvhostd.8.scd").read_text()
    for option in re.findall(r"^  --([a-z-]+)", out, re.MULTILINE):
        assert f"*--{option}*" in manual, f"--{option} is not in the manual"
    for scheme in ("tap:", "null:", "loop:", "hold:"):
        assert scheme in out


def test_readme_quotes():
    """What README quotes from the log is what the program can say."""
    readme = (pathlib.Path(__file__).parents[2] / "README.md").read_text()
    program = pathlib.Path(UVHOSTD).read_bytes()
    quotes = re.findall(r"^\| `([^`]+)`", readme, re.MULTILINE)
    assert len(quotes) > 3
    for quote in quotes:
        assert quote.encode() in program, quote


def test_version():
    status, out, _ = run("--version")
    assert status == 0 and re.fullmatch(r"uvhostd \d+\.\d+\.\d+\n", out)


# ---- what is refused ----

LONG = "/tmp/" + 103 * "x"  # 108 bytes


@pytest.mark.parametrize("args, status, says", [
    ((), 2, "nothing to serve"),
    (("--frobnicate",), 2, "'--frobnicate' is no option"),
    (("--socket=/tmp/x", "--port=loop:"), 2, "more than one"),
    (("--client=yes", "--socket-path=/tmp/x", "--port=loop:"), 2, "takes no value"),
    (("--socket-path=/tmp/x", "--port"), 2, "--port needs a value"),
    (("--socket-path=/tmp/x", "--port=loop:", "more"), 2, "'more'"),
    (("--socket-path=/tmp/x",), 2, "--port"),
    (("--port=loop:",), 2, "--socket-path"),
    (("--socket-path=/tmp/x", "--fd=3", "--port=loop:"), 2, "--fd"),
    (("--socket-path=/tmp/x", "--port=warp:9"), 2, "warp"),
    (("--socket-path=/tmp/x", "--port=hold:"), 2, "ms"),
    (("--socket-path=/tmp/x", "--port=hold:ms=1,order=up"), 2, "order"),
    (("--socket-path=/tmp/x", "--port=loop:x"), 2, "loop"),
    (("--socket-path=/tmp/x", "--port=tap:"), 2, "tap"),
    (("--socket-path=/tmp/x", "--port=tap:a/b"), 2, "tap"),
    ((f"--socket-path={LONG}", "--port=loop:"), 2, "107"),
    (("--socket-path=/nowhere/at/all", "--port=loop:"), 1, "directory does not exist"),
    (("--socket-path=/tmp/x", "--port=loop:", "--mtu=67"), 2, "68"),
    (("--socket-path=/tmp/x", "--port=loop:", "--mtu=65536"), 2, "65535"),
    (("--socket-path=/tmp/x", "--port=loop:", "--mac=01:00:00:00:00:01"), 2, "address"),
    (("--socket-path=/tmp/x", "--port=loop:", "--mac=52:54"), 2, "address"),
    (("--socket-path=/tmp/x", "--port=loop:", "--socket-mode=999"), 2, "mode"),
    (("--socket-path=/tmp/x", "--port=loop:", "--socket-group=nosuchgroup"), 1, "group"),
    (("--socket-path=/tmp/x", "--port=loop:", "--offload=-warp"), 2, "'warp'"),
    (("--socket-path=/tmp/x", "--port=loop:", "--features=-warp"), 2, "-NAME"),
    (("--socket-path=/tmp/x", "--port=loop:", "--features=packed"), 2, "-NAME"),
    (("--socket-path=/tmp/x", "--port=loop:", "--features=-packed,"), 2, "-NAME"),
    (("--socket-path=/tmp/x", "--port=loop:", "--io=fast"), 2, "plain"),
    (("--socket-path=/tmp/x", "--port=loop:", "--poll-us=-1"), 2, "micro"),
    (("--fd=99", "--port=loop:"), 1, "descriptor"),
    (("--fd=0", "--port=loop:"), 1, "socket"),
    (("--client", "--fd=3", "--port=loop:"), 2, "--socket-path"),
    (("--device", "socket-path=/tmp/x"), 2, "--port"),
    (("--device", "wheels=4,port=loop:"), 2, "wheels"),
    (("--device", "socket-path=/tmp/x,prot=loop:"), 2, "'prot=loop:'"),
    (("--device", "socket-path=/tmp/x,port=loop:,port=null:"), 2, "port is said twice"),
    (("--socket-path=/tmp/x", "--port=loop:", "--port=null:"), 2, "--port is said twice"),
    (("--socket-path=/tmp/x", "--port=loop:", "--device", "socket-path=/tmp/x,port=null:"), 2,
     "two devices have the socket /tmp/x"),
    (("--socket-path=/tmp/x", "--port=tap:t", "--device", "socket-path=/tmp/y,port=tap:t"), 2,
     "two devices have the port tap:t"),
    (("--device", "socket-path=/tmp/x,port=tap:t,mut=9000"), 2, "misspelt"),
    (("--device", "socket-path=/tmp/x,port=loop:,mtu=1"), 2, "68"),
    (("--device", ""), 2, "device"),
])
def test_refused(args, status, says):
    code, out, err = run(*args, stdin=subprocess.DEVNULL)
    assert (code, out) == (status, "")
    assert says in err
    assert err.count("\n") <= 3, err
    assert not pathlib.Path("/tmp/x").exists()


def test_longest_path(tmp_path):
    short = pathlib.Path("/tmp") / f"uvcli{os.getpid()}"
    short.mkdir()
    path = short / ("x" * (107 - len(str(short)) - 1))
    assert len(str(path)) == 107
    with Daemon("--socket-path", path, "--port=loop:"):
        connect(path).close()
    assert not path.exists()
    short.rmdir()


def test_socket_in_use(tmp_path):
    path = tmp_path / "s"
    with Daemon("--socket-path", path, "--port=loop:"):
        front_end = connect(path)
        assert features(front_end)
        status, _, err = run("--socket-path", path, "--port=loop:")
        assert status == 1 and "in use" in err
        assert path.exists()
        assert features(front_end)
    # Whoever only looks is no front end.
    with Daemon("--socket-path", path, "--port=loop:") as daemon:
        connect(path).close()
        assert run("--socket-path", path, "--port=loop:")[0] == 1
        _, err = daemon.end()
        assert err == f"info s: listening on {path}\n"


def test_no_socket(tmp_path):
    path = tmp_path / "s"
    path.write_text("precious")
    status, _, err = run("--socket-path", path, "--port=loop:")
    assert status == 1 and "no socket" in err
    assert path.read_text() == "precious"


def test_stale_socket(tmp_path):
    path = tmp_path / "s"
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(path))
    dead.close()
    with Daemon("--socket-path", path, "--port=loop:"):
        wait_for(path.exists)
        assert features(connect(path))
    # Killed, it leaves one itself.
    daemon = Daemon("--socket-path", path, "--port=loop:", status=-signal.SIGKILL)
    connect(path).close()
    daemon.proc.kill()
    daemon.end()
    assert path.exists()
    with Daemon("--socket-path", path, "--port=loop:"):
        assert features(connect(path))
    assert not path.exists()


def test_mode_and_group(tmp_path):
    path = tmp_path / "s"
    group = grp.getgrgid(os.getgid()).gr_name if os.geteuid() else "daemon"
    with Daemon("--socket-path", path, "--port=loop:"):
        connect(path).close()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with Daemon("--socket-path", path, "--port=loop:", "--socket-mode=0660",
                f"--socket-group={group}"):
        connect(path).close()
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        assert path.stat().st_gid == grp.getgrnam(group).gr_gid


# ---- rights that are missing ----


def as_nobody():
    """A command prefix; skips where that is not to be had."""
    if os.geteuid():
        pytest.skip("not root: cannot become nobody")
    if not shutil.which("setpriv"):
        pytest.skip("no setpriv")
    return ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all",
            "--bounding-set=-all"]


def test_tap_not_permitted(tmp_path):
    prefix = as_nobody()
    binary = pathlib.Path("/tmp") / f"uvcli{os.getpid()}.d"
    shutil.copy(UVHOSTD, binary)  # the build folder may be closed to nobody
    binary.chmod(0o755)
    try:
        done = subprocess.run([*prefix, binary, f"--socket-path=/tmp/uvcli{os.getpid()}.s",
                               "--port=tap:uvcli0"], capture_output=True, text=True,
                              timeout=SECONDS, check=False)
    finally:
        binary.unlink()
    assert done.returncode == 1
    assert "uvcli0" in done.stderr and re.search("CAP_NET_ADMIN|ip tuntap|/dev/net/tun",
                                                        done.stderr)


def forbid_io_uring():
    """A seccomp filter: io_uring_setup fails with EPERM, as in a container."""
    class Prog(ctypes.Structure):
        _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]

    code = b"".join(struct.pack("<HBBI", *op) for op in (
        (0x20, 0, 0, 0),            # A = the system call's number
        (0x15, 0, 1, 425),          # io_uring_setup?
        (0x06, 0, 0, 0x00050001),   # EPERM
        (0x06, 0, 0, 0x7fff0000),   # allow
    ))
    libc = ctypes.CDLL(None, use_errno=True)
    buf = ctypes.create_string_buffer(code)
    prog = Prog(len(code) // 8, ctypes.addressof(buf))
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, ctypes.byref(prog), 0, 0) == 0


def test_io_uring_forbidden(tmp_path):
    path = tmp_path / "s"
    status, _, err = run("--socket-path", path, "--port=loop:", "--io=uring",
                         preexec_fn=forbid_io_uring)
    assert status == 1 and "io_uring" in err and "--io=auto" in err
    assert not path.exists()
    with Daemon("--socket-path", path, "--port=loop:", "--stats",
                preexec_fn=forbid_io_uring) as daemon:
        assert features(connect(path))
        out, err = daemon.end()
    assert json.loads(out)["io"] == "plain"
    assert "EPERM" in err


# ---- where the front end comes from ----


def test_connected_fd():
    ours, theirs = socket.socketpair()
    with Daemon(f"--fd={theirs.fileno()}", "--port=loop:", pass_fds=[theirs.fileno()]) as daemon:
        theirs.close()
        assert features(ours)
        ours.close()
        assert daemon.proc.wait(SECONDS) == 0


def test_two_connected_fds():
    pairs = [socket.socketpair() for _ in range(2)]
    fds = [theirs.fileno() for _, theirs in pairs]
    with Daemon("--device", f"fd={fds[0]},port=loop:", "--device", f"fd={fds[1]},port=null:",
                pass_fds=fds) as daemon:
        for ours, theirs in pairs:
            theirs.close()
            assert features(ours)
        pairs[0][0].close()
        time.sleep(0.05)
        assert daemon.proc.poll() is None
        assert features(pairs[1][0])
        pairs[1][0].close()
        assert daemon.proc.wait(SECONDS) == 0


def test_other_fd():
    for kind in socket.SOCK_DGRAM, socket.SOCK_SEQPACKET:
        ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
        with ours, theirs:
            fd = theirs.fileno()
            status, _, err = run(f"--fd={fd}", "--port=loop:", pass_fds=[fd])
            assert status == 1 and "stream socket" in err


def test_listening_fd(tmp_path):
    path = tmp_path / "s"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    with Daemon(f"--fd={listener.fileno()}", "--port=loop:", pass_fds=[listener.fileno()]):
        for _ in range(3):
            sock = connect(path)
            assert features(sock)
            sock.close()
    assert path.exists()  # whoever made it removes it


def test_client(tmp_path):
    path = tmp_path / "s"
    with Daemon("--client", "--socket-path", path, "--port=loop:") as daemon:
        time.sleep(0.3)
        assert daemon.proc.poll() is None
        for _ in range(3):  # the front end comes and goes
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(str(path))
            listener.listen()
            listener.settimeout(SECONDS)
            sock, _ = listener.accept()
            assert features(sock)
            sock.close()
            listener.close()
            path.unlink()


def test_second_is_turned_away(tmp_path):
    path = tmp_path / "s"
    with Daemon("--socket-path", path, "--port=loop:"):
        first = connect(path)
        assert features(first)
        for _ in range(5):
            second = connect(path)
            second.settimeout(SECONDS)
            assert second.recv(10) == b""
        assert features(first)


def test_kill_to_serving(tmp_path):
    """Field case 77: dead and back in less than a second."""
    path = tmp_path / "s"
    for _ in range(3):
        start = time.monotonic()
        daemon = Daemon("--socket-path", path, "--port=loop:", status=-signal.SIGKILL)
        assert features(connect(path))
        took = time.monotonic() - start
        daemon.proc.kill()
        daemon.end()
        assert took < (1 if SECONDS == 15 else 10)


# ---- life ----


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_quick_end(tmp_path, sig):
    path = tmp_path / "s"
    with Daemon("--socket-path", path, "--port=loop:") as daemon:
        front_end = connect(path)
        assert features(front_end)
        start = time.monotonic()
        daemon.proc.send_signal(sig)
        assert daemon.proc.wait(SECONDS) == 0
        assert time.monotonic() - start < (0.6 if SECONDS == 15 else 10)
        assert front_end.recv(10) == b""
    assert not path.exists()


def test_devices(tmp_path):
    """Keys of --device, values with commas, names, counters."""
    one, two = tmp_path / "one", tmp_path / "two"
    with Daemon("--device", f"socket-path={one},port=hold:ms=5,order=random,mtu=9000,name=first",
                "--device", f"offload=-tso,-csum,socket-path={two},port=loop:,any-memory",
                "--stats") as daemon:
        front_ends = connect(one), connect(two)
        mtu, plain = 1 << 3, features(front_ends[1])
        assert features(front_ends[0]) & mtu and not plain & mtu
        assert plain & 3 == 0  # CSUM, GUEST_CSUM
        daemon.proc.send_signal(signal.SIGUSR1)
        line = json.loads(daemon.proc.stdout.readline())
        assert [dev["name"] for dev in line["devices"]] == ["first", "two"]
        assert [dev["connected"] for dev in line["devices"]] == [True, True]
        assert line["devices"][0]["port"] == "hold:ms=5,order=random"
        out, _ = daemon.end()
        assert json.loads(out)["devices"][1]["tx"]["frames"] == 0


def test_unread_counters(tmp_path):
    """Nobody reads standard output: front ends are served all the same, and the end comes."""
    path = tmp_path / "s"
    with Daemon("--socket-path", path, "--port=loop:", "--stats") as daemon:
        connect(path).close()
        for _ in range(200):  # of some 1,000 bytes each, into a pipe that holds 65,536
            daemon.proc.send_signal(signal.SIGUSR1)
            time.sleep(0.002)
        assert features(connect(path))
        daemon.proc.send_signal(signal.SIGTERM)
        daemon.proc.wait(SECONDS)
        _, err = daemon.end()
        assert "nobody reads" in err


def test_unread_log(tmp_path):
    """Nobody reads standard error either: what a front end has written there is lost, and nobody waits."""
    path = tmp_path / "s"
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, 4096 * b"x")
    os.set_blocking(writer, True)
    proc = subprocess.Popen([UVHOSTD, f"--socket-path={path}", "--port=loop:"], stderr=writer)
    try:
        sock = connect(path)
        for _ in range(10):
            sock.sendall(struct.pack("<IIIII", 8, 1, 8, 0, 3))  # SET_VRING_NUM 3
            assert features(sock)
        proc.send_signal(signal.SIGTERM)
        assert proc.wait(SECONDS) == 0
    finally:
        proc.kill()
        os.close(reader)
        os.close(writer)


@pytest.mark.parametrize("spec, missing", [
    ("", set()),
    ("-packed", {34}),
    ("-ctrl_vq,-mrg_rxbuf", {15, 17, 18}),
    ("-version_1", {32, 34, 35, 40}),
])
def test_features(tmp_path, spec, missing):
    """Field case 128: what is left out, and what makes no sense without it."""
    path = tmp_path / "s"
    args = [f"--features={spec}"] if spec else []
    with Daemon("--socket-path", path, "--port=loop:", *args):
        offered = features(connect(path))
        ours = {15, 16, 17, 18, 28, 29, 32, 34, 35, 40}
        assert {bit for bit in ours if not offered >> bit & 1} == missing


@pytest.mark.parametrize("offload, missing", [
    (None, set()), ("-csum", {0, 1, 7, 8, 9, 11, 12, 13}), ("-tso4", {7, 11}),
    ("-guest_csum", {1, 7, 8, 9}), ("-all", {0, 1, 7, 8, 9, 11, 12, 13}), ("-host_ecn", {13}),
    ("-all,+csum", {7, 8, 9, 11, 12, 13}),
])
def test_offload(tmp_path, offload, missing):
    """Field cases 125 and 128: each offload can be left out, and what builds on it goes too."""
    path = tmp_path / "s"
    args = [f"--offload={offload}"] if offload else []
    with Daemon("--socket-path", path, "--port=loop:", *args):
        offered = features(connect(path))
    assert {bit for bit in (0, 1, 7, 8, 9, 11, 12, 13) if not offered >> bit & 1} == missing
    # Field case 190, and what every device has.
    for bit in (5, 15, 16, 17, 18, 28, 29, 30, 32, 35):
        assert offered >> bit & 1


def test_mac(tmp_path):
    """The same after a restart, unless it is set."""
    def config(sock):
        sock.settimeout(SECONDS)
        sock.sendall(struct.pack("<III", 16, 1, 8) + struct.pack("<Q", 1 << 9 | 1 << 3))
        sock.sendall(struct.pack("<IIIIII", 24, 1, 24, 0, 12, 0) + bytes(12))
        return sock.recv(100)[24:]

    path = tmp_path / "s"
    seen = set()
    for _ in range(2):
        with Daemon("--socket-path", path, "--port=loop:", "--mtu=1400"):
            data = config(connect(path))
            assert data[0] & 3 == 2  # local, unicast
            assert data[10:12] == struct.pack("<H", 1400)
            seen.add(data[:6])
    assert len(seen) == 1
    with Daemon("--socket-path", path, "--port=loop:", "--mac=52:54:00:12:34:56"):
        assert config(connect(path))[:6] == bytes.fromhex("525400123456")
