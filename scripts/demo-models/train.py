"""Trains the demo's models and writes them, with a manifest, to the folder named.

What is measured is the ONNX file itself, run by ONNX Runtime on the held-out part, one row at a
time and as one batch; a model below its floor is not written.
"""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime

import digits
import langid

MODELS = {
    "digits": {
        "train": digits.train,
        "input": "image",
        "answer": "digit",
        "labels": [str(digit) for digit in range(10)],
        "floor": 0.97,
        "trained_on": "scikit-learn's bundled digits (UCI optical recognition test set)",
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
        model, rows, expected = spec["train"]()
        content = model.SerializeToString(deterministic=True)
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
