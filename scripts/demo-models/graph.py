"""Small ONNX graphs written out node by node, so that training needs no exporter."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
IR_VERSION = 8


class Graph:
    """Collects nodes and weights in order; `model()` checks the whole."""

    def __init__(self, name):
        self.name = name
        self.nodes = []
        self.weights = []

    def weight(self, name, values):
        """Stores `values` under `name` and returns the name."""
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def node(self, operator, inputs, output, **attributes):
        """Adds one node with a single output and returns that output's name."""
        self.nodes.append(helper.make_node(operator, inputs, [output], name=output, **attributes))
        return output

    def model(self, inputs, outputs):
        """The checked model; `inputs` and `outputs` are (name, type, columns), batch first."""
        describe = lambda rows: [
            helper.make_tensor_value_info(name, kind, ["batch", columns])
            for name, kind, columns in rows
        ]
        graph = helper.make_graph(
            self.nodes, self.name, describe(inputs), describe(outputs), self.weights
        )
        model = helper.make_model(
            graph,
            producer_name="sluice-demo-models",
            opset_imports=[helper.make_opsetid("", OPSET)],
        )
        model.ir_version = IR_VERSION
        onnx.checker.check_model(model, full_check=True)
        return model


FLOAT, INT32, INT64, UINT8 = (
    TensorProto.FLOAT,
    TensorProto.INT32,
    TensorProto.INT64,
    TensorProto.UINT8,
)
