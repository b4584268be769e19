"""Models from PyPI answer through Sluice what onnxruntime answers by itself."""

import json
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import onnxruntime
import pytest
from models import HERE, Client, Model, configuration, models
from program import PROGRAM, Sluice

BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("onnx")


@pytest.fixture(scope="module")
def sluice(folder):
    """Serves every model with the onnxruntime of this Python, found by itself."""
    running = Sluice("--config", str(configuration(folder, models(folder))), path=BIN)
    yield running
    assert running.stop() == 0


def check(folder, *all_models, path=BIN):
    file = configuration(folder, all_models)
    command = [PROGRAM, "check", str(file), "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, env={"PATH": str(path)})
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize("rows", [1, 8])
@pytest.mark.parametrize("index", range(6))
def test_answers_equal_those_of_onnxruntime(sluice, folder, index, rows):
    model = models(folder)[index]
    if rows > 1 and not model.batches:
        pytest.skip("it does not batch")
    inputs = model.inputs(rows)
    answers = Client(sluice.inference).infer(model.name, inputs)
    session = model.session()
    wanted = session.run(None, inputs)
    for output, want in zip(session.get_outputs(), wanted, strict=True):
        found = answers[output.name]
        if want.dtype == object:
            assert found.tolist() == want.tolist()
            assert set(found.tolist()) <= {"setosa", "versicolor", "virginica"}
        else:
            np.testing.assert_allclose(found, want, rtol=1e-3, atol=1e-4)


def test_start_line_and_state_name_the_runtime(sluice):
    version = onnxruntime.__version__
    assert sluice.line("onnx").startswith(f"onnx       onnxruntime {version} of python3, ")
    with urlopen(f"http://{sluice.admin}/admin/v1/state") as response:
        state = json.load(response)
    replicas = [
        replica
        for worker in state["workers"]
        for gpu in worker["gpus"]
        for each in gpu["slices"]
        for replica in each["replicas"]
    ]
    assert len(replicas) >= 6
    for replica in replicas:
        assert replica["runtime"] == f"onnxruntime {version} on cpu, 1 thread", replica
    metadata = Client(sluice.inference).get("/v2/models/flowers")
    assert metadata["platform"] == "onnxruntime_onnx"


def test_zipmap_is_left_out_with_the_way_to_avoid_it(folder):
    model = Model("flowers", HERE / "flowers-zipmap.onnx", {})
    code, report = check(folder, model)
    assert code == 0, report
    (loads,) = [one["loads"] for one in report["models"]]
    assert [output["name"] for output in loads["signature"]["outputs"]] == ["output_label"]
    (left_out,) = loads["left_out"]
    assert "zipmap=False" in left_out


def test_embedded_engine_names_what_it_lacks(folder):
    model = Model("flowers", HERE / "flowers.onnx", {})
    code, report = check(folder, model, path="/nonexistent")
    assert code == 78
    reason = report["models"][0]["fails"]["reason"]
    assert "ai.onnx.ml/LinearClassifier" in reason and "ai.onnx.ml/Scaler" in reason, reason
    assert "onnxruntime has" in reason, reason


def test_gpu_is_refused_by_a_library_without_cuda(folder):
    model = Model("flowers", HERE / "flowers.onnx", {}, 'device = "gpu"')
    code, report = check(folder, model)
    assert code == 78
    reason = report["models"][0]["fails"]["reason"]
    assert 'device is "gpu"' in reason and "onnxruntime-gpu" in reason, reason
