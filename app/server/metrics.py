"""What Prometheus is told: counts and times, never a text, an address or a key."""

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
from app.models.registry import Models

ROWS = (1, 2, 4, 8, 16, 32)
SHARES = (0.25, 0.5, 0.75, 0.9, 1)


class Metrics(Observer):
    """One application's numbers."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        self._requests = Counter(
            "app_requests", "Requests answered.", ["route", "method", "status"], registry=registry
        )
        self._seconds = Histogram(
            "app_request_seconds", "How long answers took.", ["route"], registry=registry
        )
        self._characters = Counter(
            "app_characters", "Characters taken for translation.", registry=registry
        )
        self._rows = Histogram(
            "app_batch_rows", "Rows of a batch.", ["task"], buckets=ROWS, registry=registry
        )
        self._fill = Histogram(
            "app_batch_fill", "The share of a batch that is no padding.", ["task"],
            buckets=SHARES, registry=registry,
        )  # fmt: skip
        self._work = Histogram(
            "app_batch_seconds", "How long batches took.", ["task"], registry=registry
        )
        self._wait = Histogram(
            "app_queue_seconds", "How long a batch's first row waited.", ["task"],
            registry=registry,
        )  # fmt: skip

    def watch(self, models: Models) -> None:
        """Tells of these models too."""
        self._registry.register(_ModelCollector(models))

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        """A request is answered."""
        self._requests.labels(route, method, status).inc()
        self._seconds.labels(route).observe(seconds)

    def characters(self, number: int) -> None:
        """So many are taken for translation."""
        self._characters.inc(number)

    def batch(self, task: str, rows: int, fill: float, seconds: float, waited: float) -> None:
        """A batch is done."""
        self._rows.labels(task).observe(rows)
        self._fill.labels(task).observe(fill)
        self._work.labels(task).observe(seconds)
        self._wait.labels(task).observe(waited)

    def page(self) -> bytes:
        """All of it, as Prometheus reads it."""
        return generate_latest(self._registry)


class _ModelCollector(Collector):
    """How the models are at the moment of being asked."""

    def __init__(self, models: Models) -> None:
        self._models = models

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Readiness and backlog of each."""
        yield self._family(
            "app_model_ready", "Whether it can be asked.", ((m.name, m.ready) for m in self._models)
        )
        yield self._family(
            "app_backlog_seconds", "What is waiting, in seconds of work.",
            ((m.name, m.backlog) for m in self._models),
        )  # fmt: skip

    def _family(
        self, name: str, text: str, values: Iterable[tuple[str, float]]
    ) -> GaugeMetricFamily:
        family = GaugeMetricFamily(name, text, labels=["model"])
        for model, value in values:
            family.add_metric([model], float(value))
        return family
