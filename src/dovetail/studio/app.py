"""The studio over HTTP: pages of this machine alone, a session per tab, and workers that read and solve."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

from aiohttp import web

from dovetail import zoo
from dovetail.errors import DovetailError, UsageError
from dovetail.platform.load import example_of, load_platform, platform_names
from dovetail.processes import STOPPING
from dovetail.report.html import COMPONENTS
from dovetail.report.html import packaged as component
from dovetail.report.palette import definitions
from dovetail.studio.question import read_question
from dovetail.studio.worker import TabWorker

HOST = "127.0.0.1"
"""This machine alone; there is no option for another."""
SESSIONS = 8
"""Tabs at a time; the one that was idle longest makes room. Chosen."""
UPLOAD_BYTES = 1 << 30
"""Largest model that is taken; VGG16 has 553 MB. Chosen."""
BODY_BYTES = 1 << 20
"""Largest question."""
OPEN_S, LIVE_S, SEARCH_S = 120.0, 600.0, 1200.0
"""Seconds for reading a model, a live answer (a thousand layers take tens of seconds), and a search. Chosen."""
OF_A_PLAN = ("rest", "layer", "code", "build", "plan_file", "report_file", "take")
"""Commands about an answer that a worker gave before."""
SESSION = "X-Dovetail-Session"
"""The header that names a tab; a page of another origin cannot send it without being refused."""
POLICY = ("default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; img-src data:; "
          "base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
HEADERS = {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
           "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
           "Cache-Control": "no-store"}
PAGE = ("studio.js", "sliders.js", "studio.css", "make.js", "card.js", "front.js", "compare.js", "drag.js")
"""Files of the page beside the report's."""
KINDS = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
QUIET = logging.getLogger("dovetail.studio")
"""Takes what the HTTP parser says of requests that are none; whoever sent them is answered."""
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class RequestRefusedError(DovetailError):
    """A request is answered by an error; `status` is HTTP's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(slots=True)
class Session:
    """A tab: its folder and its worker, and what the worker has open."""

    folder: Path
    worker: TabWorker = field(default_factory=TabWorker)
    used: float = 0.0
    model: tuple[str, tuple[str, ...]] | None = None
    opened_by: int = 0
    """Which process of the worker has the model open."""

    def ask(self, command: str, *arguments: Any, limit_s: float) -> Any:
        """What a worker answers; one that was replaced reads the model again."""
        if self.model is not None and command not in ("open", "open_network"):
            self.worker.start()
            if self.opened_by != self.worker.starts:
                self.open(*self.model)
                if command in OF_A_PLAN:
                    raise UsageError("the process that held this plan has ended; change anything to plan again")
        return self.worker.ask(command, *arguments, limit_s=limit_s)

    def open(self, command: str, arguments: tuple[str, ...]) -> Any:
        """Let the worker read a model."""
        self.model = None
        found = self.worker.ask(command, *arguments, limit_s=OPEN_S)
        self.model, self.opened_by = (command, arguments), self.worker.starts
        return found

    def close(self) -> None:
        """End the worker and remove what the tab has written."""
        self.worker.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class StudioServer:
    """The page, and what it asks."""

    def __init__(self, port: int, given: Path | None = None, upload_bytes: int = UPLOAD_BYTES) -> None:
        self.port, self.given, self.upload_bytes = port, given, upload_bytes
        self.sessions: dict[str, Session] = {}
        self.threads = ThreadPoolExecutor(4 * SESSIONS, "studio")
        self.root = Path(tempfile.mkdtemp(prefix="dovetail-studio-"))
        app = web.Application(middlewares=[self._guard], client_max_size=upload_bytes)
        app.add_routes([web.get("/", self.file), web.get("/{name:[a-z.]+}", self.file), web.get("/api/choices", self.choices),
                        web.post("/api/session", self.open_session), web.post("/api/model", self.model),
                        web.post("/api/{ask:live|wider|search|pareto|take}", self.solve),
                        web.post("/api/{part:layer|code}", self.layer), web.post("/api/numbers", self.numbers),
                        web.post("/api/rest", self.rest),
                        web.get("/api/stage", self.stage), web.post("/api/stop", self.stop_worker),
                        web.post("/api/close", self.close_session),
                        web.post("/api/{file:plan|report}", self.export), web.post("/api/build", self.build)])
        self.files = {name: component(name).encode() for name in (*COMPONENTS, "page.css")} | {
            name: _packaged(name) for name in PAGE}
        self.files["index.html"] = _packaged("index.html").replace(b"{{definitions}}", definitions().encode())
        self.runner = web.AppRunner(app, access_log=None, logger=QUIET, shutdown_timeout=1.0)

    async def start(self) -> str:
        """Listen; the address to open.

        Raises:
            UsageError: the port is taken.
        """
        await self.runner.setup()
        site = web.TCPSite(self.runner, HOST, self.port)
        try:
            await site.start()
        except OSError as error:
            raise UsageError(f"--port {self.port}: cannot be listened on, {(error.strerror or str(error)).lower()}; --port 0 "
                             "takes a free port") from None
        self.port = self.runner.addresses[0][1]
        return f"http://{HOST}:{self.port}/"

    async def stop(self) -> None:
        """End every tab's worker, then the server."""
        for session in self.sessions.values():
            session.close()
        await self.runner.cleanup()
        self.threads.shutdown(wait=False, cancel_futures=True)
        shutil.rmtree(self.root, ignore_errors=True)

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let this server's own page in, and nothing else; answer every error in one sentence."""
        try:
            self._check(request)
            answer = await handler(request)
        except RequestRefusedError as error:
            answer = web.json_response({"error": str(error)}, status=error.status)
        except DovetailError as error:
            answer = web.json_response({"error": str(error)}, status=422)
        except web.HTTPException as error:
            answer = web.json_response({"error": f"{request.method} {request.path[:60]}: {error.reason.lower()}"},
                                       status=error.status)
        except Exception:  # nobody sees a traceback, and the server lives on
            traceback.print_exc(file=sys.stderr)
            answer = web.json_response({"error": "internal error; the terminal has it"}, status=500)
        answer.headers.update(HEADERS)
        return answer

    def _check(self, request: web.Request) -> None:
        """Refuse names of other hosts (a stranger's name may lead here) and pages of other origins."""
        hosts = {f"{HOST}:{self.port}", f"localhost:{self.port}"}
        if request.headers.get("Host") not in hosts:
            raise RequestRefusedError(421, f"the studio answers at http://{HOST}:{self.port}/ alone")
        origin = request.headers.get("Origin")
        if origin is not None and origin not in {f"http://{host}" for host in hosts}:
            raise RequestRefusedError(403, "pages of other origins are refused")
        if request.headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none"):
            raise RequestRefusedError(403, "pages of other sites are refused")
        if request.method == "POST" and request.path != "/api/session" and SESSION not in request.headers:
            raise RequestRefusedError(403, f"the page's {SESSION} is missing")
        if request.method == "POST" and origin is None:
            raise RequestRefusedError(403, "the page's Origin is missing")

    def _session(self, request: web.Request) -> Session:
        found = self.sessions.get(request.headers.get(SESSION, ""))
        if found is None:
            raise RequestRefusedError(410, "this tab was idle for long and others took its place; load the page again")
        found.used = time.monotonic()
        return found

    async def _ask(self, what: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self.threads, what)

    async def file(self, request: web.Request) -> web.Response:
        """A file of the page, by its name in a table."""
        name = request.match_info.get("name", "index.html")
        if name not in self.files:
            raise web.HTTPNotFound
        return web.Response(body=self.files[name], content_type=KINDS[name.rpartition(".")[2]], charset="utf-8")

    async def choices(self, request: web.Request) -> web.Response:
        """Boards and networks that can be chosen, and the model that the command line gave."""
        boards = [{"name": name, "words": load_platform(example_of(name)).description} for name in platform_names()]
        return web.json_response({"boards": boards, "networks": list(zoo.names()),
                                  "given": None if self.given is None else self.given.name})

    async def open_session(self, request: web.Request) -> web.Response:
        """A tab begins."""
        while len(self.sessions) >= SESSIONS:
            oldest = min(self.sessions, key=lambda key: self.sessions[key].used)
            await self._ask(self.sessions.pop(oldest).close)
        key = secrets.token_urlsafe(24)
        session = self.sessions[key] = Session(Path(tempfile.mkdtemp(dir=self.root)), used=time.monotonic())
        await self._ask(session.worker.start)
        return web.json_response({"session": key})

    async def model(self, request: web.Request) -> web.Response:
        """A network: one of the zoo, the one given on the command line, or an uploaded file."""
        session, network = self._session(request), request.query.get("network")
        path = session.folder / "model.onnx"
        if network is not None:
            if network not in zoo.names():
                raise RequestRefusedError(404, f"network {network[:60]}: unknown")
            asked: tuple[str, tuple[str, ...]] = ("open_network", (network, str(path)))
        elif "given" in request.query:
            if self.given is None:
                raise RequestRefusedError(404, "no model was given on the command line")
            asked = ("open", (str(self.given), self.given.name))
        else:
            await self._upload(request, path)
            name = re.sub(r"[^A-Za-z0-9_.+-]", "_", request.query.get("name", "model.onnx"))[:80] or "model.onnx"
            asked = ("open", (str(path), name))
        return web.json_response(await self._ask(partial(session.open, *asked)))

    async def _upload(self, request: web.Request, path: Path) -> None:
        """Write a body to a file, as far as it may be long."""
        if (request.content_length or 0) > self.upload_bytes:
            raise self._too_large()
        taken = 0
        with path.open("wb") as file:
            async for part in request.content.iter_chunked(1 << 20):
                taken += len(part)
                if taken > self.upload_bytes:
                    raise self._too_large()
                file.write(part)

    def _too_large(self) -> RequestRefusedError:
        return RequestRefusedError(413, f"models of up to {self.upload_bytes:,} bytes are taken here; name larger ones on the "
                                 "command line")

    async def solve(self, request: web.Request) -> web.Response:
        """An answer to a question: at once, of a full search, a front, or of a point of it."""
        session, ask = self._session(request), request.match_info["ask"]
        if (request.content_length or 0) > BODY_BYTES:
            raise RequestRefusedError(413, "a question is shorter")
        question = read_question(await request.content.read(BODY_BYTES))
        limit_s = SEARCH_S if ask in ("search", "pareto") else LIVE_S
        more = (_number(request, "point"),) if ask == "take" else ()
        return _json(await self._ask(partial(session.ask, ask, question, *more, limit_s=limit_s)))

    async def layer(self, request: web.Request) -> web.Response:
        """Runner-up and numbers of a layer of the last plan, or the code that is generated for it."""
        session, number = self._session(request), _number(request, "node")
        return _json(await self._ask(partial(session.ask, request.match_info["part"], number, limit_s=OPEN_S)))

    async def rest(self, request: web.Request) -> web.Response:
        """What lies below the map of the last plan."""
        return _json(await self._ask(partial(self._session(request).ask, "rest", limit_s=LIVE_S)))

    async def numbers(self, request: web.Request) -> web.Response:
        """Measure ranges and errors, of so many bits."""
        session = self._session(request)
        bits = _number(request, "bits") if "bits" in request.query else None
        return _json(await self._ask(partial(session.ask, "numbers", bits, limit_s=SEARCH_S)))

    async def build(self, request: web.Request) -> web.StreamResponse:
        """The build of the last plan as an archive."""
        session = self._session(request)
        found = await self._ask(partial(session.ask, "build", str(session.folder), limit_s=SEARCH_S))
        return web.FileResponse(found, headers={"Content-Type": "application/zip"})

    async def stage(self, request: web.Request) -> web.Response:
        """How far a search is."""
        stage, done, total = self._session(request).worker.stage
        return web.json_response({"stage": stage, "done": done, "total": total})

    async def stop_worker(self, request: web.Request) -> web.Response:
        """End what a tab waits for."""
        self._session(request).worker.interrupt()
        return web.json_response({})

    async def close_session(self, request: web.Request) -> web.Response:
        """A tab ends: nothing is computed for it any more."""
        self._session(request)
        await self._ask(self.sessions.pop(request.headers[SESSION]).close)
        return web.json_response({})

    async def export(self, request: web.Request) -> web.Response:
        """The plan or the report as a file."""
        session, what = self._session(request), request.match_info["file"]
        found = await self._ask(partial(session.ask, f"{what}_file", limit_s=LIVE_S))
        if what == "report":
            return web.Response(text=found, content_type="text/html")
        return web.Response(text=json.dumps(found, indent=1, allow_nan=False) + "\n", content_type="application/json")


def _json(found: Any) -> web.Response:
    return web.json_response(text=json.dumps(found, allow_nan=False))


def _number(request: web.Request, name: str) -> int:
    """A whole number that a request names.

    Raises:
        UsageError: it names none.
    """
    text = request.query.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) < 8):
        raise UsageError(f"{name} {text[:20]!r}: not a whole number")
    return int(text)


def _packaged(name: str) -> bytes:
    return (resources.files("dovetail.studio") / "page" / name).read_bytes()


async def studio(port: int, given: Path | None, started: Callable[[str], None]) -> None:
    """Serve the studio until SIGINT, SIGTERM or SIGHUP."""
    server, loop, ended = StudioServer(port, given), asyncio.get_running_loop(), asyncio.Event()
    try:
        started(await server.start())
        for number in (signal.SIGINT, *STOPPING):
            loop.add_signal_handler(number, ended.set)
        await ended.wait()
    finally:
        await server.stop()
