"""The engine of the larger of two streams."""

from dovetail.fpga.engines import layers
from dovetail.plugins import EnginePlugin
from dovetail_example.larger import larger
from dovetail_example.maximum import Maximum

ENGINE = EnginePlugin(
    Maximum, lambda site, op: (layers.join_engine(site.layer, larger(site.layer, site.graph, site.node, site.rescale())),),
    lambda graph, node, op, engine: {"comparison_bits": engine["output_bits"], "sum_bits": 3 * engine["output_bits"],
                                     "stages": engine["stages"] + 2})
