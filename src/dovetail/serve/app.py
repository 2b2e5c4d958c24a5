"""The server over HTTP: addresses of the Open Inference Protocol v2, limits, and an end that answers what was accepted."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import ssl
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from dovetail import __version__
from dovetail.errors import DovetailError, UsageError
from dovetail.processes import STOPPING
from dovetail.serve.metrics import Metrics
from dovetail.serve.models import ServedModel
from dovetail.serve.protocol import CONTROL, InferRequest, RequestError, Signature, parse_json, parse_request, write_answer
from dovetail.serve.runner import Opener
from dovetail.serve.workers import WorkerLimits

VERSION = "1"
"""The one version of a model that the protocol lets clients name."""
HEADER_BYTES = "Inference-Header-Content-Length"
"""The header that says how many bytes of a body are JSON."""
HANDSHAKE_S = 10.0
"""Seconds that a client has for TLS's handshake. Chosen."""
APART_BYTES = 1 << 18
"""Bodies and answers from this size on are parsed and written in a thread, where they stop no other request. Chosen."""
DRAIN_S = 0.02
"""Seconds between two looks at whether all is answered. Chosen."""
CONTROL_BYTES = 1 << 16
"""Most bytes of a request to load or unload a model. Chosen."""
Result = TypeVar("Result")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Serving:
    """Where a server listens and what it bears; every field is an option of `dovetail serve`."""

    limits: WorkerLimits
    host: str = "127.0.0.1"
    port: int = 8000
    deadline_s: float = 60.0
    body_bytes: int = 64 << 20
    memory_bytes: int = 1 << 30
    control: bool = False
    connections: int = 512
    """Open ones at the most: half of the 1,024 files that Linux lets a process have unless told otherwise."""
    idle_s: float = 75.0
    """Seconds that a connection may be without the whole headers of a request; as long as nginx keeps one open."""
    transfer_s: float = 30.0
    """Seconds that a client has to send a body, and to take an answer. Chosen."""
    tls: ssl.SSLContext | None = None


class Refusal(asyncio.Protocol):
    """A connection too many: it is told so, and closed."""

    def __init__(self, most: int) -> None:
        self.content = json.dumps({"error": f"{most} connections are open already; try again later"}).encode()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
                        b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(self.content), self.content))
        transport.close()


