"""Which fewer layers an accelerator may be better for, beside other devices."""

from __future__ import annotations

from dovetail.ir import Conv, Graph, Window
from dovetail.partition.accelerator.architecture import AcceleratedRegion
from dovetail.partition.accelerator.runs import promising_run
from tests.strategies import Net


def alike(count: int) -> Graph:
    """Convolutions that all multiply as often."""
    net = Net(3)
    x = net.input((1, 4, 8, 8))
    for i in range(count):
        x = net.add(Conv(4, Window((3, 3), pads=(1, 1, 1, 1))), x, name=f"layer{i}")
    return net.graph(x)


def test_devices_that_work_at_once_share_layers_until_they_take_as_long() -> None:
    graph, whole = alike(4), AcceleratedRegion(0, 4)
    assert promising_run(graph, whole, 8.0, [2.0] * 4, True, 8.0) in (AcceleratedRegion(0, 2), AcceleratedRegion(1, 3),
                                                                       AcceleratedRegion(2, 4))
    assert promising_run(graph, whole, 8.0, [9.0] * 4, True, 8.0) is None


def test_of_a_single_frame_the_accelerator_leaves_what_another_device_does_sooner() -> None:
    graph, whole = alike(4), AcceleratedRegion(0, 4)
    assert promising_run(graph, whole, 8.0, [3.0, 3.0, 3.0, 0.5], False, 8.0) == AcceleratedRegion(0, 3)
    assert promising_run(graph, whole, 8.0, [0.5, 3.0, 3.0, 0.5], False, 8.0) == AcceleratedRegion(1, 3)
    assert promising_run(graph, whole, 8.0, [2.0] * 4, False, 8.0) is None
    assert promising_run(graph, whole, 8.0, [3.0, 3.0, 3.0, 0.5], False, 6.0) is None


def test_layers_that_the_accelerator_does_not_hold_stay_outside() -> None:
    graph = alike(4)
    assert promising_run(graph, AcceleratedRegion(1, 4), 6.0, [1.0, 9.0, 9.0, 0.1], True, 6.0) == AcceleratedRegion(1, 3)
