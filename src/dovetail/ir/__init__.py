"""The typed graph: tensors, operators, graphs, ONNX in and out."""

from dovetail.ir.convolution import Conv
from dovetail.ir.elementwise import Add, Broadcast, Clip, Concat, Elementwise, Mul, Reshape
from dovetail.ir.graph import Graph, Node
from dovetail.ir.linear import Gemm, Reduce
from dovetail.ir.lq import Coded, Thresholds
from dovetail.ir.movement import Movement, Select, Transpose, Upsample
from dovetail.ir.opaque import Opaque
from dovetail.ir.operator import RELU, Axis, Clamp, Op, Share
from dovetail.ir.pointwise import Function, Lookup, Pointwise
from dovetail.ir.pooling import AvgPool, GlobalAvgPool, MaxPool, Pool
from dovetail.ir.tensor import Array, Constant, Real, Region, Scheme, Shape, Tensor, intersect, region_size, slices, whole
from dovetail.ir.window import Window

__all__ = [
    "RELU", "Add", "Array", "AvgPool", "Axis", "Broadcast", "Clamp", "Clip", "Coded", "Concat", "Constant", "Conv", "Elementwise",
    "Function", "Gemm", "GlobalAvgPool", "Graph", "Lookup", "MaxPool", "Movement", "Mul", "Node", "Op", "Opaque", "Pointwise",
    "Pool", "Real", "Reduce", "Region", "Reshape", "Scheme", "Select", "Shape", "Share", "Tensor", "Thresholds", "Transpose",
    "Upsample", "Window", "intersect", "region_size", "slices", "whole",
]
