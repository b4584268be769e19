"""Starts the training examples as Sluice would, and reads what they say."""

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "train"
sys.path[:0] = [str(ROOT / "tests" / "lib"), str(EXAMPLES)]

SAYS_WITHIN_S = 60
STOPPED = 143
# More than any test waits for: such a job ends only by a signal.
ENDLESS = ("--epochs", "1000000", "--checkpoint-every", "1000000", "--pause-ms", "5")


class Rank:
    """One running rank of a training."""

    def __init__(self, folder, arguments, environment):
        name = environment.get("RANK", "0")
        self.progress = folder / f"progress-{name}"
        self.complaints = folder / f"complaints-{name}"
        self.process = subprocess.Popen(
            [sys.executable, EXAMPLES / "digits.py", *arguments],
            stdout=subprocess.PIPE,
            stderr=self.complaints.open("w"),
            text=True,
            cwd=folder,
            env=os.environ
            | {"SLUICE_CHECKPOINT_DIR": "checkpoint", "SLUICE_PROGRESS_FILE": str(self.progress)}
            | environment,
        )
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line.strip())
        self.lines.put(None)

    def await_line(self, start):
        """The next line it prints that starts so."""
        while True:
            line = self.lines.get(timeout=SAYS_WITHIN_S)
            assert line is not None, f"ended before {start}: {self.complaints.read_text()}"
            if line.startswith(start):
                return line

    def send(self, number):
        """Sends it a signal."""
        self.process.send_signal(number)

    def end(self, expected=0):
        """Waits for its end, which must be the expected one; returns its complaints."""
        code = self.process.wait(timeout=SAYS_WITHIN_S)
        complaints = self.complaints.read_text()
        assert code == expected, complaints
        return complaints

    def last(self):
        """The last line of its progress file."""
        return json.loads(self.progress.read_text().splitlines()[-1])


class Trainings:
    """All ranks that a test starts, in a folder of its own."""

    def __init__(self, folder):
        self.folder = folder
        self.checkpoint = folder / "checkpoint" / "digits.npz"
        self.model = folder / "checkpoint" / "digits.onnx"
        self.ranks = []

    def start(self, *arguments, **environment):
        """Starts one process."""
        self.ranks.append(Rank(self.folder, arguments, environment))
        return self.ranks[-1]

    def start_gang(self, world_size, *arguments):
        """Starts so many ranks that find each other."""
        address = own_loopback()
        with socket.create_server((address, 0)) as free:
            port = free.getsockname()[1]
        common = {
            "WORLD_SIZE": str(world_size),
            "MASTER_ADDR": address,
            "MASTER_PORT": str(port),
        }
        return [self.start(*arguments, RANK=str(rank), **common) for rank in range(world_size)]

    def finish(self, *arguments):
        """Runs one rank to its end; returns the loss it ends with and the model's bytes."""
        rank = self.start(*arguments)
        rank.end()
        return rank.last()["loss"], self.model.read_bytes()

    def clear(self):
        """Ends what is left."""
        for rank in self.ranks:
            rank.send(signal.SIGKILL)
            rank.process.wait()


def own_loopback():
    """An address that no other run of these tests uses, so that nobody takes its free ports."""
    process = os.getpid()
    return f"127.{process >> 16 & 0x7F | 0x80}.{process >> 8 & 0xFF}.{process & 0xFF}"


@pytest.fixture
def trainings(tmp_path):
    """Starts trainings in an empty folder."""
    started = Trainings(tmp_path)
    yield started
    started.clear()


@pytest.fixture
def undisturbed(tmp_path_factory):
    """Trains in one go, elsewhere: the loss and the model that every other way must end with."""

    def train(*arguments):
        return Trainings(tmp_path_factory.mktemp("undisturbed")).finish(*arguments)

    return train
