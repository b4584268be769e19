#!/usr/bin/env python3
"""Trains the demo's digit reader, alone or as one of several ranks, and writes it as ONNX.

    pip install numpy
    python examples/train/digits.py --export digits.onnx

Stopped at any step and started again, by one rank or by several, it ends with the same weights to
the last bit on machines of one kind.
"""

import sys
import time
from pathlib import Path

import job
from gang import Gang, Lost
from network import PIECES, Training, add, build, from_bytes, to_bytes

REPORT_EVERY_S = 0.25


class Run:
    """One start of the job: the training, the gang that shares it, and what was last kept of it."""

    def __init__(self, member, options):
        self.member, self.options = member, options
        self.path = member.checkpoint_dir / "digits.npz"
        self.training = Training(options.seed)
        self.steps = options.epochs * self.training.epoch_steps
        self.kept = None
        self.reported_at = 0.0
        self.gang = Gang(member, {"seed": options.seed, "epochs": options.epochs})

    def resume(self):
        """All ranks take up what rank 0 finds in the checkpoint folder, if anything."""
        found = b""
        if self.member.rank == 0:
            self.member.checkpoint_dir.mkdir(parents=True, exist_ok=True)
            if self.path.exists():
                found = self.path.read_bytes()
                self.restore(found)
        found = self.gang.broadcast(found)
        if found and self.member.rank != 0:
            self.restore(found)
        if found:
            self.kept = self.training.step
            say(f"resumed at step {self.kept} of {self.steps}")
        self.report()

    def restore(self, content):
        try:
            self.training.restore(content)
        except job.Refused as refused:
            raise job.Refused(f"checkpoint {self.path}: {refused}; remove it to start anew") from None

    def train(self):
        """Steps to the end; True unless some rank was asked to stop before."""
        while self.training.step < self.steps:
            loss, wish = self.take_step()
            if wish != job.NOTHING:
                self.checkpoint(loss=loss)
            if wish == job.STOP:
                return self.training.step == self.steps
            if time.monotonic() - self.reported_at >= REPORT_EVERY_S:
                self.report(loss=loss)
            time.sleep(self.options.pause_ms / 1000)
        return True

    def take_step(self):
        """One step of all ranks together: its loss, and the most that any of them was asked for."""
        mine = self.training.gradients(self.member.rank, self.member.world_size)
        sent = self.gang.gather(bytes([self.wish()]) + to_bytes(mine))
        answer = self.gang.broadcast(agree(sent) if sent else None)
        return self.training.learn(from_bytes(answer[1:])[0]), answer[0]

    def wish(self):
        due = (self.training.step + 1) % self.options.checkpoint_every == 0
        return max(self.member.wish(), job.CHECKPOINT if due else job.NOTHING)

    def checkpoint(self, **more):
        """Keeps the training as it is; no rank says so before rank 0 has it on the disk."""
        if self.member.rank == 0:
            job.keep(self.path, self.training.content())
        self.gang.broadcast(b"")
        self.kept = self.training.step
        say(f"checkpoint at step {self.kept} of {self.steps}")
        self.report(**more)

    def report(self, **more):
        self.reported_at = time.monotonic()
        step = self.training.step
        self.member.report(step, self.steps, self.kept, **more)
        say(f"step {step} of {self.steps}" + "".join(f", {k} {v:.6g}" for k, v in more.items()))

    def finish(self):
        """Keeps the last checkpoint and writes the model; started again, it would do only that."""
        loss, share = self.training.judge()
        if self.member.rank == 0:
            job.keep(self.options.export, build(self.training.values))
        self.checkpoint(loss=loss, accuracy=share)
        if self.member.rank == 0:
            say(f"model written to {self.options.export}")

    def rescue(self):
        """What rank 0 can still do when another is gone: keep what all had reached."""
        if self.member.rank == 0 and self.training.step > (self.kept or 0):
            job.keep(self.path, self.training.content())
            self.kept = self.training.step
            self.report()


def agree(sent):
    """What rank 0 answers: the most that any rank was asked for, and the sum over the batch."""
    total = add([from_bytes(content[1:]) for content in sent])
    return bytes([max(content[0] for content in sent)]) + to_bytes(total)


def say(line):
    print(line, flush=True)


def work(member, options):
    """Runs this rank to its end and returns its exit code."""
    if member.world_size > PIECES:
        raise job.Refused(f"WORLD_SIZE is {member.world_size}; a batch has {PIECES} pieces")
    options.export = options.export or member.checkpoint_dir / "digits.onnx"
    if options.export.parent != member.checkpoint_dir and not options.export.parent.is_dir():
        raise job.Refused(f"--export {options.export}: there is no such folder")
    run = Run(member, options)
    try:
        run.gang.meet()
        run.resume()
        if run.train():
            run.finish()
            return 0
    except Lost:
        run.rescue()
        # Ranks that are stopped together need not end together.
        if not member.stopping:
            raise
    finally:
        run.gang.close()
    return job.EXIT_STOPPED


def main():
    parser = job.parser(__doc__.split("\n", 1)[0])
    parser.add_argument(
        "--export", type=Path, help="where the model goes (digits.onnx in the checkpoint folder)"
    )
    options = parser.parse_args()
    try:
        member = job.Job()
        member.listen()
        sys.exit(work(member, options))
    except (job.Refused, Lost, OSError) as error:
        sys.exit(f"digits.py: {error}")


if __name__ == "__main__":
    main()
