# SPDX-License-Identifier: Apache-2.0
"""Calls over Ray: results in order, a lost worker's work done again, limits kept, and data equal to one machine's."""

import contextlib
import math
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest

from neurodyn.cluster import Cluster
from neurodyn.core.errors import InputError
from neurodyn.robots import Robot

SOURCE = Path(__file__).resolve().parents[2] / "src"


class Slow:
    """Says in which process it was called, and with how many threads."""

    def __call__(self, seconds: float) -> tuple[float, int, str]:
        time.sleep(seconds)
        return seconds, os.getpid(), os.environ["OMP_NUM_THREADS"]


class Deadly:
    """Ends its process the first times that it is called with a file, which counts them."""

    def __init__(self, times: int) -> None:
        self.times = times

    def __call__(self, path: Path | None) -> int:
        if path is None:
            return os.getpid()
        with path.open("a") as file:
            file.write("x")
        if path.stat().st_size <= self.times:
            os.kill(os.getpid(), signal.SIGKILL)
        return os.getpid()


def test_results_come_in_order_from_two_workers_on_one_core_each(cluster: Cluster):
    waits = [0.3, 0.0, 0.2, 0.0, 0.1, 0.0] * 2
    with cluster.workers(Slow()) as calls:
        found = list(calls.map(waits))
    assert [seconds for seconds, _, _ in found] == waits
    assert len({pid for _, pid, _ in found} - {os.getpid()}) == 2
    assert {threads for _, _, threads in found} == {"1"}
    with cluster.workers(math.sqrt) as calls:
        assert list(calls.map([4.0, 9.0])) == [2.0, 3.0]
        with pytest.raises(ValueError, match=r"math domain error|nonnegative"):
            list(calls.map([1.0, -1.0]))
        assert list(calls.map([])) == []


@pytest.mark.filterwarnings("ignore:a worker of the cluster was lost")
def test_what_a_killed_worker_was_at_is_done_again_by_another(cluster: Cluster, tmp_path: Path):
    with cluster.workers(Deadly(1)) as calls:
        found = list(calls.map([None, None, tmp_path / "once", None, None, None]))
    assert len(found) == 6
    assert (tmp_path / "once").stat().st_size == 2
    assert found[2] != os.getpid()
    with cluster.workers(Deadly(99)) as calls, pytest.raises(InputError, match="3 workers of the cluster ended at"):
        list(calls.map([tmp_path / "always"]))


def test_data_of_a_cluster_are_those_of_one_machine_bit_by_bit(cluster: Cluster, cartpole: Robot, tmp_path: Path):
    pytest.importorskip("newton")
    from neurodyn.sim.generation import generate

    asked = {"transitions": 800, "frames": 20, "worlds": 8, "seed": 5}
    generate(cartpole, out=tmp_path / "one.h5", threads=1, **asked)
    generate(cartpole, out=tmp_path / "many.h5", executor=cluster, **asked)
    with h5py.File(tmp_path / "one.h5") as one, h5py.File(tmp_path / "many.h5") as many:
        names: list[str] = []
        one.visititems(lambda name, entry: names.append(name) if isinstance(entry, h5py.Dataset) else None)
        assert len(names) >= 2
        for name in names:
            assert np.asarray(one[name]).tobytes() == np.asarray(many[name]).tobytes(), name
    with pytest.raises(InputError, match=r"device is 'cuda'; valid with a cluster.*: cpu"):
        generate(cartpole, out=tmp_path / "gpu.h5", executor=cluster, device="cuda", **asked)


def test_what_no_cluster_can_be_is_refused_in_one_line(cluster: Cluster):
    with pytest.raises(InputError, match="workers is 0; valid: at least 1"):
        Cluster("local", workers=0)
    with pytest.raises(InputError, match="workers is 99, and the cluster has 4 cores"), Cluster("local", workers=99):
        pass
    with pytest.raises(InputError, match=r"worker memory is 1e\+06 GB, and the cluster has"), Cluster(memory=1e6):
        pass


LIMIT = """
import numpy as np
from neurodyn.cluster.workers import limit_process
limit_process(1.0)
np.ones(50_000_000)
try:
    np.ones(250_000_000)
except MemoryError:
    print("refused")
"""


def test_the_memory_of_a_worker_is_bounded():
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OPENBLAS_NUM_THREADS": "1"}
    ended = subprocess.run([sys.executable, "-c", LIMIT], env=environment, capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "refused"


HEAD = """
import os, signal, sys, time
from pathlib import Path
from neurodyn.cli import main
import neurodyn.cluster.workers as workers

def parent(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
    except OSError:  # ended meanwhile
        return None

class Fatal:
    def __call__(self, number):
        time.sleep(0.2)
        return number

class Beheaded(workers.Cluster):
    def workers(self, function):
        calls = super().workers(Fatal())
        heads = [p.name for p in Path("/proc").iterdir() if p.name.isdecimal() and parent(p.name) == str(os.getpid())
                 and b"gcs_server" in (p / "cmdline").read_bytes()]
        os.kill(int(heads[0]), signal.SIGKILL)
        return calls

workers.Cluster = Beheaded
main.main(["generate", "cartpole", "--transitions", "4000", "--worlds", "1", "--out", sys.argv[1], "--cluster", "local",
    "--workers", "1"])
"""


def free_port() -> int:
    """Return a free port that neither Ray (10002 to 19999) nor the system hands out, so that it stays free."""
    for port in random.sample(range(20000, 32768), 100):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("", port))
            return port
    raise AssertionError("no free port")


@pytest.mark.slow
def test_a_dead_head_is_one_line(tmp_path: Path):
    pytest.importorskip("ray", reason="the extra `cluster` is not installed")
    pytest.importorskip("newton")
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "RAY_GCS_SERVER_PORT": str(free_port())}
    ended = subprocess.run(
        [sys.executable, "-c", HEAD, str(tmp_path / "data.h5")], env=environment, capture_output=True, text=True,
        timeout=180,
    )  # fmt: skip
    assert ended.returncode == 2, ended.stderr
    said = [line for line in ended.stderr.splitlines() if not line.startswith("simulating ")]
    assert len(said) == 1, ended.stderr
    assert said[0].startswith("neurodyn: the head of the Ray cluster at")
    assert "--resume" in said[0]


def test_a_wrong_address_is_refused_within_a_connection_too(cluster: Cluster):
    with pytest.raises(InputError, match="cluster is 'no-such-thing'; valid: local"), Cluster("no-such-thing"):
        pass