class Server:
    """Models under an address."""

    def __init__(self, openers: Mapping[str, Opener], serving: Serving) -> None:
        self.serving, self.metrics, self.held_bytes, self.draining, self.active = serving, Metrics(), 0, False, 0
        self.metrics.held.set_function(lambda: self.held_bytes)
        self.models = {name: ServedModel(name, opener, serving.limits, self.metrics.counts(name))
                       for name, opener in openers.items()}
        for name, model in self.models.items():
            self.metrics.watch(name, partial(waiting, model))
        self.apart = ThreadPoolExecutor(1, "parse")  # one at a time: JSON takes many times its size in memory
        app = web.Application(middlewares=[self._heard, answer_errors])
        app.add_routes([
            web.get("/v2", self.server_metadata), web.get("/v2/health/live", self.live), web.get("/v2/health/ready", self.ready),
            web.post("/v2/repository/index", self.index), web.get("/metrics", self.show_metrics),
            web.post("/v2/repository/models/{name}/{action:load|unload}", self.control)])
        for path in ("/v2/models/{name}", "/v2/models/{name}/versions/{version}"):
            app.add_routes([web.get(path, self.model_metadata), web.get(f"{path}/ready", self.model_ready),
                            web.post(f"{path}/infer", self.infer)])
        quiet = logging.Logger("dovetail serve", logging.CRITICAL)  # strangers do not fill the log with what is no HTTP
        self.runner = web.AppRunner(app, access_log=None, auto_decompress=False, logger=quiet, keepalive_timeout=serving.idle_s,
                                    shutdown_timeout=serving.deadline_s + 2 * serving.transfer_s)
        self.listening: asyncio.Server | None = None
        self.silent: set[web.RequestHandler] = set()
        """Connections that have asked for nothing yet; aiohttp looks after those that have."""

    async def start(self) -> str:
        """Load every model, then listen; the address that clients use.

        Raises:
            DovetailError: a model cannot be loaded, or the address is taken.
        """
        await asyncio.gather(*(model.load() for model in self.models.values()))
        await self.runner.setup()
        host, tls = self.serving.host, self.serving.tls
        try:
            self.listening = await asyncio.get_running_loop().create_server(
                self._accept, host, self.serving.port, ssl=tls, ssl_handshake_timeout=None if tls is None else HANDSHAKE_S)
        except OSError as error:
            raise UsageError(f"--host {host} --port {self.serving.port}: cannot be listened on, "
                             f"{(error.strerror or str(error)).lower()}; --port 0 takes a free port") from None
        host, port = self.listening.sockets[0].getsockname()[:2]
        return f"http{'' if tls is None else 's'}://{f'[{host}]' if ':' in host else host}:{port}"

    def _accept(self) -> asyncio.Protocol:
        """Who talks to a new connection."""
        assert self.runner.server is not None, "set up"
        most = self.serving.connections
        if len(self.runner.server.connections) >= most:
            return Refusal(most)
        handler = self.runner.server()
        self.silent.add(handler)
        asyncio.get_running_loop().call_later(self.serving.idle_s, self._hang_up, handler)
        return handler

    @web.middleware
    async def _heard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self.silent.discard(request.protocol)
        return await handler(request)

    def _hang_up(self, handler: web.RequestHandler) -> None:
        """Close a connection that is still silent."""
        if handler in self.silent and handler.transport is not None:
            handler.transport.abort()
        self.silent.discard(handler)

    async def stop(self) -> None:
        """Accept nothing more, answer what was accepted, and end the workers."""
        self.draining = True
        if self.listening is not None:
            self.listening.close()
        while self.active:  # before connections are told to close: from then on, aiohttp drops bodies that still arrive
            await asyncio.sleep(DRAIN_S)
        await self.runner.cleanup()
        await asyncio.gather(*(model.close() for model in self.models.values()))

    def abandon(self) -> None:
        """End whatever is still there."""
        for model in self.models.values():
            model.abandon()
        self.apart.shutdown(wait=False, cancel_futures=True)

    def _model(self, request: web.Request) -> ServedModel:
        """The model that a path names."""
        name, version = request.match_info["name"], request.match_info.get("version", VERSION)
        if name not in self.models:
            raise RequestError(404, f"model {name[:60]}: unknown; POST v2/repository/index lists models")
        if version != VERSION:
            raise RequestError(404, f"model {name}: no version {version[:60]}; there is version {VERSION} alone")
        return self.models[name]

    async def server_metadata(self, request: web.Request) -> web.Response:
        return web.json_response({"name": "dovetail", "version": __version__,
                                  "extensions": ["binary_tensor_data", "model_repository"]})

    async def live(self, request: web.Request) -> web.Response:
        return web.Response()

    async def ready(self, request: web.Request) -> web.Response:
        return web.Response(status=200 if not self.draining and all(m.ready for m in self.models.values()) else 503)

    async def model_metadata(self, request: web.Request) -> web.Response:
        model = self._model(request)
        signature = model.current.signature
        return web.json_response({"name": model.name, "versions": [VERSION], "platform": "dovetail",
                                  "inputs": [p.metadata for p in signature.inputs],
                                  "outputs": [p.metadata for p in signature.outputs]})

    async def model_ready(self, request: web.Request) -> web.Response:
        return web.Response(status=200 if not self.draining and self._model(request).ready else 503)

    async def show_metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=self.metrics.text(), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    async def index(self, request: web.Request) -> web.Response:
        return web.json_response([{"name": m.name, "version": VERSION, "state": "READY" if m.ready else "UNAVAILABLE",
                                   "reason": m.reason or (m.loaded and m.loaded.fault) or ""} for m in self.models.values()])

    async def control(self, request: web.Request) -> web.Response:
        """Load (again), or unload a model; nothing but its name can be given."""
        model = self._model(request)
        if not self.serving.control or "Origin" in request.headers:  # a page in a browser may be anybody's
            raise RequestError(403, "models are not loaded and unloaded by clients here; `dovetail serve --control` allows it")
        body = await self._body(request, CONTROL_BYTES)
        if set(parse_json(body or b"{}", CONTROL).get("parameters", {})) - {"unload_dependents"}:
            raise RequestError(400, f"model {model.name}: parameters cannot be given; it is loaded from its own folder")
        try:
            await (model.load() if request.match_info["action"] == "load" else model.unload())
        except DovetailError as error:
            raise RequestError(400, f"model {model.name}: not loaded, {error}") from None
        return web.Response()

    async def infer(self, request: web.Request) -> web.StreamResponse:
        """Answer an inference request, and count it."""
        began, code, model = time.monotonic(), 500, self._model(request)
        self.active += 1
        try:
            answer = await self._infer(request, model, began)
            code = answer.status
            return answer
        except RequestError as error:
            code = error.status
            raise
        finally:
            self.active -= 1
            self.metrics.requests.labels(model.name, str(code)).inc()
            self.metrics.seconds.labels(model.name).observe(time.monotonic() - began)

    async def _infer(self, request: web.Request, model: ServedModel, began: float) -> web.StreamResponse:
        if self.draining:
            raise RequestError(503, "the server is ending")
        if request.headers.get("Content-Encoding", "identity") != "identity":
            raise RequestError(415, "compressed requests are not read; send the body as it is")
        stated = request.headers.get(HEADER_BYTES)
        if stated is not None and not (stated.isascii() and stated.isdigit() and len(stated) < 16):
            raise RequestError(400, f"{HEADER_BYTES} {stated[:60]}: a number of bytes is needed")
        loaded = model.current
        if loaded.queue.full:  # said before the body is read; asked again when it is accepted
            raise RequestError(503, f"model {model.name}: {loaded.queue.most} requests wait already; try again later")
        length = self._length(request, self.serving.body_bytes)
        with ExitStack() as memory:
            memory.enter_context(self._held(length))
            body = await self._body(request, length)

            async def parse(signature: Signature) -> InferRequest:
                asked = await self._apart(len(body), partial(
                    parse_request, body, None if stated is None else int(stated), signature, self.serving.limits.most_frames))
                memory.enter_context(self._held(asked.frames * sum(port.frame_bytes for port in signature.outputs)))
                return asked

            asked, results = await model.infer(parse, self.serving.deadline_s, began)
            size = sum(x.nbytes for x in results.values())
            content, text_bytes = await self._apart(size, partial(write_answer, model.name, VERSION, asked, results))
            return await self._send(request, content, text_bytes)

    def _length(self, request: web.Request, most: int) -> int:
        """How long a request says that its body is."""
        if request.content_length is None:
            if request.can_read_body:
                raise RequestError(411, "the length of the body is not stated; send Content-Length")
            return 0
        if request.content_length > most:
            raise RequestError(413, f"body of {request.content_length:,} bytes; at most {most:,} are read")
        return request.content_length

    async def _body(self, request: web.Request, most: int) -> bytes:
        """The body of a request."""
        try:
            async with asyncio.timeout(self.serving.transfer_s):
                return await request.content.readexactly(self._length(request, most))
        except TimeoutError:
            raise RequestError(408, f"the body did not arrive within {self.serving.transfer_s:g} s") from None
        except (asyncio.IncompleteReadError, OSError, web.RequestPayloadError):
            raise RequestError(400, "the body is shorter than stated") from None

    async def _send(self, request: web.Request, content: bytes, text_bytes: int | None) -> web.StreamResponse:
        """Send an answer to its end; a client that does not take it is hung up on."""
        kind = "application/json" if text_bytes is None else "application/octet-stream"
        headers = {} if text_bytes is None else {HEADER_BYTES: str(text_bytes)}
        answer = web.Response(body=content, content_type=kind, headers=headers)
        try:
            async with asyncio.timeout(self.serving.transfer_s):
                await answer.prepare(request)
                await answer.write_eof()
        except (TimeoutError, OSError):
            if request.transport is not None:
                request.transport.abort()
        return answer

    async def _apart(self, size: int, what: Callable[[], Result]) -> Result:
        """Do something large in a thread, and something small here."""
        return what() if size < APART_BYTES else await asyncio.get_running_loop().run_in_executor(self.apart, what)

    @contextmanager
    def _held(self, size: int) -> Iterator[None]:
        """Hold so many bytes of memory while the block runs.

        Raises:
            RequestError: too many are held.
        """
        if self.held_bytes + size > self.serving.memory_bytes:
            raise RequestError(503, f"requests and answers fill the {self.serving.memory_bytes >> 20:,} MiB that are set aside "
                               "for them; try again later")
        self.held_bytes += size
        try:
            yield
        finally:
            self.held_bytes -= size


