"""Starts the program under test as a user would, and hands out its addresses and clients."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import tritonclient.http as triton

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "lib"))

from program import Sluice  # noqa: E402


@pytest.fixture(scope="session")
def sluice():
    """Serves clients.toml for the whole run."""
    running = Sluice("--config", str(ROOT / "tests" / "clients" / "clients.toml"))
    yield running
    assert running.stop() == 0


@pytest.fixture(scope="session")
def demo():
    """Serves the demo: `sluice up` with no file."""
    running = Sluice()
    yield running
    assert running.stop() == 0


@pytest.fixture
def client(sluice):
    """A fresh client of `sluice`."""
    with triton.InferenceServerClient(sluice.inference) as made:
        yield made


@pytest.fixture(scope="session")
def samples():
    """Ten images of handwritten digits, 0 to 9 in order."""
    rows = json.loads((ROOT / "examples" / "digits.json").read_text())
    assert [row["digit"] for row in rows] == list(range(10))
    return np.array([row["image"] for row in rows], np.float32)
