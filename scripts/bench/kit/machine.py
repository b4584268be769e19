"""What the machine itself does to whoever runs on it."""

import subprocess
import sys

from kit import serving

WATCH = """
import sys, time
end = time.monotonic_ns() + int(float(sys.argv[1]) * 1e9)
last, held = time.monotonic_ns(), []
while last < end:
    now = time.monotonic_ns()
    if now - last > 1_000_000:
        held.append(now - last)
    last = now
print(len(held), sum(held) / 1e9)
"""

# Works and rests by turns as short as those of a server that is asked often.
WORK = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.SIG_DFL)  # which it may have been told to ignore
share, turn = float(sys.argv[1]), 300_000
while True:
    end = time.monotonic_ns() + share * turn
    while time.monotonic_ns() < end:
        pass
    time.sleep((1 - share) * turn / 1e9)
"""


def held_back(cores, seconds):
    """For each core: how often a second, and for which share of the time, a process that does nothing
    but look at the clock was held back for more than 1 ms, all of them at once."""
    command = [sys.executable, "-c", WATCH, seconds]
    watchers = [
        subprocess.Popen(serving.pinned(command, core), stdout=subprocess.PIPE, text=True) for core in cores
    ]
    said = [watcher.communicate(timeout=seconds + 60)[0].split() for watcher in watchers]
    return [(int(times) / seconds, float(held_s) / seconds) for times, held_s in said]


def quietest_first(cores, seconds):
    """The cores, the one first that is held back least while all of them work."""
    held = dict(zip(cores, held_back(cores, seconds), strict=True))
    return sorted(cores, key=lambda core: held[core][1])


def busy(core, share):
    """A process that keeps `core` busy for `share` of the time, and does nothing."""
    return serving.Process([sys.executable, "-c", WORK, min(share, 0.99)], core, stderr=subprocess.DEVNULL)
