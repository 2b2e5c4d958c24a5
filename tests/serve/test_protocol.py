"""Requests of strangers: what is right becomes arrays, everything else one clear error."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dovetail.serve.protocol import JSON_NUMBERS, InferRequest, RequestError, Signature, TensorPort, parse_request, write_answer

SIGNATURE = Signature((TensorPort("x", "FP32", (2,)), TensorPort("n", "INT8", (1,))),
                      (TensorPort("y", "FP32", (3,)), TensorPort("mask", "BOOL", (2, 2))))
X = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [0.5, 1]}
N = {"name": "n", "datatype": "INT8", "shape": [1, 1], "data": [[-3]]}
BINARY = {"name": "x", "datatype": "FP32", "shape": [1, 2], "parameters": {"binary_data_size": 8}}


def parse(document: Any, behind: bytes = b"", most_frames: int = 4) -> InferRequest:
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    return parse_request(text + behind, len(text) if behind else None, SIGNATURE, most_frames)


def test_numbers_come_as_json_or_as_bytes() -> None:
    values = np.array([[0.5, -1.25]], dtype="<f4")
    found = parse({"id": "7", "inputs": [BINARY, N], "parameters": {"timeout": 2_000_000}}, values.tobytes())
    assert (found.id, found.frames, found.timeout_s, found.outputs) == ("7", 1, 2.0, {"y": False, "mask": False})
    assert found.inputs["x"].tolist() == [[0.5, -1.25]]
    assert found.inputs["n"].tolist() == [[-3]]
    assert found.inputs["n"].dtype == np.int8
    assert parse({"inputs": [N, X]}).inputs["x"].tolist() == [[0.5, 1.0]]


def test_outputs_are_chosen_one_by_one() -> None:
    asked = {"inputs": [X, N], "parameters": {"binary_data_output": True},
             "outputs": [{"name": "mask", "parameters": {"binary_data": False}}, {"name": "y"}]}
    assert parse(asked).outputs == {"mask": False, "y": True}
    results = {"y": np.array([[1, 2, 3]], np.float32), "mask": np.array([[[True, False], [False, True]]])}
    body, text_bytes = write_answer("m", "1", parse(asked), results)
    answer = json.loads(body[:text_bytes])
    assert answer["outputs"][0] == {"name": "mask", "datatype": "BOOL", "shape": [1, 2, 2], "data": [True, False, False, True]}
    assert answer["outputs"][1]["parameters"] == {"binary_data_size": 12}
    assert np.frombuffer(body[text_bytes:], "<f4").tolist() == [1, 2, 3]


def test_infinite_results_are_no_json() -> None:
    results = {"y": np.array([[1, np.inf, 3]], np.float32), "mask": np.zeros((1, 2, 2), bool)}
    with pytest.raises(RequestError, match="ask for binary data"):
        write_answer("m", "1", parse({"inputs": [X, N]}), results)


BAD: list[tuple[Any, bytes, str]] = [
    (b"{", b"", "not readable as JSON"),
    (b"\xff", b"", "not readable as JSON"),
    (b"[" * 100_000, b"", "not readable as JSON"),
    (b'{"inputs": NaN}', b"", "NaN is no number of JSON"),
    (b"9" * 5000, b"", "not readable as JSON"),
    ([], b"", "the file is a list of 0; an object is needed"),
    ({}, b"", "field inputs is missing"),
    ({"inputs": [3]}, b"", r"field inputs\[0\] is 3; an object is needed"),
    ({"inputs": [{**X, "shape": [1, -2]}, N]}, b"", r"inputs\[0\].shape\[1\] is -2"),
    ({"inputs": [{**X, "shape": [1, 3]}, N]}, b"", r"input x: shape \[1, 3\]; \[frames, 2\] is needed"),
    ({"inputs": [{**X, "shape": []}, N]}, b"", r"input x: shape \[\]"),
    ({"inputs": [{**X, "shape": [0, 2], "data": []}, N]}, b"", r"input x: shape \[0, 2\]"),
    ({"inputs": [{**X, "datatype": "FP64"}, N]}, b"", "datatype FP64; FP32 is needed"),
    ({"inputs": [{**X, "name": "z"}, N]}, b"", "input z: unknown; inputs are x, n"),
    ({"inputs": [X, X, N]}, b"", "input x: given twice"),
    ({"inputs": [X]}, b"", "input n: missing; inputs are x, n"),
    ({"inputs": [{**X, "data": [1]}, N]}, b"", r"input x: data of shape \[1\]; 2 numbers are needed"),
    ({"inputs": [{**X, "data": [[1], [1, 2]]}, N]}, b"", "input x: data of uneven lists"),
    ({"inputs": [{**X, "data": ["1", "2"]}, N]}, b"", "input x: data that are not numbers of FP32"),
    ({"inputs": [{**X, "data": [True, False]}, N]}, b"", "input x: data that are not numbers of FP32"),
    ({"inputs": [{**X, "data": [10**30, None]}, N]}, b"", "input x: data that are not numbers of FP32"),
    ({"inputs": [{**X, "data": [1e39, 0]}, N]}, b"", "input x: NaN or infinite values"),
    ({"inputs": [{**X, "data": "12"}, N]}, b"", "input x: no data"),
    ({"inputs": [{**X, "shape": [2, 2], "data": [1, 2, 3, 4]}, N]}, b"", "inputs of 1, 2 frames"),
    ({"inputs": [X, {**N, "data": [128]}]}, b"", "input n: numbers beyond INT8"),
    ({"inputs": [X, {**N, "data": [0.5]}]}, b"", "input n: data that are not numbers of INT8"),
    ({"inputs": [{**X, "shape": [5, 2], "data": [0] * 10}, {**N, "shape": [5, 1], "data": [0] * 5}]}, b"",
     "5 frames; a request has at most 4"),
    ({"inputs": [BINARY, N]}, b"1234567", "input x: 7 of its 8 bytes are in the body; the request is truncated"),
    ({"inputs": [BINARY, N]}, b"123456789", "body: 1 bytes beyond those that inputs state"),
    ({"inputs": [{**BINARY, "data": [1, 2]}, N]}, b"12345678", "only one of them can be given"),
    ({"inputs": [{**BINARY, "parameters": {"binary_data_size": 4}}, N]}, b"1234", "its shape takes 8 bytes"),
    ({"inputs": [{**BINARY, "parameters": {"binary_data_size": -8}}, N]}, b"1234", "a number of bytes is needed"),
    ({"inputs": [{**BINARY, "parameters": {"binary_data_size": True}}, N]}, b"1", "a number of bytes is needed"),
    ({"inputs": [{**BINARY, "shape": [2**40, 2]}, N]}, b"12345678", "its shape takes 8,796,093,022,208 bytes"),
    ({"inputs": [BINARY, N]}, np.array([np.nan, 1], "<f4").tobytes(), "input x: NaN or infinite values"),
    ({"inputs": [{**X, "parameters": {"shared_memory_region": "r"}}, N]}, b"", "parameter shared_memory_region is not supported"),
    ({"inputs": [X, N], "parameters": {"sequence_id": 4}}, b"", "request: parameter sequence_id is not supported"),
    ({"inputs": [X, N], "parameters": {"timeout": 0}}, b"", "field parameters.timeout is 0"),
    ({"inputs": [X, N], "parameters": {"timeout": "1"}}, b"", "field parameters.timeout is '1'"),
    ({"inputs": [X, N], "outputs": [{"name": "q"}]}, b"", "output q: unknown; outputs are y, mask"),
    ({"inputs": [X, N], "outputs": [{"name": "y"}, {"name": "y"}]}, b"", "output y: asked for twice"),
    ({"inputs": [X, N], "outputs": [{"name": "y", "parameters": {"classification": 2}}]}, b"", "classification is not supported"),
    ({"inputs": [X, N], "outputs": [{"name": "y", "parameters": {"binary_data": 1}}]}, b"", "true or false is needed"),
    ({"id": "\ud800", "inputs": [X, N]}, b"", "field id is"),
]


@pytest.mark.parametrize(("document", "behind", "message"), BAD)
def test_a_bad_request_is_refused_by_name_and_need(document: Any, behind: bytes, message: str) -> None:
    with pytest.raises(RequestError, match=message) as refused:
        parse(document, behind)
    assert refused.value.status == 400
    assert len(str(refused.value)) < 300


def test_json_is_bounded_both_ways() -> None:
    with pytest.raises(RequestError, match="bytes of JSON") as refused:
        parse(b" " * (9 << 20))
    assert refused.value.status == 413
    wide = Signature(SIGNATURE.inputs, (TensorPort("y", "FP32", (JSON_NUMBERS + 1,)),))
    with pytest.raises(RequestError, match="ask for them as binary data"):
        parse_request(json.dumps({"inputs": [X, N]}).encode(), None, wide, 4)


VALUES = st.recursive(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
                      lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3))


@given(field=st.sampled_from(["name", "datatype", "shape", "data", "parameters"]), value=VALUES)
@example("shape", [[]])
@example("parameters", {"binary_data_size": 10**400})
@example("data", [[], []])
def test_any_value_in_any_field_is_taken_or_refused(field: str, value: Any) -> None:
    with suppress(RequestError):
        assert parse({"inputs": [{**X, field: value}, N]}).inputs["x"].shape == (1, 2)


@given(st.binary(max_size=64), st.integers(0, 80))
def test_any_bytes_are_refused(body: bytes, header_bytes: int) -> None:
    with pytest.raises(RequestError):
        parse_request(body, header_bytes, SIGNATURE, 4)
