"""`langid`: which of eight languages a short text is in, from its bytes.

Every run of three and of four bytes is hashed to a row of a table; the mean of the rows, one
column per language, is the score. Lowering, hashing and the mean happen inside the graph, so a
caller sends plain UTF-8, padded with zeros to 256 bytes. The sentences were written for this
project: the same 48 in each language, of which every fourth is held out from training.
"""

from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression

import graph

LANGUAGES = ["de", "en", "es", "fr", "it", "nl", "pt", "sv"]
LENGTH = 256
BUCKETS = 2048
GRAMS = {3: (961, 31, 1), 4: (29791, 961, 31, 1)}
HELD_OUT_EVERY = 4
PIECES_PER_SENTENCE = 24
SEED = 20

LOWER = np.arange(256, dtype=np.int32)
LOWER[ord("A") : ord("Z") + 1] += ord("a") - ord("A")


def encode(text):
    """The text's UTF-8 bytes, cut or zero-padded to LENGTH."""
    padded = np.zeros(LENGTH, np.uint8)
    raw = np.frombuffer(text.encode()[:LENGTH], np.uint8)
    padded[: len(raw)] = raw
    return padded


def load():
    """(training, held out) lists of (text, language index)."""
    training, held_out = [], []
    folder = Path(__file__).parent / "sentences"
    for index, language in enumerate(LANGUAGES):
        lines = (folder / f"{language}.txt").read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines):
            rest = number % HELD_OUT_EVERY == HELD_OUT_EVERY - 1
            (held_out if rest else training).append((line, index))
    return training, held_out


def pieces(sentences):
    """The sentences and seeded runs of their words, so that short texts are learned too."""
    random = np.random.default_rng(SEED)
    for text, language in sentences:
        yield text, language
        words = text.split()
        for _ in range(PIECES_PER_SENTENCE):
            size = random.integers(1, min(7, len(words)) + 1)
            start = random.integers(0, len(words) - size + 1)
            yield " ".join(words[start : start + size]), language


def buckets(rows):
    """The bucket of every gram in each row, exactly as the graph computes it."""
    lowered = LOWER[rows]
    found = []
    for size, factors in GRAMS.items():
        positions = LENGTH - size + 1
        total = sum(lowered[:, i : i + positions] * factor for i, factor in enumerate(factors))
        found.append(total % BUCKETS)
    return found


def features(rows):
    """Mean count of each bucket per byte of text; bucket 0 belongs to the padding."""
    lengths = np.maximum((rows != 0).sum(axis=1), 1)
    parts = []
    for table, found in enumerate(buckets(rows)):
        row, _ = np.nonzero(found)
        column = found[found != 0] + table * BUCKETS
        parts.append((row, column))
    row = np.concatenate([part[0] for part in parts])
    column = np.concatenate([part[1] for part in parts])
    shape = (len(rows), BUCKETS * len(GRAMS))
    return csr_matrix(((1.0 / lengths)[row], (row, column)), shape)


def train():
    """Returns the ONNX model, the held-out rows of bytes and their languages."""
    sentences, held_out = load()
    texts, languages = zip(*pieces(sentences))
    rows = np.stack([encode(text) for text in texts])
    model = LogisticRegression(C=300.0, max_iter=2000)
    model.fit(features(rows), languages)
    held_out_rows = np.stack([encode(text) for text, _ in held_out])
    return build(model), held_out_rows, np.array([language for _, language in held_out])


def build(model):
    """Writes lowering, hashing, table look-up and softmax as one graph."""
    made = graph.Graph("langid")
    table = model.coef_.T.astype(np.float32).reshape(len(GRAMS), BUCKETS, len(LANGUAGES)).copy()
    table[:, 0] = 0.0
    codes = made.node("Cast", ["text"], "codes", to=graph.INT32)
    lowered = made.node("Gather", [made.weight("lower", LOWER), codes], "lowered")
    sums = []
    for number, (size, factors) in enumerate(GRAMS.items()):
        found = gram_buckets(made, lowered, size, factors)
        rows = made.weight(f"table_{size}", table[number])
        looked_up = made.node("Gather", [rows, found], f"rows_{size}")
        axes = made.weight(f"positions_{size}", np.array([1], np.int64))
        sums.append(made.node("ReduceSum", [looked_up, axes], f"sum_{size}", keepdims=0))
    total = made.node("Add", sums, "sum")
    mean = made.node("Div", [total, text_lengths(made, codes)], "mean")
    bias = made.weight("bias", model.intercept_.astype(np.float32))
    scores = made.node("Add", [mean, bias], "scores")
    made.node("Softmax", [scores], "probabilities", axis=1)
    made.node("ArgMax", ["probabilities"], "language", axis=1, keepdims=1)
    return made.model(
        [("text", graph.UINT8, LENGTH)],
        [("probabilities", graph.FLOAT, len(LANGUAGES)), ("language", graph.INT64, 1)],
    )


def gram_buckets(made, lowered, size, factors):
    """Adds the nodes that hash every run of `size` bytes; returns their output."""
    axis = made.weight(f"axis_{size}", np.array([1], np.int64))
    positions = LENGTH - size + 1
    total = None
    for offset, factor in enumerate(factors):
        name = f"{size}_{offset}"
        start = made.weight(f"start_{name}", np.array([offset], np.int64))
        end = made.weight(f"end_{name}", np.array([offset + positions], np.int64))
        term = made.node("Slice", [lowered, start, end, axis], f"slice_{name}")
        factor = made.weight(f"factor_{name}", np.array(factor, np.int32))
        term = made.node("Mul", [term, factor], f"term_{name}")
        total = term if total is None else made.node("Add", [total, term], f"hash_{name}")
    modulus = made.weight(f"buckets_{size}", np.array(BUCKETS, np.int32))
    return made.node("Mod", [total, modulus], f"bucket_{size}")


def text_lengths(made, codes):
    """Adds the nodes that count each text's bytes, at least one; returns their output."""
    real = made.node("Cast", [codes], "real", to=graph.FLOAT)
    one = made.weight("one", np.array(1.0, np.float32))
    counted = made.node("Min", [real, one], "counted")
    axis = made.weight("bytes_axis", np.array([1], np.int64))
    length = made.node("ReduceSum", [counted, axis], "length", keepdims=1)
    return made.node("Max", [length, one], "length_at_least_one")
