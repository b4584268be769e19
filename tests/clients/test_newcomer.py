"""A newcomer's first hour: every command of the README, one after another, in a clean clone.

The ports that the README has are those of a machine of one's own. Here they are the system's choice,
so commands are given the addresses that the program prints; nothing else is changed.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from conftest import ROOT
from program import PROGRAM

README = (ROOT / "README.md").read_text()
# What follows `cargo run --release --` once the program is built.
CARGO = "cargo run --release -- "
READY_WITHIN_S = 2.0
# A model of one's own is, here, the demo's.
MODEL = ROOT / "configs" / "models" / "digits.onnx"


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def commands():
    """Every command of the README's `sh` blocks, in their order, without comments."""
    found = []
    for block in blocks("sh"):
        text = re.sub(r"\\\n", " ", block)
        if text.startswith("curl"):
            found.append(text)
            continue
        lines = [re.sub(r"\s+# .*", "", line).strip() for line in text.splitlines()]
        found += [line for line in lines if line]
    return found


class Newcomer:
    """Somebody at a terminal, in a clone."""

    def __init__(self, clone):
        self.clone = clone
        self.server = None
        self.said = []
        self.addresses = {}
        self.ready_s = []
        bin_dir = clone.parent / "bin"
        bin_dir.mkdir()
        (bin_dir / "sluice").symlink_to(PROGRAM)
        # Jobs find numpy where these tests do.
        (bin_dir / "python3").symlink_to(sys.executable)
        self.environment = os.environ | {
            "PATH": f"{bin_dir}{os.pathsep}{os.environ['PATH']}",
            "SLUICE_LISTEN": "127.0.0.1:0",
            "SLUICE_ADMIN_LISTEN": "127.0.0.1:0",
        }

    def types(self, command):
        """Runs a command as typed; one that serves goes on beside the next."""
        command = command.replace(CARGO, "sluice ")
        words = shlex.split(command)
        if words[:2] == ["sluice", "up"]:
            self.serves(words)
            return ""
        for port, name in (("8000", "inference"), ("8002", "admin")):
            command = command.replace(f"localhost:{port}", self.addresses.get(name, ""))
        command = self.pointed(command, words)
        watches = "--watch" in words
        limit = ["timeout", "--signal=INT", "3"] if watches else ["timeout", "120"]
        shell = ["bash", "-euc", f"cd {shlex.quote(str(self.clone))}\n{command}"]
        done = subprocess.run(
            [*limit, *shell], capture_output=True, text=True, env=self.environment, check=False
        )
        # A busy machine may miss the objective, and a small one may be too small for two models, which
        # the load and the plan then say.
        missed = {"load": 3, "plan": 1}.get(words[1]) if words[0] == "sluice" else None
        allowed = {0, 124} if watches else {0, missed}
        assert done.returncode in allowed, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def pointed(self, command, words):
        """The command with the addresses it takes to be the defaults."""
        if words[0] != "sluice":
            return command
        url = f"--url http://{self.addresses.get('admin')}"
        plans_live = words[1] == "plan" and len(words) == 2
        if words[1] in ("status", "reload", "events") or plans_live:
            return f"{command} {url}"
        if words[1] == "job":
            first = f"sluice job {words[2]}"
            return command.replace(first, f"{first} {url}", 1)
        if words[1] == "load":
            return f"{command} --url http://{self.addresses['inference']}"
        return command

    def serves(self, words):
        self.leaves()
        began = time.monotonic()
        self.server = subprocess.Popen(
            words, cwd=self.clone, env=self.environment, stdout=subprocess.PIPE, text=True
        )
        watchdog = threading.Timer(60, self.server.kill)
        watchdog.start()
        for line in self.server.stdout:
            if found := re.fullmatch(r"(inference|admin)\s+http://(\S+)\n", line):
                self.addresses[found.group(1)] = found.group(2)
            if line == "ready\n":
                break
        else:
            pytest.fail(f"{words} ended before it was ready")
        watchdog.cancel()
        self.ready_s.append(time.monotonic() - began)
        # Whatever else it prints is read, so that it never waits for its reader.
        threading.Thread(target=self.server.stdout.read, daemon=True).start()

    def leaves(self):
        if self.server:
            self.server.send_signal(signal.SIGINT)
            assert self.server.wait(timeout=60) == 0
            self.server = None


@pytest.fixture
def newcomer(tmp_path):
    clone = tmp_path / "sluice"
    if (ROOT / ".git").exists():
        subprocess.run(["git", "clone", "-q", "--shared", ROOT, clone], check=True)
    else:
        shutil.copytree(ROOT, clone, ignore=shutil.ignore_patterns("target"))
    somebody = Newcomer(clone)
    yield somebody
    if somebody.server:
        somebody.server.kill()
        somebody.server.wait()


def test_every_command_of_the_readme_does_what_it_says(newcomer):
    own, loans = blocks("toml")
    file = newcomer.clone / "sluice.toml"
    shutil.copy(MODEL, newcomer.clone / "model.onnx")
    typed, outputs = commands(), {}
    for command in typed:
        if command.endswith("check sluice.toml"):
            file.write_text(own)
        if command.startswith("sluice job submit"):
            # "Add to your file", and start again.
            file.write_text(f"{own}\n{loans}")
            newcomer.types("sluice up sluice.toml")
        if command.startswith("sluice status"):
            # The README's own model is served by now; what follows asks the demo's.
            newcomer.types("sluice up")
        outputs[command] = newcomer.types(command)
    newcomer.leaves()
    said = lambda start: next(text for line, text in outputs.items() if start in line)
    assert '"data":[3]' in said("curl").replace(" ", "")
    assert "sluice.toml: good" in said("check sluice.toml")
    assert "digits" in said("sluice status --watch") and "ready" in said("sluice status --watch")
    assert "objective" in said("sluice load")
    assert re.search(r"GPUs|would be enough", outputs["sluice plan"])
    assert said("sluice job submit").strip().isdigit()
    assert "digits" in said("sluice job list")
    first = newcomer.ready_s[0]
    print(f"\nfrom start to ready: {', '.join(f'{s:.2f} s' for s in newcomer.ready_s)}")
    assert first < READY_WITHIN_S or os.getloadavg()[0] > os.cpu_count(), f"{first:.2f} s"
