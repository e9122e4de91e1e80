# SPDX-License-Identifier: BSD-2-Clause
"""The driver library and uvhost bench against uvhostd: no frame lost, doubled or damaged."""

import contextlib
import itertools
import json
import os
import pathlib
import re
import socket
import subprocess
import time

import pytest

UVHOST, UVHOSTD, LOOPBACK = (os.environ[name] for name in ("UVHOST", "UVHOSTD", "UVHOST_LOOPBACK"))
SANITIZED = os.environ.get("UVHOST_SANITIZE", "none") != "none"
SECONDS = 120 if SANITIZED else 60
SOAK = "UVHOST_SOAK" in os.environ
FRAMES = 5000 if SANITIZED else 50000


class Daemon:
    """A uvhostd that runs within the block, and can be killed and started again."""

    def __init__(self, *args):
        self.args = [UVHOSTD, *map(str, args)]
        self.proc = None
        self.start()

    def start(self):
        self.proc = subprocess.Popen(self.args, stdout=subprocess.DEVNULL,
                                     stderr=subprocess.PIPE, text=True)

    def kill(self):
        self.proc.kill()
        self.proc.communicate()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.proc.terminate()
        _, err = self.proc.communicate(timeout=SECONDS)
        if not kind:
            assert self.proc.returncode == 0, err


