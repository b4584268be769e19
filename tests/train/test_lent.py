"""A training on lent slices gives way to inference, goes on later, and ends as if left alone."""

import json
import os
import signal
import sys
import time
import urllib.request
from pathlib import Path

from conftest import EXAMPLES, ROOT, SAYS_WITHIN_S
from program import Sluice

CONFIGURATION = """
[router]
drain_delay_s = 0
state_dir = "state"

[[model]]
name = "m"
engine = "synthetic"
profile_csv = "{profile}"
slo_ms = 1000
memory_mib = 15000
replicas = {{ min = {least}, max = 3 }}
inputs = [{{ name = "x", datatype = "FP32", shape = [-1, 4] }}]
outputs = [{{ name = "y", datatype = "FP32", shape = [-1, 4] }}]

[planner]
patience_s = 1

[loans]
allow = ["{python}"]
notice_s = {notice_s}

[[worker]]
gpu = "simulated:A100-80GB"
geometry = ["2g.20gb@0", "2g.20gb@2", "2g.20gb@4"]
"""
PROFILE = ROOT / "configs" / "profiles" / "slow.csv"
LENGTH = ("--epochs", "60", "--seed", "3")
NOTICE_S = 60


class Lender:
    """A program that lends what its model does not need."""

    def __init__(self, folder):
        self.file = folder / "sluice.toml"
        self.jobs = folder / "state" / "run" / "jobs"
        self.write(1)
        self.program = Sluice("--config", str(self.file))

    def write(self, least):
        text = CONFIGURATION.format(least=least, profile=PROFILE, python=sys.executable, notice_s=NOTICE_S)
        self.file.write_text(text)

    def want(self, least):
        """Has the model have so many replicas from now on."""
        self.write(least)
        self.ask("reload", method="POST")

    def ask(self, path, body=None, method=None):
        url = f"http://{self.program.admin}/admin/v1/{path}"
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(url, data, method=method)) as reply:
            return json.load(reply)

    def wait(self, job, ready):
        """The job once `ready` says so of it."""
        until = time.monotonic() + SAYS_WITHIN_S
        while not ready(found := self.ask(f"jobs/{job}")):
            assert time.monotonic() < until, found
            time.sleep(0.02)
        return found

    def pids(self, job):
        """The processes of a job's ranks."""
        mine = f"SLUICE_CHECKPOINT_DIR={self.jobs / str(job) / 'checkpoint'}".encode()
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                environment = (process / "environ").read_bytes().split(b"\0")
            except OSError:
                continue  # it has ended, or is somebody else's
            if mine in environment:
                found.append(int(process.name))
        return found


def test_a_gang_called_back_by_inference_ends_with_the_bits_of_one_left_alone(tmp_path, undisturbed):
    lender = Lender(tmp_path)
    try:
        argv = [sys.executable, str(EXAMPLES / "digits.py"), *LENGTH, "--pause-ms", "5"]
        job = lender.ask("jobs", {"argv": argv, "slices": 2})["id"]
        lender.wait(job, lambda found: (found["progress"] or {"step": 0})["step"] > 0)
        # It waits where it is until it is called.
        for pid in lender.pids(job):
            os.kill(pid, signal.SIGSTOP)
        lender.want(3)
        left = lender.wait(job, lambda found: found["state"] == "preempted")
        states = [step["state"] for step in left["history"]]
        assert {"noticed", "checkpointing"} <= set(states), states
        assert 0 < left["progress"]["checkpoint"] == left["progress"]["step"]
        assert left["lost_gpu_s"] < NOTICE_S * 4 / 7
        lender.want(1)
        done = lender.wait(job, lambda found: found["state"] in ("done", "failed"))
        assert (done["state"], done["starts"], done["failures"][0]) == ("done", 2, 0), done
        folder = lender.jobs / str(job)
        last = json.loads((folder / "rank-0" / "progress").read_text().splitlines()[-1])
        model = (folder / "checkpoint" / "digits.onnx").read_bytes()
        assert (last["loss"], model) == undisturbed(*LENGTH)
    finally:
        assert lender.program.stop() == 0
