"""Makes the scikit-learn pipelines beside this file; run it by hand when they shall change.

    pip install scikit-learn==1.9.1 skl2onnx==1.20.0 onnx==1.19.1 && python tests/onnx/make_flowers.py

A scaler and a logistic regression on scikit-learn's irises, with names for labels. flowers.onnx has its
probabilities as a tensor (zipmap=False), flowers-zipmap.onnx as the list of maps that is the default.
"""

from pathlib import Path

import numpy as np
from skl2onnx import to_onnx
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

HERE = Path(__file__).parent


def main():
    irises = load_iris()
    inputs = irises.data.astype(np.float32)
    labels = irises.target_names[irises.target]
    pipeline = make_pipeline(StandardScaler(), LogisticRegression()).fit(inputs, labels)
    for name, zipmap in [("flowers", False), ("flowers-zipmap", True)]:
        model = to_onnx(pipeline, inputs[:1], options={"zipmap": zipmap}, target_opset=17)
        (HERE / f"{name}.onnx").write_bytes(model.SerializeToString())


if __name__ == "__main__":
    main()
