"""A model served by another server, MLServer, which Sluice starts, asks and looks after."""

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from program import ROOT, TARGET, Sluice

WITHIN_S = 60


@pytest.fixture(scope="module")
def served():
    """Serves server.toml, with MLServer's own environment first on the path."""
    config = ROOT / "tests" / "clients" / "server.toml"
    running = Sluice("--config", str(config), path=TARGET / "venv-server" / "bin")
    yield running
    assert running.stop() == 0


@pytest.fixture
def client(served):
    """A fresh client of `served`."""
    with triton.InferenceServerClient(served.inference) as made:
        yield made


def inputs(words, scale):
    """A row of two words, and what to multiply their lengths with."""
    given = [
        triton.InferInput("words", [1, 2], "BYTES"),
        triton.InferInput("scale", [1, 1], "FP32"),
    ]
    given[0].set_data_from_numpy(np.array([words], dtype=object))
    given[1].set_data_from_numpy(np.array([[scale]], np.float32))
    return given


def outputs(answer):
    """The lengths and the words that came back."""
    echo = [word.decode() for word in answer.as_numpy("echo")[0]]
    return answer.as_numpy("lengths")[0].tolist(), echo


def ask(client, words, scale):
    """Asks about a row of two words."""
    return outputs(client.infer("measured", inputs(words, scale)))


def test_the_model_is_described_as_the_server_describes_it(client):
    metadata = client.get_model_metadata("measured")
    assert metadata["platform"] == "server_mlserver"
    assert [(tensor["name"], tensor["shape"]) for tensor in metadata["inputs"]] == [
        ("words", [-1, 2]),
        ("scale", [-1, 1]),
    ]


def test_strings_and_numbers_go_through_and_come_back(client):
    assert ask(client, ["gate", "sluice"], 0.5) == ([2.0, 3.0], ["gate", "sluice"])


def test_callers_at_once_each_get_their_own_answer(served):
    def one(count):
        # A client belongs to the thread that made it.
        with triton.InferenceServerClient(served.inference) as own:
            words = ["x" * count, "y" * (40 - count)]
            return ask(own, words, 1.0) == ([count, 40 - count], words)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(one, range(40)))


def test_what_the_server_refuses_is_the_callers_mistake_in_its_words(client):
    with pytest.raises(InferenceServerException, match="there is a word I do not measure") as told:
        ask(client, ["refuse", "me"], 1.0)
    assert told.value.status() == "400"


def test_a_server_that_dies_is_started_again(client):
    with pytest.raises(InferenceServerException):
        ask(client, ["die", "now"], 1.0)
    end = time.monotonic() + WITHIN_S
    while True:
        try:
            answer = ask(client, ["alive", "again"], 1.0)
            break
        except InferenceServerException as refused:
            assert time.monotonic() < end, refused
            time.sleep(0.1)
    assert answer == ([5.0, 5.0], ["alive", "again"])
