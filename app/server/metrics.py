"""Prometheus metrics: counts and times, never texts, addresses or keys."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from app.models.batcher import Observer
from app.models.model import Model
from app.models.registry import ModelRegistry

PREFIX = "tfnmt_app"

SECONDS_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120)
"""Upper bounds of the times. The default deadline of a request is 20 seconds."""

ROW_BUCKETS = (1, 2, 4, 8, 16, 32)
FILL_BUCKETS = (0.25, 0.5, 0.75, 0.9, 1)


class Metrics(Observer):
    """Metrics of one application."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        kwargs: Any = {"namespace": PREFIX, "registry": registry}
        times = {**kwargs, "buckets": SECONDS_BUCKETS}
        self._requests = Counter(
            "requests", "Requests answered.", ["route", "method", "status"], **kwargs
        )
        self._in_flight = Gauge("requests_in_flight", "Requests being answered.", **kwargs)
        self._seconds = Histogram(
            "request_seconds", "Time to answer a request.", ["route"], **times
        )
        self._characters = Counter("characters", "Characters accepted for translation.", **kwargs)
        self._lookups = Counter(
            "cache_lookups", "Sentences looked up in the cache.", ["result"], **kwargs
        )
        self._rows = Histogram(
            "batch_rows", "Rows per batch.", ["task"], buckets=ROW_BUCKETS, **kwargs
        )
        self._fill = Histogram(
            "batch_fill",
            "Share of the padded tokens of a batch that are not padding.",
            ["task"],
            buckets=FILL_BUCKETS,
            **kwargs,
        )
        self._batch_seconds = Histogram(
            "batch_seconds", "Processing time of a batch.", ["task"], **times
        )
        self._queue_seconds = Histogram(
            "queue_seconds", "Time in the queue of the first row of a batch.", ["task"], **times
        )

    def watch(self, models: ModelRegistry) -> None:
        """Add the readiness, the backlog and the cache of these models."""
        self._registry.register(_ModelCollector(models))

    def track_request(self) -> AbstractContextManager[None]:
        """Count a request as in flight while the returned context is open."""
        return self._in_flight.track_inprogress()

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        """Record an answered request."""
        self._requests.labels(route, method, status).inc()
        self._seconds.labels(route).observe(seconds)

    def characters(self, count: int) -> None:
        """Record characters accepted for translation."""
        self._characters.inc(count)

    def batch(self, task: str, rows: int, fill: float, seconds: float, waited: float) -> None:
        """Record a finished batch; see `Observer.batch`."""
        self._rows.labels(task).observe(rows)
        self._fill.labels(task).observe(fill)
        self._batch_seconds.labels(task).observe(seconds)
        self._queue_seconds.labels(task).observe(waited)

    def lookups(self, hits: int, misses: int) -> None:
        """Record sentences looked up in the cache; see `Observer.lookups`."""
        self._lookups.labels("hit").inc(hits)
        self._lookups.labels("miss").inc(misses)

    def page(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self._registry)


class _ModelCollector(Collector):
    """Reads the state of the models when the metrics are requested."""

    def __init__(self, models: ModelRegistry) -> None:
        self._models = models

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the readiness, the backlog and the size of the cache of each model."""
        yield self._gauge("model_ready", "Whether the model is ready.", lambda model: model.ready)
        yield self._gauge(
            "backlog_seconds", "Estimated time to empty the queue.", lambda model: model.backlog
        )
        yield self._gauge(
            "cache_sentences", "Sentences in the cache.", lambda model: model.cached_sentences
        )

    def _gauge(self, name: str, text: str, value: Callable[[Model], float]) -> GaugeMetricFamily:
        family = GaugeMetricFamily(f"{PREFIX}_{name}", text, labels=["model"])
        for model in self._models:
            family.add_metric([model.name], float(value(model)))
        return family
