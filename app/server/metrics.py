"""Prometheus metrics: counts and times, never texts, addresses or keys."""

from collections.abc import Iterable, Iterator

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from app.models.batcher import Observer
from app.models.registry import ModelRegistry

ROW_BUCKETS = (1, 2, 4, 8, 16, 32)
FILL_BUCKETS = (0.25, 0.5, 0.75, 0.9, 1)


class Metrics(Observer):
    """Metrics of one application."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        self._requests = Counter(
            "app_requests", "Requests answered.", ["route", "method", "status"], registry=registry
        )
        self._seconds = Histogram(
            "app_request_seconds", "Time to answer a request.", ["route"], registry=registry
        )
        self._characters = Counter(
            "app_characters", "Characters accepted for translation.", registry=registry
        )
        self._rows = Histogram(
            "app_batch_rows", "Rows per batch.", ["task"], buckets=ROW_BUCKETS, registry=registry
        )
        self._fill = Histogram(
            "app_batch_fill",
            "Share of the padded tokens of a batch that are not padding.",
            ["task"],
            buckets=FILL_BUCKETS,
            registry=registry,
        )
        self._batch_seconds = Histogram(
            "app_batch_seconds", "Processing time of a batch.", ["task"], registry=registry
        )
        self._queue_seconds = Histogram(
            "app_queue_seconds",
            "Time in the queue of the first row of a batch.",
            ["task"],
            registry=registry,
        )

    def watch(self, models: ModelRegistry) -> None:
        """Add the readiness and the backlog of these models."""
        self._registry.register(_ModelCollector(models))

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

    def page(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self._registry)


class _ModelCollector(Collector):
    """Reads the state of the models when the metrics are requested."""

    def __init__(self, models: ModelRegistry) -> None:
        self._models = models

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the readiness and the backlog of each model."""
        ready = ((model.name, model.ready) for model in self._models)
        yield self._gauge("app_model_ready", "Whether the model is ready.", ready)
        backlog = ((model.name, model.backlog) for model in self._models)
        yield self._gauge("app_backlog_seconds", "Estimated time to empty the queue.", backlog)

    def _gauge(
        self, name: str, text: str, values: Iterable[tuple[str, float]]
    ) -> GaugeMetricFamily:
        family = GaugeMetricFamily(name, text, labels=["model"])
        for model, value in values:
            family.add_metric([model], float(value))
        return family
