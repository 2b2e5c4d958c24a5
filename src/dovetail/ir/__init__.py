"""The typed graph: tensors, operators, graphs, ONNX in and out."""

from dovetail.ir.graph import Graph, Node
from dovetail.ir.operators.base import RELU, Axis, Clamp, Movement, Op, OperatorShare, Product
from dovetail.ir.operators.convolution import Conv
from dovetail.ir.operators.elementwise import Add, Broadcast, Clip, Concat, Elementwise, Mul, Reshape
from dovetail.ir.operators.linear import Gemm, Reduce
from dovetail.ir.operators.lq import Coded, Thresholds
from dovetail.ir.operators.movement import PixelShuffle, Select, Transpose, Upsample
from dovetail.ir.operators.opaque import Opaque
from dovetail.ir.operators.pointwise import Function, Lookup, Pointwise
from dovetail.ir.operators.pooling import AvgPool, GlobalAvgPool, MaxPool, WindowPool
from dovetail.ir.operators.window import Window
from dovetail.ir.tensor import (
    Array,
    Constant,
    Real,
    Region,
    Rounding,
    Scheme,
    Shape,
    Tensor,
    intersect,
    region_size,
    slices,
    whole,
)

__all__ = [
    "RELU", "Add", "Array", "AvgPool", "Axis", "Broadcast", "Clamp", "Clip", "Coded", "Concat", "Constant", "Conv", "Elementwise",
    "Function", "Gemm", "GlobalAvgPool", "Graph", "Lookup", "MaxPool", "Movement", "Mul", "Node", "Op", "Opaque",
    "OperatorShare", "PixelShuffle", "Pointwise",
    "Product", "Real", "Reduce", "Region", "Reshape", "Rounding", "Scheme", "Select", "Shape", "Tensor", "Thresholds",
    "Transpose", "Upsample", "Window", "WindowPool", "intersect", "region_size", "slices", "whole",
]
