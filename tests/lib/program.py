"""The program under test, started as a user would."""

import os
import queue
import re
import signal
import subprocess
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
PROGRAM = os.environ.get("SLUICE_PROGRAM", str(TARGET / "release" / "sluice"))
PRINTS_WITHIN_S = 60
STOPS_WITHIN_S = 60


class Sluice:
    """A running `sluice up`, ready to serve."""

    def __init__(self, *arguments, path=None):
        environment = os.environ | {
            "SLUICE_LISTEN": "127.0.0.1:0",
            "SLUICE_ADMIN_LISTEN": "127.0.0.1:0",
        }
        if path:
            environment["PATH"] = os.pathsep.join([str(path), environment["PATH"]])
        self.process = subprocess.Popen(
            [PROGRAM, "up", *arguments], stdout=subprocess.PIPE, text=True, env=environment
        )
        self.lines = queue.Queue()
        self.printed = []
        threading.Thread(target=self._read, daemon=True).start()
        try:
            self.line("ready")
            self.inference = self._address("inference")
            self.admin = self._address("admin")
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise

    def line(self, start):
        """The first line printed that starts so, awaited if it is not there yet."""
        while True:
            for line in self.printed:
                if line.strip().startswith(start):
                    return line.strip()
            line = self.lines.get(timeout=PRINTS_WITHIN_S)
            assert line is not None, f"ended before printing {start}; printed {self.printed}"
            self.printed.append(line)

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n"))
        self.lines.put(None)

    def _address(self, listener):
        line = self.line(listener)
        found = re.fullmatch(rf"{listener}\s+http://(\S+)", line)
        assert found, f"not a listener: {line}"
        return found.group(1)

    def stop(self):
        """Asks it to stop and returns its exit status."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout=STOPS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
