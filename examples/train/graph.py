"""Small ONNX graphs written out node by node, as bytes: neither training nor exporting needs onnx.

An ONNX file is one message of protocol buffers, and the few of its fields that a small graph has
are written here by number, in the order of numbers, as onnx.proto names them.
"""

import numpy as np

OPSET = 17
IR_VERSION = 8
PRODUCER = "sluice-demo-models"

FLOAT, UINT8, INT32, INT64 = 1, 2, 6, 7
KINDS = {"float32": FLOAT, "uint8": UINT8, "int32": INT32, "int64": INT64}
ATTRIBUTE_INT = 2


def varint(value):
    """A whole number of protocol buffers, not negative."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field, value):
    """A field that is a whole number."""
    return varint(field << 3) + varint(value)


def text(field, value):
    """A field that is text, bytes or a message."""
    value = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(value)) + value


class Graph:
    """Collects nodes and weights in order; `model()` is the whole file."""

    def __init__(self, name):
        self.name = name
        self.nodes = []
        self.weights = []

    def weight(self, name, values):
        """Stores `values` under `name` and returns the name."""
        values = np.ascontiguousarray(values)
        dimensions = b"".join(number(1, size) for size in values.shape)
        little_endian = values.astype(values.dtype.newbyteorder("<")).tobytes()
        kind = number(2, KINDS[values.dtype.name])
        self.weights.append(dimensions + kind + text(8, name) + text(9, little_endian))
        return name

    def node(self, operator, inputs, output, **attributes):
        """Adds one node with a single output and returns that output's name."""
        content = b"".join(text(1, name) for name in inputs)
        content += text(2, output) + text(3, output) + text(4, operator)
        for name, value in sorted(attributes.items()):
            content += text(5, text(1, name) + number(3, value) + number(20, ATTRIBUTE_INT))
        self.nodes.append(content)
        return output

    def model(self, inputs, outputs):
        """The file; `inputs` and `outputs` are (name, type, columns), batch first."""
        graph = b"".join(text(1, node) for node in self.nodes) + text(2, self.name)
        graph += b"".join(text(5, weight) for weight in self.weights)
        graph += b"".join(text(11, value(*row)) for row in inputs)
        graph += b"".join(text(12, value(*row)) for row in outputs)
        operators = text(1, "") + number(2, OPSET)
        return number(1, IR_VERSION) + text(2, PRODUCER) + text(7, graph) + text(8, operators)


def value(name, kind, columns):
    """An input or output of any number of rows."""
    shape = text(1, text(2, "batch")) + text(1, number(1, columns))
    return text(1, name) + text(2, text(1, number(1, kind) + text(2, shape)))