def run(*args, status=0, seconds=SECONDS):
    done = subprocess.run([UVHOST, *map(str, args)], capture_output=True, text=True,
                          timeout=seconds, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout, done.stderr


def bench(mode, path, *args, **how):
    out, _ = run("bench", mode, "--socket-path", path, "--json", *args, **how)
    return json.loads(out)


@pytest.fixture(params=["uring", "plain"])
def loop(request, tmp_path):
    path = tmp_path / "s"
    with Daemon("--socket-path", path, "--port=loop:", f"--io={request.param}"):
        yield path


FEATURES = {"mrg_rxbuf": 15, "indirect": 28, "event_idx": 29, "packed": 34, "in_order": 35}


@pytest.mark.parametrize("without", [
    combo for n in range(len(FEATURES) + 1) for combo in itertools.combinations(FEATURES, n)
], ids=",".join)
def test_features(loop, without):
    """Each combination, small frames and large ones."""
    leave_out = [f"--features={','.join('-' + name for name in without)}"] if without else []
    for size, count in (60, FRAMES), (1514, FRAMES // 2), (9014, FRAMES // 20):
        found = bench("loop", loop, f"--size={size}", f"--count={count}", f"--time={SECONDS / 4}",
                      "--window=32", "--flows=3", *leave_out)
        assert found["good"] == found["sent"] >= count
        assert {bit for name, bit in FEATURES.items() if not found["features"] >> bit & 1} == {
            FEATURES[name] for name in without}


def test_sleep(loop):
    """On interrupts: one that is lost would end the run without all its frames."""
    found = bench("loop", loop, f"--count={FRAMES}", f"--time={SECONDS / 4}", "--wait=sleep",
                  "--window=8", "--burst=4")
    assert found["good"] == found["sent"] >= FRAMES
    assert found["interrupts"] > 0
    found = bench("rr", loop, f"--count={FRAMES // 10}", f"--time={SECONDS / 4}", "--wait=sleep",
                  "--warmup=0")
    latency = found["latency_ns"]
    assert latency["count"] == found["good"] == FRAMES // 10
    assert 0 < latency["min"] <= latency["p50"] <= latency["p99"] <= latency["max"]


@pytest.mark.parametrize("layout", [[], ["--features=-packed"]], ids=["packed", "split"])
def test_hand_offs(loop, layout):
    """Single frames with random pauses, both sides asleep in between: no wake-up is lost."""
    count = 2_500_000 if SOAK else 5000 if SANITIZED else 250_000
    found = bench("rr", loop, f"--count={count}", f"--time={count / 2000 + SECONDS}", "--wait=sleep",
                  "--jitter-us=20", "--warmup=0", *layout, seconds=count / 2000 + 2 * SECONDS)
    assert found["good"] == found["sent"] == count


def test_hugepages(loop):
    """Where there are some; where not, it says so."""
    free = int(re.search(r"HugePages_Free: *(\d+)", pathlib.Path("/proc/meminfo").read_text())[1])
    if free >= 16:
        found = bench("loop", loop, "--hugepages", "--count=1000", "--window=32")
        assert found["good"] == found["sent"]
    elif free == 0:
        _, err = run("bench", "loop", "--socket-path", loop, "--hugepages", "--time=1", status=1)
        assert "cannot make a driver" in err and "Cannot allocate" in err


def test_rate(loop):
    found = bench("loop", loop, "--rate=5k", "--burst=1", "--time=1", "--warmup=0")
    assert 0.9 < found["sent"] / 5000 < 1.1 or SANITIZED


def test_tx(tmp_path):
    path = tmp_path / "s"
    with Daemon("--socket-path", path, "--port=null:check", "--stats"):
        found = bench("tx", path, "--time=0.5")
        assert found["frames_per_second"] > 1000 and found["kicks"] > 0


def test_restart(tmp_path):
    """The back end is killed under load, five times (soak: 100): it goes on, and nothing is doubled."""
    kills = 100 if SOAK else 5
    path = tmp_path / "s"
    with Daemon("--socket-path", path, "--port=loop:") as daemon:
        args = [UVHOST, "bench", "loop", "--json", "--socket-path", path, f"--time={kills + 1}",
                "--rate=20k"]
        with subprocess.Popen(list(map(str, args)), stdout=subprocess.PIPE, text=True) as proc:
            def state():
                fields = pathlib.Path(f"/proc/{proc.pid}/statm").read_text().split()
                return len(os.listdir(f"/proc/{proc.pid}/fd")), int(fields[1])

            time.sleep(0.5)
            files, pages = state()
            for _ in range(kills):
                daemon.kill()
                daemon.start()
                time.sleep(0.9)
            assert state()[0] == files and state()[1] < pages + 64
            out, _ = proc.communicate(timeout=SECONDS + 2 * kills)
    found = json.loads(out)
    assert found["connections"] == kills + 1
    assert found["doubled"] == found["damaged"] == 0
    assert found["good"] > 0.5 * found["sent"]


def test_listen(tmp_path):
    """The back end is the client; a socket that a dead process left is replaced."""
    path = tmp_path / "s"
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as dead:
        dead.bind(str(path))
    with Daemon("--client", "--socket-path", path, "--port=loop:"):
        for _ in range(2):
            found = bench("loop", path, "--listen", "--count=1000", "--window=32")
            assert found["good"] == found["sent"]
    assert not path.exists()


def test_example(loop):
    done = subprocess.run([LOOPBACK, loop], capture_output=True, text=True, timeout=SECONDS,
                          check=False)
    assert (done.returncode, done.stdout) == (0, "1000 of 1000 frames came back\n"), done.stderr


@pytest.mark.parametrize("args, says", [
    ((), "Usage"),
    (("warp",), "'warp'"),
    (("bench",), "tx, rx, loop or rr"),
    (("bench", "warp"), "'warp'"),
    (("bench", "tx"), "--socket-path"),
    (("bench", "tx", "--socket-path"), "needs a value"),
    (("bench", "tx", "--frobnicate"), "'--frobnicate'"),
    (("bench", "tx", "rx", "--socket-path=/x"), "one mode"),
    (("bench", "tx", "--socket-path=/x", "--size=10"), "60"),
    (("bench", "tx", "--socket-path=/x", "--ring=100"), "power of two"),
    (("bench", "tx", "--socket-path=/x", "--features=-warp"), "mrg_rxbuf"),
    (("bench", "tx", "--socket-path=/x", "--wait=long"), "sleep"),
])
def test_refused(args, says):
    out, err = run(*args, status=2)
    assert out == "" and says in err


def test_nobody_there(tmp_path):
    _, err = run("bench", "tx", "--socket-path", tmp_path / "s", "--time=1", status=1)
    assert "No such file" in err
    _, err = run("bench", "tx", "--socket-path", tmp_path / (200 * "x"), status=1)
    assert "too long" in err


def test_help():
    out, _ = run("--help")
    assert "bench" in out
    out, _ = run("bench", "--help")
    manual = (pathlib.Path(__file__).parents[2] / "man/uvhost.1.scd").read_text()
    for line in out.splitlines():
        if line.startswith("  --"):
            assert f"*{line.split()[0].split('=')[0]}*" in manual, line
