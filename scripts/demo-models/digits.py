"""`digits`: which digit an 8x8 grey image shows, from scikit-learn's bundled set."""

import warnings

import numpy as np
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

import graph

SEED = 20
PIXEL_MAX = 16.0
HIDDEN = 96


def load():
    """Images of 64 pixels in 0..16 and their digits, split 3:1, every digit in both parts."""
    images, digits = load_digits(return_X_y=True)
    return train_test_split(
        images.astype(np.float32), digits, test_size=0.25, random_state=SEED, stratify=digits
    )


def train():
    """Returns the ONNX model, the held-out images and their digits."""
    images, held_out, digits, held_out_digits = load()
    network = MLPClassifier((HIDDEN,), alpha=1e-3, max_iter=400, random_state=SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        network.fit(images / PIXEL_MAX, digits)
    return build(network), held_out, held_out_digits


def build(network):
    """Writes the network as ONNX; the graph scales the pixels, so callers send them as they are."""
    weights = [layer.astype(np.float32) for layer in network.coefs_]
    biases = [layer.astype(np.float32) for layer in network.intercepts_]
    made = graph.Graph("digits")
    scale = made.weight("scale", np.array(1.0 / PIXEL_MAX, np.float32))
    last = made.node("Mul", ["image", scale], "scaled")
    for index, (matrix, bias) in enumerate(zip(weights, biases)):
        matrix = made.weight(f"matrix_{index}", matrix)
        bias = made.weight(f"bias_{index}", bias)
        product = made.node("MatMul", [last, matrix], f"product_{index}")
        last = made.node("Add", [product, bias], f"layer_{index}")
        if index + 1 < len(weights):
            last = made.node("Relu", [last], f"relu_{index}")
    made.node("Softmax", [last], "probabilities", axis=1)
    made.node("ArgMax", ["probabilities"], "digit", axis=1, keepdims=1)
    return made.model(
        [("image", graph.FLOAT, 64)],
        [("probabilities", graph.FLOAT, 10), ("digit", graph.INT64, 1)],
    )
