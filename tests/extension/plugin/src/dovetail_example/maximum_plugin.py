"""ONNX's Max as an operator of Dovetail."""

from dovetail.ir.onnx.write import read_value
from dovetail.plugins import OperatorPlugin
from dovetail_example.maximum import Maximum

OPERATOR = OperatorPlugin(
    Maximum, lambda reader, proto, attributes: reader.add(proto, Maximum(), list(proto.input), {}),
    lambda writer, node, op, output: writer.emit("Max", [read_value(writer, t) for t in node.inputs], output, node.name))
