"""The demo's digit reader: its images, its network, one step of its training, and its ONNX file.

Every number follows from the seed and the step alone. Each batch is cut into the same pieces
whoever computes them, and their sums are added in the same order; the order of images comes from
the seed and the epoch, not from a generator's past; and arithmetic has one thread.
"""

import io
import json
import os
import zipfile
from pathlib import Path

# Before numpy is imported: threads would make the order of additions a matter of the machine.
os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np  # noqa: E402

import graph  # noqa: E402
import job  # noqa: E402

IMAGES = Path(__file__).parent / "digits.csv.gz"
PIXEL_MAX = 16.0
SHAPES = {"matrix_0": (64, 96), "bias_0": (96,), "matrix_1": (96, 10), "bias_1": (10,)}
SIZE = sum(int(np.prod(shape)) for shape in SHAPES.values())

BATCH = 128
PIECES = 4
RATE, DECAY_MEAN, DECAY_SQUARE, TINY = 1e-3, 0.9, 0.999, 1e-8
PENALTY = 1e-3

VERSION = 1


def load():
    """Images of 64 pixels in 0..16 and their digits: those to learn from, then those held out."""
    rows = np.loadtxt(IMAGES, np.float32, delimiter=",")
    learn, held_out = rows[rows[:, 65] == 0], rows[rows[:, 65] == 1]
    return [(part[:, :64], part[:, 64].astype(np.int64)) for part in (learn, held_out)]


def named(values):
    """The weights by name, each a view of its part of the one array."""
    views, start = {}, 0
    for name, shape in SHAPES.items():
        end = start + int(np.prod(shape))
        views[name] = values[start:end].reshape(shape)
        start = end
    return views


def forward(weights, images):
    """The hidden layer and the logarithms of each digit's probability."""
    hidden = np.maximum(images / PIXEL_MAX @ weights["matrix_0"] + weights["bias_0"], 0)
    scores = hidden @ weights["matrix_1"] + weights["bias_1"]
    scores -= scores.max(axis=1, keepdims=True)
    return hidden, scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))


def gradient(weights, images, digits):
    """The sum over images of the loss's gradient, and last the sum of the loss itself."""
    hidden, logarithms = forward(weights, images)
    rows = np.arange(len(digits))
    total = np.empty(SIZE + 1, np.float32)
    total[SIZE] = -logarithms[rows, digits].sum()
    blame = np.exp(logarithms)
    blame[rows, digits] -= 1
    parts = named(total[:SIZE])
    parts["matrix_1"][:] = hidden.T @ blame
    parts["bias_1"][:] = blame.sum(axis=0)
    blame = blame @ weights["matrix_1"].T * (hidden > 0)
    parts["matrix_0"][:] = (images / PIXEL_MAX).T @ blame
    parts["bias_0"][:] = blame.sum(axis=0)
    return total


