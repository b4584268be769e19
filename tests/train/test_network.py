"""The network that the training example trains."""

import json

import numpy as np
import pytest
from conftest import ROOT

import network

SAMPLES = ROOT / "examples" / "digits.json"


def test_the_gradient_is_that_of_the_loss():
    training = network.Training(seed=5)
    images, digits = training.images[:32], training.digits[:32]
    random = np.random.default_rng(5)
    values = training.values.astype(np.float64)
    slope = network.gradient(network.named(values), images, digits)[: network.SIZE]
    for at in random.integers(0, network.SIZE, 40):
        moved = [values.copy(), values.copy()]
        moved[0][at] += 1e-6
        moved[1][at] -= 1e-6
        above, below = (
            -network.forward(network.named(v), images)[1][range(32), digits].sum() for v in moved
        )
        assert slope[at] == pytest.approx((above - below) / 2e-6, rel=1e-4, abs=1e-5), f"at {at}"


def test_no_image_that_the_clients_show_was_learned_from():
    shown = {tuple(row["image"]) for row in json.loads(SAMPLES.read_text())}
    (learned, _), (held_out, _) = network.load()
    assert shown.isdisjoint(tuple(image) for image in learned.tolist())
    assert shown <= {tuple(image) for image in held_out.tolist()}
