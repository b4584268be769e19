"""The caller's mistakes reach the caller as the client's own exception, with our message."""

import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException


def refused(client, model, values, name="image", datatype="FP32", **options):
    """Infers, expecting refusal; returns the exception."""
    given = triton.InferInput(name, values.shape, datatype)
    given.set_data_from_numpy(values)
    with pytest.raises(InferenceServerException) as caught:
        client.infer(model, [given], **options)
    return caught.value


def test_an_unknown_model_is_named(client, samples):
    error = refused(client, "nosuch", samples)
    assert error.status() == "404"
    assert "nosuch" in error.message()


def test_an_unknown_version_is_named(client, samples):
    error = refused(client, "digits", samples, model_version="7")
    assert error.status() == "404"
    assert "7" in error.message()


def test_a_wrong_shape_names_the_input_and_both_shapes(client):
    error = refused(client, "digits", np.zeros((1, 63), np.float32))
    assert error.status() == "400"
    assert "image" in error.message()
    assert "63" in error.message() and "64" in error.message()


def test_a_wrong_datatype_names_the_input_and_both_types(client):
    error = refused(client, "digits", np.zeros((1, 64), np.int32), datatype="INT32")
    assert error.status() == "400"
    assert "image" in error.message()
    assert "INT32" in error.message() and "FP32" in error.message()


def test_an_unknown_input_is_named(client, samples):
    error = refused(client, "digits", samples, name="picture")
    assert error.status() == "400"
    assert "picture" in error.message()


def test_an_unknown_output_is_named(client, samples):
    outputs = [triton.InferRequestedOutput("letter")]
    error = refused(client, "digits", samples, outputs=outputs)
    assert error.status() == "400"
    assert "letter" in error.message()


def test_more_rows_than_a_batch_holds_gives_both_numbers(client):
    error = refused(client, "digits", np.zeros((17, 64), np.float32))
    assert error.status() == "400"
    assert "17" in error.message() and "16" in error.message()


def test_the_connection_is_usable_after_a_refusal(client, samples):
    for _ in range(3):
        refused(client, "nosuch", samples)
        refused(client, "digits", np.zeros((1, 63), np.float32))
        given = triton.InferInput("image", samples.shape, "FP32")
        given.set_data_from_numpy(samples)
        assert client.infer("digits", [given]).as_numpy("digit")[3, 0] == 3
