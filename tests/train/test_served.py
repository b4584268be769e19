"""A finished training's model is served as it is and answers as the training code does."""

import numpy as np
import tritonclient.http as triton
from program import Sluice

import network

CONFIGURATION = """
[router]
drain_delay_s = 0

[[model]]
name = "digits"
engine = "onnx"
path = "checkpoint/digits.onnx"
slo_ms = 1000
max_batch = 64
replicas = { min = 1, max = 1 }

[[worker]]
gpu = "simulated:A100-80GB"
"""


def test_the_served_model_answers_as_the_trained_one(trainings):
    trainings.finish("--epochs", "5")
    training = network.Training(seed=20)
    training.restore(trainings.checkpoint.read_bytes())
    images = training.held_out[0][:64]
    expected = network.forward(network.named(training.values), images)[1]

    file = trainings.folder / "served.toml"
    file.write_text(CONFIGURATION)
    served = Sluice("--config", str(file))
    try:
        image = triton.InferInput("image", images.shape, "FP32")
        image.set_data_from_numpy(images)
        with triton.InferenceServerClient(served.inference) as client:
            answer = client.infer("digits", [image])
    finally:
        assert served.stop() == 0
    assert np.allclose(answer.as_numpy("probabilities"), np.exp(expected), atol=1e-5)
    assert np.array_equal(answer.as_numpy("digit")[:, 0], expected.argmax(axis=1))
