"""Trains the demo's models and writes them, with a manifest, to the folder named.

What is measured is the ONNX file itself, run by ONNX Runtime on the held-out part, one row at a
time and as one batch; a model below its floor is not written.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

# The example that a training job runs is what trains the digit reader, and it writes the graphs.
EXAMPLE = Path(__file__).parents[2] / "examples" / "train"
sys.path.insert(0, str(EXAMPLE))

import network  # noqa: E402  (first, for it says how many threads numpy has)
import numpy as np  # noqa: E402
import onnx  # noqa: E402
import onnxruntime  # noqa: E402

import langid  # noqa: E402


def train_digits():
    """Returns the ONNX model of the example, the held-out images and their digits."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"SLUICE_CHECKPOINT_DIR": folder}
        command = [sys.executable, EXAMPLE / "digits.py"]
        subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
        content = (Path(folder) / "digits.onnx").read_bytes()
    images, digits = network.load()[1]
    return content, images, digits


MODELS = {
    "digits": {
        "train": train_digits,
        "input": "image",
        "answer": "digit",
        "labels": [str(digit) for digit in range(10)],
        "floor": 0.97,
        "trained_on": "the UCI set of handwritten digits, examples/train/digits.csv.gz",
    },
    "langid": {
        "train": langid.train,
        "input": "text",
        "answer": "language",
        "labels": langid.LANGUAGES,
        "floor": 0.9,
        "trained_on": "sentences written for this project, scripts/demo-models/sentences",
    },
}


def accuracy(content, spec, rows, expected):
    """The share of held-out rows answered right; single rows and one batch must agree."""
    session = onnxruntime.InferenceSession(content)
    whole = session.run([spec["answer"]], {spec["input"]: rows})[0][:, 0]
    for row, answer in zip(rows, whole):
        alone = session.run([spec["answer"]], {spec["input"]: row[None]})[0][0, 0]
        assert alone == answer, f"a row alone gives {alone}, in a batch {answer}"
    return float(np.mean(whole == expected))


def main():
    folder = Path(sys.argv[1])
    manifest = {}
    for name, spec in MODELS.items():
        content, rows, expected = spec["train"]()
        onnx.checker.check_model(onnx.load_from_string(content), full_check=True)
        share = accuracy(content, spec, rows, expected)
        if share < spec["floor"]:
            sys.exit(f"{name}: {share:.4f} right on held-out rows; at least {spec['floor']} wanted")
        (folder / f"{name}.onnx").write_bytes(content)
        manifest[name] = {
            "file": f"{name}.onnx",
            "sha256": hashlib.sha256(content).hexdigest(),
            "bytes": len(content),
            "trained_on": spec["trained_on"],
            "held_out_rows": len(rows),
            "held_out_accuracy": round(share, 4),
            "labels": spec["labels"],
        }
        print(f"{name}: {len(content)} bytes, {share:.4f} right on {len(rows)} held-out rows")
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")


main()
