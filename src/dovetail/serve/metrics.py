"""What a server counts, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from dovetail.serve.workers import WorkerCounts

BATCHES = tuple(1 << i for i in range(11))
"""Bounds of the histogram of frames per batch."""


class Metrics:
    """Counters of one server; labels are names of its models and HTTP codes, so their number is bounded."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter("dovetail_requests", "Inference requests by model and HTTP code", ["model", "code"],
                                registry=self.registry)
        self.seconds = Histogram("dovetail_request_seconds", "Seconds from a request's headers to its answer", ["model"],
                                 registry=self.registry)
        self.batches = Histogram("dovetail_batch_frames", "Frames per call of a build", ["model"], buckets=BATCHES,
                                 registry=self.registry)
        self.restarts = Counter("dovetail_worker_restarts", "Worker processes started again", ["model"], registry=self.registry)
        self.waiting = Gauge("dovetail_waiting_requests", "Accepted requests that no worker has taken yet", ["model"],
                             registry=self.registry)
        self.held = Gauge("dovetail_held_bytes", "Bytes of requests and answers in memory", registry=self.registry)

    def counts(self, model: str) -> WorkerCounts:
        """What workers of a model tell."""
        return WorkerCounts(self.batches.labels(model).observe, self.restarts.labels(model).inc)

    def watch(self, model: str, waiting: Callable[[], int]) -> None:
        """Read how many requests of a model wait whenever it is asked for."""
        self.waiting.labels(model).set_function(waiting)

    def text(self) -> bytes:
        """All of it, in the text format of Prometheus."""
        return generate_latest(self.registry)
