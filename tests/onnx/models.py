"""Real models from PyPI's wheels, what to ask them, and a server and a client that do."""

import http.client
import json
import sys
import sysconfig
from pathlib import Path

import numpy as np
import onnxruntime

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PACKAGES = Path(sysconfig.get_path("purelib"))
sys.path.insert(0, str(ROOT / "tests" / "lib"))

DATATYPES = {"f4": "FP32", "i4": "INT32", "i8": "INT64", "O": "BYTES"}


class Model:
    """A model's file, the keys it needs, and inputs for it."""

    def __init__(self, name, path, row, keys="", batches=True):
        self.name, self.path, self.row, self.keys, self.batches = name, path, row, keys, batches
        self.names = None

    def inputs(self, rows):
        """The inputs of so many rows, the same each time."""
        if not self.batches:
            return self.row
        return {name: np.repeat(array[None], rows, axis=0) for name, array in self.row.items()}

    def session(self):
        """The model as its users run it, on one thread."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        return onnxruntime.InferenceSession(self.path, options, providers=["CPUExecutionProvider"])

    def table(self):
        return f'[[model]]\nname = "{self.name}"\nengine = "onnx"\npath = "{self.path}"\n' \
            f"slo_ms = 20000\nmax_batch = 8\nthreads = 1\n{self.keys}\n"


def models(folder):
    """Every model; `folder` gets the files that some are warmed with."""
    chance = np.random.default_rng(7)

    def floats(*shape):
        return chance.random(shape, np.float32)

    def reader(file):
        return PACKAGES / "rapidocr_onnxruntime" / "models" / file

    speech = {
        "input": floats(1, 512),
        "state": np.zeros((2, 1, 128), np.float32),
        "sr": np.array(16000, np.int64),
    }
    np.savez(folder / "speech.npz", **speech)
    return [
        Model(
            "magika",
            PACKAGES / "magika" / "models" / "standard_v3_3" / "model.onnx",
            {"bytes": chance.integers(0, 256, 2048, np.int32)},
        ),
        Model(
            "detector",
            reader("ch_PP-OCRv4_det_infer.onnx"),
            {"x": floats(3, 160, 160)},
            "warmup = { x = [3, 160, 160] }",
        ),
        Model(
            "recognizer",
            reader("ch_PP-OCRv4_rec_infer.onnx"),
            {"x": floats(3, 48, 160)},
            "warmup = [{ x = [3, 48, 160] }, { x = [3, 48, 80] }]",
        ),
        Model(
            "classifier",
            reader("ch_ppocr_mobile_v2.0_cls_infer.onnx"),
            {"x": floats(3, 48, 192)},
            "warmup = { x = [3, 48, 192] }",
        ),
        Model(
            "speech",
            PACKAGES / "silero_vad" / "data" / "silero_vad.onnx",
            speech,
            f'warmup_file = "{folder / "speech.npz"}"',
            batches=False,
        ),
        Model("flowers", HERE / "flowers.onnx", {"X": floats(4)}),
    ]


def configuration(folder, all_models):
    """A file that serves them on one slice."""
    file = folder / "sluice.toml"
    tables = "\n".join(model.table() for model in all_models)
    file.write_text(tables + '\n[[worker]]\ngpu = "simulated:A100-80GB"\n')
    return file


class Client:
    """One connection, on which tensors are sent and received in binary."""

    def __init__(self, address):
        self.connection = http.client.HTTPConnection(address)

    def get(self, path):
        self.connection.request("GET", path)
        response = self.connection.getresponse()
        body = response.read()
        assert response.status == 200, body
        return json.loads(body)

    def infer(self, model, inputs):
        """The outputs, by name."""
        heads, body = [], b""
        for name, array in inputs.items():
            data = np.ascontiguousarray(array).tobytes()
            heads.append({
                "name": name,
                "datatype": DATATYPES[array.dtype.str[1:]],
                "shape": list(array.shape),
                "parameters": {"binary_data_size": len(data)},
            })
            body += data
        head = json.dumps({"inputs": heads, "parameters": {"binary_data_output": True}}).encode()
        headers = {"Inference-Header-Content-Length": str(len(head))}
        path = f"/v2/models/{model}/infer"
        self.connection.request("POST", path, head + body, headers)
        response = self.connection.getresponse()
        answer = response.read()
        assert response.status == 200, answer[:2000]
        length = int(response.getheader("Inference-Header-Content-Length"))
        return dict(outputs(json.loads(answer[:length]), answer[length:]))

    def computed(self, model):
        """The rows its executor has run, and their nanoseconds: a row takes as long as its batch."""
        found = self.get(f"/v2/models/{model}/stats")["model_stats"][0]["inference_stats"]
        parts = [found[part] for part in ("compute_input", "compute_infer", "compute_output")]
        return parts[1]["count"], sum(part["ns"] for part in parts)


def outputs(head, body):
    """Each output of an answer."""
    kinds = {datatype: kind for kind, datatype in DATATYPES.items()}
    for output in head["outputs"]:
        size = output["parameters"]["binary_data_size"]
        data, body = body[:size], body[size:]
        if output["datatype"] == "BYTES":
            texts = []
            while data:
                length = int.from_bytes(data[:4], "little")
                texts.append(data[4 : 4 + length].decode())
                data = data[4 + length :]
            array = np.array(texts, object)
        else:
            array = np.frombuffer(data, kinds[output["datatype"]])
        yield output["name"], array.reshape(output["shape"])
