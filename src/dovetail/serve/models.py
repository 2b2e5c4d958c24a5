"""Models by name: what is loaded, swapped and unloaded, and how a request finds its worker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from dovetail.errors import DovetailError
from dovetail.ir import Array
from dovetail.serve.protocol import InferRequest, RequestError, Signature
from dovetail.serve.runner import Opener
from dovetail.serve.workers import RequestQueue, Waiting, WorkerCounts, WorkerLimits, WorkerProcess

Parse = Callable[[Signature], Awaitable[InferRequest]]
"""Checks a request against a model's signature."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """One opening of a model: its queue and the workers on it."""

    queue: RequestQueue
    workers: tuple[WorkerProcess, ...]
    signature: Signature
    notes: tuple[str, ...]

    @property
    def fault(self) -> str | None:
        """Why nobody computes; None while one worker does."""
        faults = [w.fault for w in self.workers]
        return faults[0] if all(faults) else None

    async def close(self) -> None:
        """End the workers once every accepted request is answered."""
        self.queue.close()
        for worker in self.workers:
            await asyncio.to_thread(worker.thread.join)


async def open_model(name: str, opener: Opener, limits: WorkerLimits, counts: WorkerCounts) -> Loaded:
    """Start a model's workers.

    Raises:
        DovetailError: one does not come up; all are ended.
    """
    queue, loop = RequestQueue(limits.most_waiting), asyncio.get_running_loop()
    workers = tuple(WorkerProcess(name, opener, queue, limits, counts, loop) for _ in range(limits.workers))
    try:
        signature, notes = (await asyncio.gather(*(w.opened for w in workers)))[0]
    except BaseException:
        for worker in workers:
            worker.abandon()
        raise
    return Loaded(queue, workers, signature, notes)


@dataclass(slots=True)
class ServedModel:
    """A name that requests can ask for; `loaded` is None while it is unloaded."""

    name: str
    opener: Opener
    limits: WorkerLimits
    counts: WorkerCounts
    loaded: Loaded | None = None
    reason: str = ""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    closing: dict[asyncio.Task[None], Loaded] = field(default_factory=dict)
    """What answers the rest of what it accepted."""

    @property
    def ready(self) -> bool:
        return self.loaded is not None and self.loaded.fault is None

    @property
    def current(self) -> Loaded:
        """What answers now.

        Raises:
            RequestError: the model is unloaded, or its worker does not start.
        """
        if self.loaded is None:
            raise RequestError(404, f"model {self.name}: not loaded")
        if self.loaded.fault is not None:
            raise RequestError(503, f"model {self.name}: not ready, its worker does not start; the server's log has the reason")
        return self.loaded

    async def load(self) -> None:
        """Open the model, and let the new opening answer from then on; the old one answers what it has accepted.

        Raises:
            DovetailError: it cannot be opened; what answered before goes on.
        """
        async with self.lock:
            try:
                found = await open_model(self.name, self.opener, self.limits, self.counts)
            except DovetailError as error:
                self.reason = str(error)
                raise
            self._swap(found)

    async def unload(self) -> None:
        """Accept no further request."""
        async with self.lock:
            self._swap(None)

    def _swap(self, found: Loaded | None) -> None:
        before, self.loaded, self.reason = self.loaded, found, "" if found else "unloaded"
        if before is not None:
            task = asyncio.create_task(before.close())
            self.closing[task] = before
            task.add_done_callback(self.closing.pop)

    async def close(self) -> None:
        """Unload, and wait until every accepted request is answered."""
        await self.unload()
        await asyncio.gather(*self.closing)

    def abandon(self) -> None:
        """End workers that are still there, whatever they do."""
        for loaded in (self.loaded, *self.closing.values()):
            for worker in () if loaded is None else loaded.workers:
                worker.abandon()

    async def infer(self, parse: Parse, deadline_s: float, began: float) -> tuple[InferRequest, dict[str, Array]]:
        """Accept a request, and wait for its results; `deadline_s` after `began` at the latest.

        Raises:
            RequestError: it is wrong, too many wait, or its deadline has passed.
        """
        loaded = self.current
        if loaded.queue.full:
            raise RequestError(503, f"model {self.name}: {loaded.queue.most} requests wait already; try again later")
        request = await parse(loaded.signature)
        if self.current is not loaded:  # swapped meanwhile
            return await self.infer(parse, deadline_s, began)
        limit_s = min(deadline_s, request.timeout_s or deadline_s)
        one = Waiting(request, asyncio.get_running_loop().create_future())
        loaded.queue.put(one)
        try:
            async with asyncio.timeout(began + limit_s - time.monotonic()):
                return request, await one.answer
        except TimeoutError:
            loaded.queue.forget(one)
            raise RequestError(504, f"model {self.name}: not answered within {limit_s:g} s") from None
