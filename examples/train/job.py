"""A training job's side of its contract with Sluice. The standard library is enough.

Sluice says where a rank stands by variables, calls for a checkpoint by SIGUSR1 and for an end by
SIGTERM, and reads how far the job is from a file. Every variable has a default, so that the same
program runs by hand.
"""

import argparse
import json
import os
import signal
from pathlib import Path

NOTHING, CHECKPOINT, STOP = range(3)

SEED = 20
EPOCHS = 120
CHECKPOINT_EVERY = 500

# What a shell would say of a program that SIGTERM ended: not done, and to be started again.
EXIT_STOPPED = 143

VARIABLES = """\
variables, as Sluice and torchrun set them; all may be absent:
  SLUICE_CHECKPOINT_DIR  what the job keeps from start to start (./checkpoint)
  SLUICE_PROGRESS_FILE   where it says how far it is, a line of JSON each time (nowhere)
  RANK, WORLD_SIZE       which rank this is, and of how many (0 of 1)
  MASTER_ADDR            where rank 0 listens for the others (127.0.0.1)
  MASTER_PORT            and on which port (29500)

signals: SIGUSR1 checkpoints at the next step and goes on; SIGTERM and SIGINT checkpoint and stop.

exit codes: 0 trained to the end, 1 failed, 2 usage, 143 stopped with a checkpoint.
"""


class Refused(Exception):
    """Something the job was given cannot be used; the text says what and why."""


class Job:
    """Where this rank stands, what was asked of it, and how far it says it is."""

    def __init__(self, environment=os.environ):
        self.id = environment.get("SLUICE_JOB_ID", "")
        self.world_size = whole(environment, "WORLD_SIZE", 1, 1)
        self.rank = whole(environment, "RANK", 0, 0)
        if self.rank >= self.world_size:
            raise Refused(f"RANK is {self.rank}, of a WORLD_SIZE of {self.world_size}")
        port = whole(environment, "MASTER_PORT", 29500, 1)
        self.master = (environment.get("MASTER_ADDR", "127.0.0.1"), port)
        self.checkpoint_dir = Path(environment.get("SLUICE_CHECKPOINT_DIR", "checkpoint"))
        self.progress_file = environment.get("SLUICE_PROGRESS_FILE")
        self.stopping = False
        # A count instead of a flag: a call that comes while the last is read is not lost.
        self._calls = 0
        self._answered = 0

    def listen(self):
        """From now on, signals are wishes and end nothing by themselves."""
        signal.signal(signal.SIGUSR1, self._called)
        signal.signal(signal.SIGTERM, self._called)
        signal.signal(signal.SIGINT, self._called)

    def _called(self, number, _frame):
        self.stopping |= number != signal.SIGUSR1
        self._calls += 1

    def wish(self):
        """What was asked since the last time; being asked to stop is never forgotten."""
        calls, answered = self._calls, self._answered
        self._answered = calls
        if self.stopping:
            return STOP
        return CHECKPOINT if calls != answered else NOTHING

    def report(self, step, steps, checkpoint, **more):
        """Adds a line to the progress file; `more` is the job's own and is not read by Sluice."""
        if self.progress_file is None:
            return
        line = {"step": step, "steps": steps}
        if checkpoint is not None:
            line["checkpoint"] = checkpoint
        with open(self.progress_file, "a", encoding="utf-8") as file:
            file.write(json.dumps(line | more) + "\n")


def parser(description):
    """The command line that the examples have in common."""
    made = argparse.ArgumentParser(
        description=description,
        epilog=VARIABLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = lambda name, least, default, about: made.add_argument(
        name, metavar="N", type=at_least(least), default=default, help=f"{about} ({default})"
    )
    add("--epochs", 1, EPOCHS, "how often every image is learned from")
    add("--seed", 0, SEED, "what all chance comes from")
    add("--checkpoint-every", 1, CHECKPOINT_EVERY, "also checkpoint every N steps")
    add("--pause-ms", 0, 0, "rest N ms after each step, for a longer job")
    return made


def at_least(least):
    """A type of option: a whole number of at least `least`."""

    def number(text):
        if int(text) < least:
            raise ValueError
        return int(text)

    number.__name__ = f"whole number of at least {least},"
    return number


def whole(environment, name, default, least):
    """A variable's whole number, at least `least`."""
    text = environment.get(name, str(default))
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise Refused(f"{name} is {text!r}, not a whole number of at least {least}")
    return int(text)


def keep(path, content):
    """Replaces a file so that a crash at any moment leaves the old one or the new one, whole."""
    new = path.with_name(path.name + ".new")
    with open(new, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
