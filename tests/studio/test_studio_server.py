"""The studio's server: who may ask, what is refused, and that tabs and hostile files disturb nobody."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from dovetail.cli import main
from dovetail.errors import UsageError
from dovetail.partition.plan import Goal
from dovetail.partition.plan_json import plan_from_json
from dovetail.platform.device import Kind
from dovetail.studio.app import SESSION, Session, StudioServer
from dovetail.studio.question import StudioQuestion, read_question
from dovetail.studio.solving import Studio
from dovetail.studio.worker import TabWorker, WorkerError

MODEL = Path(__file__).parents[2] / "examples" / "fashion" / "fashion.onnx"
ASKED = {"board": "tx2-c10gx", "goal": "latency"}
Ask = Callable[..., Awaitable[tuple[int, Any]]]


def served(what: Callable[[StudioServer, str, Ask], Awaitable[None]], **options: Any) -> None:
    """Run something beside a server; what it is given asks, and returns status and JSON."""
    async def run() -> None:
        server = StudioServer(0, **options)
        url = await server.start()
        try:
            async with aiohttp.ClientSession() as http:
                async def ask(method: str, path: str, session: str | None = None, headers: Mapping[str, str | None] | None = None,
                              **more: Any) -> tuple[int, Any]:
                    sent = {"Origin": url[:-1], **({} if session is None else {SESSION: session}), **(headers or {})}
                    async with http.request(method, url[:-1] + path, headers={k: v for k, v in sent.items() if v is not None},
                                            **more) as answer:
                        text = await answer.text()
                        return answer.status, json.loads(text) if "json" in answer.content_type else text

                await what(server, url, ask)
        finally:
            await server.stop()

    asyncio.run(run())


def test_the_page_and_its_files_are_there_and_no_others() -> None:
    async def look(server: StudioServer, url: str, ask: Ask) -> None:
        for name in ("", "studio.js", "studio.css", "page.css", "map.js", "table.js", "gantt.js", "tips.js"):
            status, text = await ask("GET", f"/{name}")
            assert (status, len(text) > 400) == (200, True), name
        for path in ("/app.py", "/../app.py", "/%2e%2e/app.py", "/page/studio.js", "/etc/passwd", "/api", "/api/model",
                     "/favicon.ico"):
            status, found = await ask("GET", path)
            assert status in (404, 405), path
            assert set(found) == {"error"}
        assert (await ask("GET", "/api/choices"))[1]["given"] is None

    served(look)


def test_foreign_hosts_origins_and_sites_are_refused() -> None:
    async def look(server: StudioServer, url: str, ask: Ask) -> None:
        async def status(**headers: str | None) -> int:
            return (await ask("POST", "/api/session", headers=headers))[0]

        port = server.port
        assert await status(Host="evil.example") == 421
        assert await status(Host=f"evil.example:{port}") == 421
        assert await status(Host=f"127.0.0.1:{port + 1}") == 421
        for origin in ("http://evil.example", "null", f"https://127.0.0.1:{port}", f"http://127.0.0.1:{port}.evil.example", None):
            assert await status(Origin=origin) == 403, origin
        assert await status(**{"Sec-Fetch-Site": "cross-site"}) == 403
        assert await status(**{"Sec-Fetch-Site": "same-site"}) == 403
        assert (await ask("GET", "/", headers={"Origin": "http://evil.example"}))[0] == 403
        assert (await ask("POST", "/api/live", json=ASKED)) == (403, {"error": f"the page's {SESSION} is missing"})
        assert (await ask("POST", "/api/live", "made-up", json=ASKED))[0] == 410
        assert (await ask("OPTIONS", "/api/live", headers={"Access-Control-Request-Method": "POST"}))[0] == 405
        async with aiohttp.ClientSession() as http, http.get(url) as page:
            policy = page.headers["Content-Security-Policy"]
            assert "default-src 'none'; script-src 'self'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "Access-Control-Allow-Origin" not in page.headers

    served(look)


@pytest.mark.parametrize(("text", "sentence"), [
    (b"", "not readable as JSON"), (b"\xff", "not readable as JSON"), (b"[" * 100_000, "not readable as JSON"),
    (b'{"board": "tx2-c10gx", "goal": NaN}', "NaN is no number of JSON"), (b"[]", "question"), (b"{}", "board"),
    (b'{"board": "../secret.toml", "goal": "latency"}', "board"), (b'{"board": "tx2-c10gx", "goal": "fame"}', "goal"),
    (b'{"board": "tx2-c10gx", "goal": "latency", "clock": 1e9}', "clock 1e+09: a factor from 0.1 to 10 is possible"),
    (b'{"board": "tx2-c10gx", "goal": "latency", "max_energy_mj": -1}', "max_energy_mj -1: must be above 0"),
    (b'{"board": "tx2-c10gx", "goal": "latency", "pins": {"a": 1}}', "pins"),
    (b'{"board": "tx2-c10gx", "goal": "latency", "thrift": "much"}', "thrift"),
    (b'{"board": "tx2-c10gx", "goal": "latency", "bits": 9}', "bits"),
    (b'{"board": "fic:100", "goal": "latency"}', "board fic:100"),
    (b'{"board": "fic:3.toml", "goal": "latency"}', "board fic:3.toml: unknown")])
def test_what_is_no_question_is_refused_in_one_sentence(text: bytes, sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_question(text)
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_question_changes_clocks_and_bandwidths_of_the_board_and_nothing_else() -> None:
    asked = read_question(json.dumps({**ASKED, "clock": 2, "bandwidth": 0.5, "unknown": [1], "pins": {"conv1": "cpu"}}).encode())
    plain = StudioQuestion("tx2-c10gx", Goal.LATENCY)
    changed, before = asked.platform, plain.platform
    assert [d.clock_hz for d in changed.of_kind(Kind.FPGA)] == [2 * (d.clock_hz or 0) for d in before.of_kind(Kind.FPGA)]
    assert [d.clock_hz for d in changed.of_kind(Kind.CPU)] == [d.clock_hz for d in before.of_kind(Kind.CPU)]
    assert all(2 * a.bandwidth_bytes_per_s == b.bandwidth_bytes_per_s for a, b in zip(changed.links, before.links, strict=True))
    assert asked.options().pins["conv1"].devices == ("cpu",)


def test_the_command_refuses_what_it_cannot_open(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = ((["missing.onnx"], "missing.onnx: no such file"), (["--port", "70000"], "must be from 0 to 65535"))
    for arguments, sentence in wrong:
        assert main(["studio", *arguments]) == 2
        assert sentence in capsys.readouterr().err


@pytest.mark.slow("starts worker processes")
def test_tabs_have_models_of_their_own_and_a_plan_is_solved_again() -> None:
    async def look(server: StudioServer, url: str, ask: Ask) -> None:
        first, second = [(await ask("POST", "/api/session"))[1]["session"] for _ in range(2)]
        status, opened = await ask("POST", "/api/model?name=../my%20net.onnx", first, data=MODEL.read_bytes())
        assert (status, opened["file"]) == (200, ".._my_net.onnx")
        assert await ask("POST", "/api/live", second, json=ASKED) == (
            422, {"error": "no network is open; drop an ONNX file or choose one"})
        status, view = await ask("POST", "/api/live", first, json=ASKED)
        assert status == 200
        assert "frames/s" in view["lead"]
        assert view["nodes"][0]["name"] == "conv1"
        pinned = {n["name"]: "cpu" for n in view["nodes"]}
        status, slower = await ask("POST", "/api/live", first, json={**ASKED, "pins": pinned})
        figure = {name: number for name, _, number, _ in slower["figures"]}
        assert figure["Latency"] > {name: number for name, _, number, _ in view["figures"]}["Latency"]
        status, refused = await ask("POST", "/api/live", first, json={**ASKED, "max_energy_mj": 1e-6})
        assert (status, "raise the limit" in refused["refused"]) == (200, True)
        assert "raise the limit" in (await ask("POST", "/api/wider", first, json={**ASKED, "max_energy_mj": 1e-6}))[1]["error"]
        for path in ("layer?node=99", "layer?node=-1", "layer", "code?node=1e3", "numbers?bits=9"):
            assert (await ask("POST", f"/api/{path}", first))[0] == 422, path
        assert (await ask("POST", "/api/take?point=0", first, json=ASKED))[1] == {
            "error": "there is no such point; find the front again"}
        status, front = await ask("POST", "/api/pareto", first, json=ASKED)
        assert [p["energy_j"] for p in front] == sorted(p["energy_j"] for p in front)
        status, plan = await ask("POST", "/api/plan", first)
        assert set(plan_from_json(plan).assignment) == set(pinned)
        status, page = await ask("POST", "/api/report", first)
        assert page.startswith("<!DOCTYPE html>")
        await ask("POST", "/api/stop", first)  # the process ends; the next question reads the model again
        assert (await ask("POST", "/api/live", first, json=ASKED))[0] == 200
        assert (await ask("POST", "/api/model?network=nothing", first))[0] == 404
        assert (await ask("POST", "/api/model?given=", first))[0] == 404

    served(look)


@pytest.mark.slow("reads some hundreds of hostile files")
def test_hostile_uploads_are_refused_or_read_and_leave_the_server_running() -> None:
    draw, whole = random.Random(34), MODEL.read_bytes()

    def mutated() -> bytes:
        content = bytearray(whole)
        kind = draw.randrange(4)
        if kind == 0:
            return bytes(content[:draw.randrange(len(content))])
        if kind == 1:
            return draw.randbytes(draw.randrange(1, 4000))
        start = 0 if kind == 2 else max(0, len(content) - 4000)  # names and operators stand at the ends
        for _ in range(draw.randrange(1, 30)):
            content[start + draw.randrange(4000)] = draw.randrange(256)
        return bytes(content)

    async def look(server: StudioServer, url: str, ask: Ask) -> None:
        key = (await ask("POST", "/api/session"))[1]["session"]
        statuses: set[int] = set()
        for number in range(300):
            status, found = await ask("POST", "/api/model", key, data=b"" if number == 0 else mutated())
            assert status in (200, 422), found
            if status == 422:
                assert len(found["error"]) < 2000
                assert "Traceback" not in found["error"]
            statuses.add(status)
        assert statuses >= {422}
        assert (await ask("POST", "/api/model", key, data=whole))[0] == 200
        assert (await ask("POST", "/api/live", key, json=ASKED))[0] == 200
        assert [p for p in server.root.rglob("*") if p.is_file()] == [server.sessions[key].folder / "model.onnx"]

    served(look)


def test_a_file_that_is_too_large_is_refused_while_it_arrives() -> None:
    async def look(server: StudioServer, url: str, ask: Ask) -> None:
        async def parts() -> Any:
            for _ in range(50):
                yield bytes(1000)

        server.sessions["tab"] = session = _session(server)
        assert (await ask("POST", "/api/model", "tab", data=bytes(20_000)))[0] == 413
        assert (await ask("POST", "/api/model", "tab", data=parts()))[0] == 413
        assert session.worker.starts == 0

    served(look, upload_bytes=10_000)


def _session(server: StudioServer) -> Session:
    folder = server.root / "tab"
    folder.mkdir()
    return Session(folder)


@pytest.mark.slow("starts worker processes")
def test_a_worker_without_memory_or_time_ends_alone_and_is_replaced(tmp_path: Path) -> None:
    small, slow = TabWorker(memory_bytes=1 << 20), TabWorker()
    large = tmp_path / "large.onnx"
    with large.open("wb") as file:
        file.truncate(1 << 28)  # more than any process has left of what it once freed
    try:
        with pytest.raises(WorkerError, match="memory"):
            small.ask("open", str(large), "large.onnx", limit_s=60)
        with pytest.raises(WorkerError, match=r"^no answer within 0 s; use the command line for such networks$"):
            slow.ask("open", str(MODEL), "fashion.onnx", limit_s=0)
        assert slow.ask("open", str(MODEL), "fashion.onnx", limit_s=60)["layers"] == 11
        assert slow.starts == 2
    finally:
        small.kill()
        slow.kill()


def test_what_was_asked_before_does_not_change_an_answer() -> None:
    changes = [{}, {"clock": 1.7}, {"bandwidth": 0.4}, {"fill": 0.3}, {"thrift": 0.1}, {"clock": 1.7, "bandwidth": 0.4}, {}]
    moved = Studio()
    moved.open(str(MODEL), MODEL.name)
    moved.live(StudioQuestion("tx2-c10gx"))
    known = moved.known["tx2-c10gx"]
    for change in changes:
        moved.live(StudioQuestion("tx2-c10gx", **change))
        new = Studio()
        new.open(str(MODEL), MODEL.name)
        new.known["tx2-c10gx"] = known
        new.live(StudioQuestion("tx2-c10gx", **change))
        assert moved.last is not None
        assert new.last is not None
        assert moved.last.plan == new.last.plan, change
        assert moved.last.timeline == new.last.timeline, change


def test_what_lies_below_the_map_comes_apart_and_says_of_which_plan_it_is() -> None:
    studio = Studio()
    studio.open(str(MODEL), MODEL.name)
    with pytest.raises(UsageError, match="there is no plan yet"):
        studio.rest()
    for number in (1, 2):
        first = studio.live(StudioQuestion("tx2-c10gx"))
        rest = studio.rest()
        assert first["number"] == rest["number"] == number
        assert {"n0", "t0"} <= rest["details"].keys()
        assert 'id="plan-table"' in rest["plan"]
        assert "details" not in first