def waiting(model: ServedModel) -> int:
    """How many requests of a model no worker has taken yet."""
    return 0 if model.loaded is None else len(model.loaded.queue.waiting)


@web.middleware
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every error as JSON of one sentence; those of our own are told to the log alone."""
    def answer(status: int, message: str, headers: Mapping[str, str]) -> web.Response:
        return web.json_response({"error": message}, status=status, headers=headers)

    try:
        return await handler(request)
    except RequestError as error:
        return answer(error.status, str(error), {"Retry-After": "1"} if error.status == 503 else {})
    except web.HTTPException as error:
        kept: dict[str, Any] = {k: v for k, v in error.headers.items() if k == "Allow"}
        return answer(error.status, f"{request.method} {request.path[:60]}: {error.reason.lower()}", kept)
    except Exception:  # a stranger sees no traceback, and the server lives on
        traceback.print_exc(file=sys.stderr)
        return answer(500, "internal error; the server's log has it", {})


async def serve(openers: Mapping[str, Opener], serving: Serving, started: Callable[[Server, str], None]) -> None:
    """Serve models until SIGTERM, SIGINT or SIGHUP; every accepted request is answered. A second signal ends at once."""
    server, loop, ended = Server(openers, serving), asyncio.get_running_loop(), asyncio.Event()
    numbers = [n for n in (signal.SIGINT, *STOPPING) if signal.getsignal(n) is not signal.SIG_IGN]
    before = {n: signal.getsignal(n) for n in numbers}
    try:
        started(server, await server.start())
        for number in numbers:
            loop.add_signal_handler(number, ended.set)
        await ended.wait()
        for number in numbers:
            loop.remove_signal_handler(number)
            signal.signal(number, before[number])
        await server.stop()
    finally:
        server.abandon()
