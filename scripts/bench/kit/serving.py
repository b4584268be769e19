"""Starts what is measured, reads what it costs, and always stops it."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
SLUICE = TARGET / "release" / "sluice"
WORK = TARGET / "bench"
PATIENCE_S = 30
OBJECTIVE_MISSED = 3

CONFIG = """\
[router]
listen = "127.0.0.1:0"
admin_listen = "127.0.0.1:0"

[[model]]
name = "{name}"
engine = "synthetic"
profile_csv = "{profile}"
slo_ms = {slo_ms}
max_batch = {max_batch}
inputs = [{{ name = "x", datatype = "FP32", shape = [-1, {width}] }}]
outputs = [{{ name = "y", datatype = "FP32", shape = [-1, 1] }}]
{more}
[planner]
max_processes = 1

[[worker]]
gpu = "simulated:A100-80GB"
geometry = ["7g.80gb@0"]
"""


def build(wanted):
    """Builds the program under test, unless it is wanted as it was last built."""
    if not wanted.built:
        subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=ROOT, check=True)
    WORK.mkdir(parents=True, exist_ok=True)


def need_tools(**packages):
    """Installs the Debian package of every tool that is not there."""
    wanted = [package for tool, package in packages.items() if not shutil.which(tool)]
    if wanted:
        script = 'source scripts/lib/venv.sh && install_packages "$@" >&2'
        subprocess.run(["bash", "-c", script, "bash", *wanted], cwd=ROOT, check=True)


def configure(file, model, more=""):
    """Writes a configuration of one synthetic model; `more` holds further lines of it."""
    profile = os.path.relpath(model["profile"], WORK)
    path = WORK / file
    path.write_text(CONFIG.format(**(model | {"profile": profile}), more=more))
    return path


def cpu_s(pid):
    """Seconds of CPU a process has used."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def children(pid):
    """The processes that `pid` started."""
    tasks = pathlib.Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


class Process:
    """A process of ours, on one core if one is named, gone when the block ends."""

    def __init__(self, command, core=None, **options):
        self.command = pinned(command, core)
        self.options = options

    def __enter__(self):
        self.popen = subprocess.Popen(self.command, **self.options)
        self.pid = self.popen.pid
        return self

    def __exit__(self, *_):
        for patience_s in (0.2, PATIENCE_S):  # the second signal ends a drain
            self.popen.send_signal(signal.SIGINT)
            try:
                self.popen.wait(patience_s)
                return
            except subprocess.TimeoutExpired:
                continue
        self.popen.kill()
        self.popen.wait()


class Router(Process):
    """`sluice up`, ready."""

    def __init__(self, config, core=None, executor_core=None, executors=1, program=None):
        self.executors = executors
        self.executor_core = executor_core
        command = [program or SLUICE, "up", "--config", config]
        log = open(WORK / "up.log", "w")
        super().__init__(command, core, stdout=subprocess.PIPE, stderr=log, text=True)

    def __enter__(self):
        super().__enter__()
        said = {}
        for line in self.popen.stdout:
            key, _, value = line.strip().partition(" ")
            said[key] = value.strip()
            if key == "ready":
                break
        else:
            raise RuntimeError(f"sluice up did not start; see {WORK / 'up.log'}")
        self.url, self.admin = said["inference"], said["admin"]
        self.executor, *others = children(self.pid)
        if len(others) + 1 != self.executors:
            raise RuntimeError(f"{len(others) + 1} executors, not {self.executors}")
        if self.executor_core is not None:
            command = ["taskset", "-a", "-c", "-p", str(self.executor_core), str(self.executor)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return self


def pinned(command, core):
    prefix = [] if core is None else ["taskset", "-c", str(core)]
    return prefix + [str(word) for word in command]


def load(url, model, rate, seconds, **more):
    """Sends an open-loop Poisson stream from another process; the report of it.

    `more` holds further flags of `sluice load`; `core` pins the client.
    """
    core = more.pop("core", None)
    flags = {"url": url, "model": model, "rate": rate, "duration": seconds, "format": "json", **more}
    command = [SLUICE, "load"]
    for flag, value in flags.items():
        command += [f"--{flag.replace('_', '-')}", str(value)]
    run = subprocess.run(pinned(command, core), stdout=subprocess.PIPE, text=True, timeout=600)
    if run.returncode not in (0, OBJECTIVE_MISSED):
        raise RuntimeError(f"sluice load failed with {run.returncode}")
    return json.loads(run.stdout)


class Usage:
    """Shares of one core that processes used since this was made."""

    def __init__(self, **pids):
        self.pids = pids
        self.began = time.monotonic()
        self.before = {name: cpu_s(pid) for name, pid in pids.items()}

    def shares(self):
        seconds = time.monotonic() - self.began
        return {name: (cpu_s(pid) - self.before[name]) / seconds for name, pid in self.pids.items()}