class Training:
    """The weights, Adam's two averages of their gradient, and the number of steps that made them."""

    def __init__(self, seed):
        self.seed = seed
        self.step = 0
        (self.images, self.digits), self.held_out = load()
        self.epoch_steps = -(-len(self.images) // BATCH)
        random = np.random.default_rng(seed)
        self.values = np.zeros(SIZE, np.float32)
        for name, view in named(self.values).items():
            if name.startswith("matrix"):
                bound = (6 / sum(view.shape)) ** 0.5
                view[:] = random.uniform(-bound, bound, view.shape)
        self.mean = np.zeros(SIZE, np.float32)
        self.square = np.zeros(SIZE, np.float32)

    def batch(self):
        """Which images the next step learns from, in pieces."""
        epoch, step = divmod(self.step, self.epoch_steps)
        order = np.random.default_rng([self.seed, epoch]).permutation(len(self.images))
        return np.array_split(order[step * BATCH : (step + 1) * BATCH], PIECES)

    def gradients(self, rank, world_size):
        """One row for each piece of the next batch that is this rank's."""
        weights = named(self.values)
        mine = self.batch()[rank::world_size]
        return np.stack([gradient(weights, self.images[at], self.digits[at]) for at in mine])

    def learn(self, total):
        """Takes one step of Adam along the sum over the batch; returns the batch's mean loss."""
        size = sum(len(piece) for piece in self.batch())
        slope = total[:SIZE] / size
        for name, view in named(slope).items():
            if name.startswith("matrix"):
                view += PENALTY / size * named(self.values)[name]
        self.step += 1
        self.mean += (1 - DECAY_MEAN) * (slope - self.mean)
        self.square += (1 - DECAY_SQUARE) * (slope * slope - self.square)
        mean = self.mean / (1 - DECAY_MEAN**self.step)
        square = self.square / (1 - DECAY_SQUARE**self.step)
        self.values -= RATE * mean / (np.sqrt(square) + TINY)
        return float(total[SIZE]) / size

    def judge(self):
        """The mean loss over all images learned from, and the share of those held out read right."""
        weights = named(self.values)
        loss = gradient(weights, self.images, self.digits)[SIZE] / len(self.images)
        images, digits = self.held_out
        read = forward(weights, images)[1].argmax(axis=1)
        return float(loss), float(np.mean(read == digits))

    def content(self):
        """All that going on needs, as the bytes of a file."""
        about = {"program": "digits", "version": VERSION, "seed": self.seed, "step": self.step}
        file = io.BytesIO()
        arrays = {"values": self.values, "mean": self.mean, "square": self.square}
        np.savez(file, about=np.array(json.dumps(about)), **arrays)
        return file.getvalue()

    def restore(self, content):
        """Goes on where `content` was made, or raises `Refused`."""
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as file:
                about = json.loads(str(file["about"]))
                arrays = {name: file[name] for name in ("values", "mean", "square")}
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise job.Refused(f"it cannot be read: {error}") from error
        wanted = {"program": "digits", "version": VERSION, "seed": self.seed}
        for name, value in wanted.items():
            found = about.get(name) if isinstance(about, dict) else None
            if found != value:
                raise job.Refused(f"its {name} is {found}, and this is {name} {value}")
        step = about.get("step")
        whole = isinstance(step, int) and step >= 0
        if not whole or any(array.shape != (SIZE,) for array in arrays.values()):
            raise job.Refused("its arrays or its step are not those of this model")
        self.step = step
        for name, array in arrays.items():
            setattr(self, name, array.astype(np.float32))


def add(ranks):
    """The sum over a batch of what all ranks computed, in the order of its pieces."""
    total = np.zeros(SIZE + 1, np.float32)
    for piece in range(PIECES):
        total += ranks[piece % len(ranks)][piece // len(ranks)]
    return total


def to_bytes(rows):
    """Numbers as they travel between ranks."""
    return rows.astype("<f4").tobytes()


def from_bytes(content):
    """One row or several, as `to_bytes` was given them."""
    return np.frombuffer(content, "<f4").astype(np.float32).reshape(-1, SIZE + 1)


def build(values):
    """Writes the network as ONNX; the graph scales the pixels, so callers send them as they are."""
    weights = named(values)
    made = graph.Graph("digits")
    scale = made.weight("scale", np.array(1.0 / PIXEL_MAX, np.float32))
    last = made.node("Mul", ["image", scale], "scaled")
    for layer in (0, 1):
        matrix = made.weight(f"matrix_{layer}", weights[f"matrix_{layer}"])
        bias = made.weight(f"bias_{layer}", weights[f"bias_{layer}"])
        product = made.node("MatMul", [last, matrix], f"product_{layer}")
        last = made.node("Add", [product, bias], f"layer_{layer}")
        if layer == 0:
            last = made.node("Relu", [last], f"relu_{layer}")
    made.node("Softmax", [last], "probabilities", axis=1)
    made.node("ArgMax", ["probabilities"], "digit", axis=1, keepdims=1)
    return made.model(
        [("image", graph.FLOAT, 64)],
        [("probabilities", graph.FLOAT, 10), ("digit", graph.INT64, 1)],
    )
