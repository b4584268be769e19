#!/usr/bin/env python3
"""Trains the digit reader with PyTorch's DistributedDataParallel over gloo.

    pip install torch numpy
    torchrun --nproc-per-node 2 examples/train/ddp.py

What it shows is the contract: the ranks agree each step on what any of them was asked for, so that
all checkpoint at one step; rank 0 writes, the others wait until it is on the disk; and a start with
a checkpoint goes on from it. A slice is the only device that its rank sees.
"""

import io
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import job
import network

VERSION = 1
REPORT_EVERY_S = 0.25


class Run:
    """One start of the job: the model and its optimizer, shared by all ranks."""

    def __init__(self, member, options):
        self.member, self.options = member, options
        self.path = member.checkpoint_dir / "ddp.pt"
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        (images, digits), _ = network.load()
        self.images = torch.from_numpy(images / network.PIXEL_MAX).to(self.device)
        self.digits = torch.from_numpy(digits).to(self.device)
        torch.manual_seed(options.seed)
        layers = torch.nn.Linear(64, 96), torch.nn.ReLU(), torch.nn.Linear(96, 10)
        self.model = torch.nn.Sequential(*layers).to(self.device)
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.epoch_steps = -(-len(images) // network.BATCH)
        self.steps = options.epochs * self.epoch_steps
        self.step, self.kept = 0, None
        self.reported_at = 0.0

    def content(self):
        """All that going on needs, as the bytes of a file."""
        file = io.BytesIO()
        about = {"version": VERSION, "seed": self.options.seed, "step": self.step}
        torch.save(
            about | {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()},
            file,
        )
        return file.getvalue()

    def restore(self, content):
        """Goes on where `content` was made; it is read as data, never as code."""
        told = f"checkpoint {self.path}, remove it to start anew: "
        try:
            found = torch.load(io.BytesIO(content), self.device, weights_only=True)
            of = found["version"], found["seed"]
            if of == (VERSION, self.options.seed):
                self.model.load_state_dict(found["model"])
                self.optimizer.load_state_dict(found["optimizer"])
                self.step = self.kept = found["step"]
        except Exception as error:
            # What torch raises for a damaged file is not one kind of error.
            raise job.Refused(f"{told}it cannot be read ({error!r})") from None
        if of != (VERSION, self.options.seed):
            raise job.Refused(f"{told}its version and seed are {of[0]} and {of[1]}")

    def resume(self):
        """All ranks take up what rank 0 finds in the checkpoint folder, if anything."""
        found = b""
        if self.member.rank == 0:
            self.member.checkpoint_dir.mkdir(parents=True, exist_ok=True)
            if self.path.exists():
                found = self.path.read_bytes()
                self.restore(found)
        length = torch.tensor(len(found))
        dist.broadcast(length, 0)
        if not length:
            return
        content = torch.empty(int(length), dtype=torch.uint8)
        if self.member.rank == 0:
            content = torch.frombuffer(bytearray(found), dtype=torch.uint8)
        dist.broadcast(content, 0)
        if self.member.rank != 0:
            self.restore(content.numpy().tobytes())
        print(f"resumed at step {self.kept} of {self.steps}", flush=True)

    def train(self):
        """Steps to the end; True unless some rank was asked to stop before."""
        shared = DistributedDataParallel(self.model)
        self.report()
        while self.step < self.steps:
            loss = self.take_step(shared)
            due = self.step % self.options.checkpoint_every == 0
            wish = torch.tensor(max(self.member.wish(), job.CHECKPOINT if due else job.NOTHING))
            dist.all_reduce(wish, dist.ReduceOp.MAX)
            if wish != job.NOTHING:
                self.checkpoint(loss=loss)
            if wish == job.STOP:
                return self.step == self.steps
            if time.monotonic() - self.reported_at >= REPORT_EVERY_S:
                self.report(loss=loss)
            time.sleep(self.options.pause_ms / 1000)
        return True

    def take_step(self, shared):
        """One step of all ranks together; returns the loss over this rank's part of the batch."""
        epoch, step = divmod(self.step, self.epoch_steps)
        random = torch.Generator().manual_seed(self.options.seed * 1_000_003 + epoch)
        order = torch.randperm(len(self.images), generator=random)
        batch = order[step * network.BATCH : (step + 1) * network.BATCH]
        mine = batch[self.member.rank :: self.member.world_size].to(self.device)
        self.optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(shared(self.images[mine]), self.digits[mine])
        loss.backward()
        self.optimizer.step()
        self.step += 1
        return loss.item()

    def checkpoint(self, **more):
        """Keeps the training as it is; no rank says so before rank 0 has it on the disk."""
        if self.member.rank == 0:
            job.keep(self.path, self.content())
        dist.barrier()
        self.kept = self.step
        print(f"checkpoint at step {self.kept} of {self.steps}", flush=True)
        self.report(**more)

    def report(self, **more):
        self.reported_at = time.monotonic()
        self.member.report(self.step, self.steps, self.kept, **more)
        said = "".join(f", {name} {value!r}" for name, value in more.items())
        print(f"step {self.step} of {self.steps}{said}", flush=True)

    def finish(self):
        """Keeps the last checkpoint, and says how good the model is."""
        with torch.no_grad():
            loss = torch.nn.functional.cross_entropy(self.model(self.images), self.digits)
        self.checkpoint(loss=loss.item())


    def rescue(self):
        """What rank 0 can still do when another is gone: keep what all had reached."""
        if self.member.rank == 0 and self.step > (self.kept or 0):
            job.keep(self.path, self.content())
            self.kept = self.step
            self.report()


def work(member, options):
    """Runs this rank to its end and returns its exit code."""
    rendezvous = "tcp://{}:{}".format(*member.master)
    dist.init_process_group(
        "gloo", init_method=rendezvous, rank=member.rank, world_size=member.world_size
    )
    run = Run(member, options)
    try:
        run.resume()
        done = run.train()
        if done:
            run.finish()
    except RuntimeError:
        run.rescue()
        # Ranks that are stopped together need not end together.
        if not member.stopping:
            raise
        done = False
    dist.destroy_process_group()
    return 0 if done else job.EXIT_STOPPED


def main():
    options = job.parser(__doc__.split("\n", 1)[0]).parse_args()
    try:
        member = job.Job()
        member.listen()
        torch.set_num_threads(1)
        sys.exit(work(member, options))
    except (job.Refused, OSError, RuntimeError) as error:
        sys.exit(f"ddp.py: {error}")


if __name__ == "__main__":
    main()
