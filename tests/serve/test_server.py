"""A server over real HTTP with the real client: right answers, refusals, deadlines, workers that die, reloads, its end."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as client
from tritonclient.utils import InferenceServerException

from dovetail.cli import main
from dovetail.cli.actions.serve import named_folders, tls_context
from dovetail.errors import UsageError
from dovetail.ir import Array
from dovetail.runtime.build import load_build
from dovetail.serve.app import Server
from dovetail.serve.protocol import RequestError
from dovetail.serve.runner import open_build
from tests.serve.conftest import frames, serving, wait_for, write_build
from tests.serve.runners import POISON, open_frail, open_gated

OUTPUTS = ("features_out", "class_out")


def infer(url: str, inputs: dict[str, Array], model: str = "pair", as_bytes: bool = True, **options: Any) -> dict[str, Array]:
    """One request by a client of its own."""
    tensors = []
    for name, x in inputs.items():
        tensors.append(client.InferInput(name, x.shape, "FP32"))
        tensors[-1].set_data_from_numpy(x, binary_data=as_bytes)
    wanted = None if as_bytes else [client.InferRequestedOutput(name, binary_data=False) for name in OUTPUTS]
    with client.InferenceServerClient(url) as to:
        found = to.infer(model, tensors, outputs=wanted, **options)
        return {name: found.as_numpy(name) for name in OUTPUTS}


def right(folder: Path, inputs: dict[str, Array], found: dict[str, Array]) -> bool:
    """Whether answers equal those of the build, bit for bit."""
    wanted = load_build(folder).run(inputs)
    assert isinstance(wanted, dict)
    return all(found[name].dtype == x.dtype and np.array_equal(found[name], x) for name, x in wanted.items())


def send(url: str, path: str, body: bytes = b"", method: str = "POST", **headers: str) -> tuple[int, Any]:
    """Status and JSON of a request as plain HTTP; keys of headers have _ for -."""
    to = http.client.HTTPConnection(url)
    try:
        to.request(method, path, body, {key.replace("_", "-"): value for key, value in headers.items()})
        answer = to.getresponse()
        content = answer.read()
        return answer.status, json.loads(content) if content else None
    finally:
        to.close()


@pytest.fixture(scope="module")
def open_server(build_folder: Path) -> Iterator[tuple[Server, str]]:
    with serving({"pair": partial(open_build, build_folder, False)}, control=False) as started:
        yield started


def test_a_server_describes_itself_and_its_models(open_server: tuple[Server, str]) -> None:
    with client.InferenceServerClient(open_server[1]) as to:
        assert to.is_server_live()
        assert to.is_server_ready()
        assert to.is_model_ready("pair")
        assert to.get_server_metadata()["name"] == "dovetail"
        assert to.get_model_metadata("pair", "1") == {
            "name": "pair", "versions": ["1"], "platform": "dovetail",
            "inputs": [{"name": name, "datatype": "FP32", "shape": [-1, 2, 5, 3]} for name in ("left", "right")],
            "outputs": [{"name": "features_out", "datatype": "FP32", "shape": [-1, 45]},
                        {"name": "class_out", "datatype": "FP32", "shape": [-1, 4]}]}
        assert to.get_model_repository_index() == [{"name": "pair", "version": "1", "state": "READY", "reason": ""}]


@pytest.mark.parametrize("as_bytes", [True, False])
def test_answers_equal_the_build(open_server: tuple[Server, str], build_folder: Path, as_bytes: bool) -> None:
    for count in (1, 3, 8):
        inputs = frames(count, count)
        assert right(build_folder, inputs, infer(open_server[1], inputs, as_bytes=as_bytes, model_version="1", request_id="a"))


def test_metrics_count_requests_by_code(open_server: tuple[Server, str]) -> None:
    infer(open_server[1], frames(2))
    with pytest.raises(InferenceServerException, match="unknown; POST v2/repository/index lists models"):
        infer(open_server[1], frames(1), model="other")
    with pytest.raises(InferenceServerException, match="9 frames; a request has at most 8, send several"):
        infer(open_server[1], frames(9))
    text = open_server[0].metrics.text().decode()
    assert 'dovetail_requests_total{code="200",model="pair"}' in text
    assert 'dovetail_requests_total{code="400",model="pair"}' in text
    assert "other" not in text
    assert open_server[0].held_bytes == 0


INFER = "/v2/models/pair/infer"


@pytest.mark.parametrize(("path", "options", "status", "message"), [
    (INFER, {"body": b"{}"}, 400, "field inputs is missing"),
    (INFER, {"body": b"{}", "Inference_Header_Content_Length": "3"}, 400, "beyond the body of 2 bytes"),
    (INFER, {"body": b"{}", "Inference_Header_Content_Length": "-1"}, 400, "a number of bytes is needed"),
    (INFER, {"body": b"x", "Content_Encoding": "gzip"}, 415, "compressed requests are not read"),
    (INFER, {"body": bytes((1 << 20) + 1)}, 413, "body of 1,048,577 bytes; at most 1,048,576 are read"),
    (INFER, {"body": b"2\r\n{}\r\n0\r\n\r\n", "Transfer_Encoding": "chunked"}, 411, "send Content-Length"),
    ("/v2/models/pair/versions/2/infer", {"body": b"{}"}, 404, "no version 2; there is version 1 alone"),
    ("/v2/models/none/infer", {"body": b"{}"}, 404, "model none: unknown"),
    ("/v2/models/pair/infer", {"method": "GET"}, 405, "method not allowed"),
    ("/v3", {"method": "GET"}, 404, "GET /v3: not found"),
    ("/v2/repository/models/pair/unload", {}, 403, "--control` allows it"),
])
def test_bad_requests_get_one_sentence(open_server: tuple[Server, str], path: str, options: dict[str, Any], status: int,
                                       message: str) -> None:
    found, answer = send(open_server[1], path, **options)
    assert (found, list(answer)) == (status, ["error"])
    assert message in answer["error"]
    assert open_server[0].models["pair"].ready


def test_a_body_that_breaks_off_harms_nobody(open_server: tuple[Server, str]) -> None:
    server, url = open_server
    host, _, port = url.rpartition(":")
    with socket.create_connection((host, int(port))) as broken:
        broken.sendall(b"POST /v2/models/pair/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
        wait_for(lambda: server.held_bytes >= 1000)
    wait_for(lambda: server.held_bytes == 0)
    assert infer(url, frames(1))


def test_what_is_no_http_is_refused_without_a_traceback(open_server: tuple[Server, str],
                                                        capfd: pytest.CaptureFixture[str]) -> None:
    host, _, port = open_server[1].rpartition(":")
    for text in (b"nothing\r\n\r\n", b"POST /v2 HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n",
                 b"GET /" + b"x" * 9000 + b"\r\n"):
        with socket.create_connection((host, int(port))) as broken:
            broken.sendall(text)
            answer = broken.recv(10_000)
        assert answer.startswith(b"HTTP/1.0 400 ") or answer.startswith(b"HTTP/1.1 400 ")
        assert b"Traceback" not in answer
    assert capfd.readouterr().err == ""


def test_connections_are_bounded_and_silent_or_slow_ones_are_closed(build_folder: Path) -> None:
    begin = b"POST /v2/models/pair/infer HTTP/1.1\r\nHost: x\r\n"
    with serving({"pair": partial(open_build, build_folder, False)}, connections=4, idle_s=0.4, transfer_s=0.4) as (server, url):
        host, _, port = url.rpartition(":")
        opened = [socket.create_connection((host, int(port))) for _ in range(4)]
        silent, headers, body, used = opened
        headers.sendall(begin)
        body.sendall(begin + b"Content-Length: 1000\r\n\r\n{")
        used.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")
        assert used.recv(1000).startswith(b"HTTP/1.1 200 ")
        used.sendall(begin)
        wait_for(lambda: server.held_bytes == 1000)
        with socket.create_connection((host, int(port))) as more:
            answer = http.client.HTTPResponse(more)
            answer.begin()
            assert (answer.status, json.loads(answer.read())) == (503, {
                "error": "4 connections are open already; try again later"})
        assert body.recv(1000).startswith(b"HTTP/1.1 408 ")
        assert [to.recv(1000) for to in (silent, headers, used)] == [b"", b"", b""], "hung up on"
        for to in opened:
            to.close()
        wait_for(lambda: not server.runner.server.connections)
        assert not server.silent
        assert infer(url, frames(1))


def test_answers_come_over_tls(build_folder: Path, tmp_path: Path) -> None:
    names = [tmp_path / "key.pem", tmp_path / "cert.pem"]
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
                    "subjectAltName=IP:127.0.0.1", "-keyout", names[0], "-out", names[1]], check=True, capture_output=True)
    key, certificate = names
    inputs = frames(2)
    body = json.dumps({"inputs": [{"name": name, "datatype": "FP32", "shape": list(x.shape), "data": x.ravel().tolist()}
                                  for name, x in inputs.items()]})
    trusting = ssl.create_default_context(cafile=certificate)
    with serving({"pair": partial(open_build, build_folder, False)}, tls=tls_context(certificate, key)) as (_, url):
        to = http.client.HTTPSConnection(url, context=trusting)
        to.request("POST", "/v2/models/pair/infer", body)
        outputs = json.loads(to.getresponse().read())["outputs"]
        to.close()
    found = {x["name"]: np.array(x["data"], np.float32).reshape(x["shape"]) for x in outputs}
    assert right(build_folder, inputs, found)
    with pytest.raises(UsageError, match=r"key.pem: no certificate is named; add --tls-cert FILE$"):
        tls_context(None, key)
    with pytest.raises(UsageError, match=r"^--tls-cert .*absent.pem: no certificate with its key, no such file or directory;"):
        tls_context(tmp_path / "absent.pem", key)
    with pytest.raises(UsageError, match=r"^--tls-cert .*key.pem: no certificate with its key, "):
        tls_context(key, certificate)
    assert tls_context(None, None) is None


def test_memory_is_bounded(open_server: tuple[Server, str]) -> None:
    server, _ = open_server
    with server._held(1 << 29), pytest.raises(RequestError, match="1,024 MiB that are set aside"), server._held((1 << 29) + 1):
        pass
    assert server.held_bytes == 0


def test_waiting_requests_are_batched_bounded_and_survive_a_killed_worker(build_folder: Path, tmp_path: Path) -> None:
    gate, done = tmp_path / "gate", []
    gate.mkdir()

    def began() -> list[str]:
        return [path.name for path in sorted(gate.glob("began-*"))]

    opener = partial(open_gated, build_folder, gate)
    with serving({"pair": opener}, most_waiting=2) as (server, url), ThreadPoolExecutor(4) as pool:
        def ask(count: int) -> Future[dict[str, Array]]:
            return pool.submit(infer, url, frames(count, count))

        queue = server.models["pair"].loaded.queue.waiting  # type: ignore[union-attr]
        done.append((1, ask(1)))
        wait_for(lambda: len(began()) == 1)
        with pytest.raises(InferenceServerException, match=r"not answered within 0\.001 s") as late:
            infer(url, frames(1), timeout=1000)
        assert late.value.status() == "504"
        assert not queue
        done += [(2, ask(2)), (3, ask(3))]
        wait_for(lambda: len(queue) == 2)
        with pytest.raises(InferenceServerException, match="2 requests wait already") as refused:
            infer(url, frames(1))
        assert refused.value.status() == "503"
        os.kill(int(began()[0].split("-")[3]), signal.SIGKILL)
        wait_for(lambda: len(began()) == 2)
        (gate / "open").touch()
        assert all(right(build_folder, frames(count, count), asked.result()) for count, asked in done)
    assert [name.split("-")[2] for name in began()] == ["1", "1", "5"]
    assert 'dovetail_worker_restarts_total{model="pair"} 1.0' in server.metrics.text().decode()


def test_hung_workers_are_replaced_and_a_request_that_kills_fails_alone(build_folder: Path, tmp_path: Path,
                                                                        capfd: pytest.CaptureFixture[str]) -> None:
    opener = partial(open_frail, build_folder, tmp_path)
    with serving({"pair": opener}, hang_s=2.0) as (server, url), ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(infer, url, frames(2, seed)) for seed in range(2)]  # the first hangs
        assert all(right(build_folder, frames(2, seed), one.result()) for seed, one in enumerate(asked))
        poison = {name: np.full_like(x, POISON) for name, x in frames(1).items()}
        with pytest.raises(InferenceServerException, match="the model failed 3 times on this request") as failed:
            infer(url, poison)
        assert failed.value.status() == "500"
        assert right(build_folder, frames(1), infer(url, frames(1)))
        assert server.models["pair"].ready
    said = capfd.readouterr().err
    assert "worker process killed, since it gave no answer within 2 s" in said
    assert said.count("worker process ended by itself") == 3


@pytest.mark.slow("compiles a build")
def test_a_reload_swaps_the_build_and_loses_no_accepted_request(build_folder: Path, tmp_path: Path) -> None:
    folder, old, other, gate = tmp_path / "pair", tmp_path / "old", write_build(tmp_path / "other", 6), tmp_path / "gate"
    gate.mkdir()
    shutil.copytree(build_folder, folder)
    with serving({"pair": partial(open_gated, folder, gate)}) as (server, url), ThreadPoolExecutor(1) as pool, \
            client.InferenceServerClient(url, network_timeout=600) as to:
        before = pool.submit(infer, url, frames(2))
        wait_for(lambda: any(gate.iterdir()))
        folder.rename(old)
        shutil.copytree(other, folder)
        to.load_model("pair")  # while the old one computes
        (gate / "open").touch()
        assert right(old, frames(2), before.result())
        after = infer(url, frames(2))
        assert right(folder, frames(2), after)
        assert not right(old, frames(2), after)
        shutil.rmtree(folder)
        with pytest.raises(InferenceServerException, match="no such build folder"):
            to.load_model("pair")
        assert right(other, frames(1), infer(url, frames(1)))  # what answered before goes on
        with pytest.raises(InferenceServerException, match="it is loaded from its own folder"):
            to.load_model("pair", config="{}")
        assert send(url, "/v2/repository/models/pair/unload", Origin="http://page")[0] == 403
        shutil.copytree(old, folder)  # another build than the one that is loaded: not taken up by a restart
        worker = server.models["pair"].loaded.workers[0]  # type: ignore[union-attr]
        os.kill(worker.pid or 0, signal.SIGKILL)
        wait_for(lambda: worker.fault is not None)
        assert not to.is_server_ready()
        with pytest.raises(InferenceServerException, match="not ready, its worker does not start"):
            infer(url, frames(1))
        to.unload_model("pair")
        with pytest.raises(InferenceServerException, match="model pair: not loaded"):
            infer(url, frames(1))
        assert to.get_model_repository_index() == [
            {"name": "pair", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"}]


@pytest.mark.slow("starts the command")
def test_sigterm_ends_the_command_after_what_it_accepted(build_folder: Path, tmp_path: Path) -> None:
    told = tmp_path / "server.json"
    command = [sys.executable, "-m", "dovetail", "serve", f"one={build_folder}", "--port", "0", "--json", str(told)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    inputs = frames(1)
    document = {"inputs": [{"name": name, "datatype": "FP32", "shape": list(x.shape), "data": x.ravel().tolist()}
                           for name, x in inputs.items()]}
    body = json.dumps(document).encode()
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_for(lambda: told.exists() or process.poll() is not None)
            assert process.poll() is None, process.communicate()[1]
            port = int(json.loads(told.read_text(encoding="utf-8"))["url"].rpartition(":")[2])
            with socket.create_connection(("127.0.0.1", port)) as to:
                to.sendall(b"POST /v2/models/one/infer HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
                           b"Content-Length: %d\r\n\r\n" % len(body))
                assert to.recv(100).startswith(b"HTTP/1.1 100 ")
                process.send_signal(signal.SIGTERM)
                wait_for(lambda: refuses(port))
                to.sendall(body)
                answer = http.client.HTTPResponse(to)
                answer.begin()
                found = {x["name"]: np.array(x["data"], np.float32).reshape(x["shape"])
                         for x in json.loads(answer.read())["outputs"]}
            assert right(build_folder, inputs, found)
            errors = process.communicate()[1]
        finally:
            process.kill()
    assert (process.returncode, errors) == (0, "")


def refuses(port: int) -> bool:
    """Whether nobody listens any more."""
    with socket.socket() as to:
        return to.connect_ex(("127.0.0.1", port)) != 0


def test_an_address_that_is_taken_is_named(open_server: tuple[Server, str], build_folder: Path,
                                           capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", str(build_folder), "--port", open_server[1].rpartition(":")[2]]) == 2
    assert "cannot be listened on" in capsys.readouterr().err


def test_names_of_models_are_those_of_folders_or_given(tmp_path: Path) -> None:
    (tmp_path / "a=b").mkdir()
    assert named_folders([str(tmp_path), f"x={tmp_path}"]) == {tmp_path.name: tmp_path, "x": tmp_path}
    with pytest.raises(UsageError, match="another build is called x already; write NAME=FOLDER"):
        named_folders(["x=a", "x=b"])
    with pytest.raises(UsageError, match="'a=b' cannot name a model"):
        named_folders([str(tmp_path / "a=b")])


def test_a_folder_without_a_build_and_bad_options_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", str(tmp_path / "none"), "--port", "0"]) == 2
    assert "none: no such build folder; make one with `dovetail compile" in capsys.readouterr().err
    for option, message in (("--queue=0", "--queue 0: must be at least 1"), ("--port=70000", "must be from 0 to 65535"),
                            ("--hang-s=0", "--hang-s 0: must be above 0"), ("--connections=0", "--connections 0: must be at"),
                            ("--idle-s=0", "--idle-s 0: must be above 0"), ("--tls-key=k", "--tls-key k: no certificate is")):
        assert main(["serve", str(tmp_path), option]) == 2
        assert message in capsys.readouterr().err


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("dovetail.cli.actions.serve.find_spec", lambda name: None)
    assert main(["serve", "build"]) == 2
    assert "pip install 'dovetail-accel[serve]'" in capsys.readouterr().err
