"""Inference with `tritonclient`, in each form it can send."""

import json

import numpy as np
import pytest
import tritonclient.http as triton
from conftest import ROOT

TEXT_BYTES = 256


def infer_input(name, values, datatype, binary=True):
    made = triton.InferInput(name, values.shape, datatype)
    made.set_data_from_numpy(values, binary_data=binary)
    return made


def digits_input(samples, binary=True):
    return infer_input("image", samples, "FP32", binary)


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False])
def test_every_digit_is_read_right(client, samples, binary_in, binary_out):
    outputs = [
        triton.InferRequestedOutput("digit", binary_data=binary_out),
        triton.InferRequestedOutput("probabilities", binary_data=binary_out),
    ]
    result = client.infer("digits", [digits_input(samples, binary_in)], outputs=outputs)
    assert result.as_numpy("digit")[:, 0].tolist() == list(range(10))
    probabilities = result.as_numpy("probabilities")
    assert probabilities.shape == (10, 10)
    assert np.allclose(probabilities.sum(axis=1), 1.0, atol=1e-5)


def test_outputs_come_whole_when_none_are_named(client, samples):
    result = client.infer("digits", [digits_input(samples[:1])])
    assert {output["name"] for output in result.get_response()["outputs"]} == {
        "digit",
        "probabilities",
    }


def test_one_output_may_be_binary_and_another_json(client, samples):
    outputs = [
        triton.InferRequestedOutput("digit", binary_data=False),
        triton.InferRequestedOutput("probabilities", binary_data=True),
    ]
    result = client.infer("digits", [digits_input(samples[:2])], outputs=outputs)
    assert result.get_output("digit")["data"] == [0, 1]
    assert "data" not in result.get_output("probabilities")
    assert result.as_numpy("probabilities").argmax(axis=1).tolist() == [0, 1]


def test_only_the_named_output_comes_back(client, samples):
    outputs = [triton.InferRequestedOutput("digit")]
    result = client.infer("digits", [digits_input(samples[:1])], outputs=outputs)
    assert [output["name"] for output in result.get_response()["outputs"]] == ["digit"]


def test_the_language_of_a_text_is_guessed_from_its_bytes(client):
    texts = ["Wo ist der Bahnhof?", "Where is the station?", "Var ligger stationen?"]
    rows = b"".join(text.encode().ljust(TEXT_BYTES, b"\0") for text in texts)
    values = np.frombuffer(rows, np.uint8).reshape(len(texts), TEXT_BYTES)
    result = client.infer("langid", [infer_input("text", values, "UINT8")])
    labels = json.loads((ROOT / "configs" / "models" / "manifest.json").read_text())["langid"]["labels"]
    assert [labels[i] for i in result.as_numpy("language")[:, 0]] == ["de", "en", "sv"]


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False])
def test_bytes_return_as_they_went(client, binary_in, binary_out):
    words = [["", "plain", "två ord"], ["line\nbreak", '"quoted"', "日本"]]
    values = np.array([[word.encode() for word in row] for row in words], dtype=np.object_)
    outputs = [triton.InferRequestedOutput("words_out", binary_data=binary_out)]
    result = client.infer(
        "echo_bytes", [infer_input("words", values, "BYTES", binary_in)], outputs=outputs
    )
    back = result.as_numpy("words_out")
    decode = lambda word: word.decode() if isinstance(word, bytes) else word
    assert [[decode(word) for word in row] for row in back] == words


def test_bytes_that_are_not_text_return_as_they_went(client):
    values = np.array([[b"\x00", b"\xff\xfe", bytes(range(256))]], dtype=np.object_)
    result = client.infer("echo_bytes", [infer_input("words", values, "BYTES")])
    assert result.as_numpy("words_out").tolist() == values.tolist()


@pytest.mark.parametrize("request_algorithm", [None, "gzip", "deflate"])
@pytest.mark.parametrize("response_algorithm", [None, "gzip", "deflate"])
def test_bodies_may_be_compressed_both_ways(
    client, samples, request_algorithm, response_algorithm
):
    result = client.infer(
        "digits",
        [digits_input(samples)],
        request_compression_algorithm=request_algorithm,
        response_compression_algorithm=response_algorithm,
    )
    assert result.as_numpy("digit")[:, 0].tolist() == list(range(10))


def test_several_inputs_and_outputs_keep_their_order_and_types(client):
    floats = np.arange(32, dtype=np.float32).reshape(2, 16)
    halves = np.array([[0.5, -1.0, 2.0, 65504.0]] * 2, np.float16)
    inputs = [infer_input("halves", halves, "FP16"), infer_input("floats", floats, "FP32")]
    result = client.infer("echo_pair", inputs)
    assert np.array_equal(result.as_numpy("floats_out"), floats)
    assert np.array_equal(result.as_numpy("halves_out"), halves)
    assert result.as_numpy("zeros").tolist() == [[0, 0], [0, 0]]


def test_the_request_id_is_echoed(client, samples):
    result = client.infer("digits", [digits_input(samples[:1])], request_id="order-66")
    assert result.get_response()["id"] == "order-66"
    assert result.get_response()["model_name"] == "digits"
    assert result.get_response()["model_version"] == "1"


def test_a_version_may_be_named(client, samples):
    result = client.infer("digits", [digits_input(samples[3:4])], model_version="1")
    assert result.as_numpy("digit").tolist() == [[3]]


def test_priority_timeout_and_custom_parameters_are_accepted(client, samples):
    result = client.infer(
        "digits",
        [digits_input(samples[:1])],
        priority=1,
        timeout=900_000,
        parameters={"trace": "a1", "attempt": 2, "dry": False},
    )
    assert result.as_numpy("digit").tolist() == [[0]]


def test_concurrent_requests_each_get_their_own_answer(sluice, samples):
    with triton.InferenceServerClient(sluice.inference, concurrency=8) as client:
        order = [digit for _ in range(8) for digit in range(10)]
        waiting = [
            client.async_infer("digits", [digits_input(samples[digit : digit + 1])])
            for digit in order
        ]
        found = [request.get_result().as_numpy("digit")[0, 0] for request in waiting]
    assert found == order


def test_statistics_count_what_was_inferred(client, samples):
    def counts():
        stats = client.get_inference_statistics("digits")["model_stats"][0]
        return stats["inference_count"], stats["inference_stats"]["success"]["count"]

    rows_before, requests_before = counts()
    client.infer("digits", [digits_input(samples)])
    rows_after, requests_after = counts()
    assert rows_after - rows_before == 10
    assert requests_after - requests_before == 1
