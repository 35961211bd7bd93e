"""The alert rules and the dashboard in export/monitoring/ use metrics that exist."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from app.models.model import Model
from app.models.registry import ModelRegistry
from app.server.metrics import Metrics
from app.server.protocol import MAX_CONNECTIONS
from tests.app.fake_engine import FakeEngine

MONITORING = Path(__file__).parents[2] / "export" / "monitoring"

SERVER_METRICS = {
    ":tensorflow:serving:request_count": {"model_name", "status"},
    ":tensorflow:serving:request_latency_bucket": {"model_name", "API", "entrypoint", "le"},
    ":tensorflow:serving:runtime_latency_bucket": {"model_name", "API", "runtime", "le"},
    ":tensorflow:serving:batching_session:queuing_latency_bucket": {"thread_pool_name", "le"},
}
"""Metrics of TensorFlow Serving 2.20 with their labels, from its source."""

SCRAPED = {"job", "instance"}
"""Labels that Prometheus adds."""

Labels = dict[str, set[str]]


@pytest.fixture(scope="module")
def promtool() -> str:
    path = shutil.which("promtool")
    if path is None:
        pytest.skip("promtool: not installed; it is in Debian's package prometheus")
    return path


@pytest.fixture(scope="module")
def metrics() -> Labels:
    """The labels of each metric that the application, TensorFlow Serving or Prometheus has."""
    page = Metrics()
    model = Model("en_de", FakeEngine(), 5, 0, page)
    page.watch(ModelRegistry([model]))
    page.request("/api/v1/translate", "POST", 200, 0.1)
    page.characters(9)
    page.batch("beam", 1, 1.0, 0.1, 0.1)
    page.lookups(1, 1)
    found: Labels = {"up": set(), **SERVER_METRICS}
    for family in text_string_to_metric_families(page.page().decode()):
        found |= {sample.name: set(sample.labels) for sample in family.samples}
    return found


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    return json.loads((MONITORING / "dashboard.json").read_text())


def queries() -> Iterator[str]:
    """Yield the queries of the dashboard, with values for its variables."""
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", []):
            yield target["expr"].replace("$__rate_interval", "5m").replace("$", "")


def selectors(query: str) -> Iterator[tuple[str, set[str]]]:
    """Yield each metric of a query, with the labels that select its series."""
    bare = re.sub(r'"[^"]*"|\[[^]]*\]|\bby\s*\([^)]*\)|\b(?:and|or)\b', "", query)
    metric = r"(?<![\w:])([a-zA-Z_:][\w:]*)(?![\w:]|\s*\()(\{[^}]*\})?"
    for name, matchers in re.findall(metric, bare):
        yield name, set(re.findall(r"\w+(?=\s*[=!])", matchers))


def test_selectors_of_a_query() -> None:
    query = 'sum by (a) (rate(:b:c{d=~"e|f", g!=""}[5m])) / 1e6 > h and time() - i{} < 2'
    assert list(selectors(query)) == [(":b:c", {"d", "g"}), ("h", set()), ("i", set())]


@pytest.mark.parametrize("source", ["alerts", "dashboard"])
def test_queries_use_metrics_and_labels_that_exist(metrics: Labels, source: str) -> None:
    exprs = [rule["expr"] for rule in alerts()] if source == "alerts" else list(queries())
    assert len(exprs) > 10
    for expr in exprs:
        used = list(selectors(expr))
        assert used, expr
        for name, labels in used:
            assert name in metrics, expr
            assert labels <= metrics[name] | SCRAPED, expr
        grouped = re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", expr)))
        assert set(grouped) <= set.union(*(metrics[name] for name, _ in used)) | SCRAPED, expr


def test_variables_of_the_dashboard_use_metrics_that_exist(metrics: Labels) -> None:
    variables = dashboard()["templating"]["list"]
    names = [
        match[1] for each in variables if (match := re.match(r"label_values\((\w+)", each["query"]))
    ]
    assert len(names) == len(variables) - 1  # the data source has no query
    assert set(names) <= set(metrics)


def test_alert_of_connections_knows_their_limit() -> None:
    (expr,) = (rule["expr"] for rule in alerts() if rule["alert"] == "TfnmtConnections")
    assert f"clamp_max(process_max_fds / 2, {MAX_CONNECTIONS})" in expr


def test_panels_do_not_overlap() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for box in (panel["gridPos"] for panel in panels)
        for x in range(box["x"], box["x"] + box["w"])
        for y in range(box["y"], box["y"] + box["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


def test_alerts_name_the_jobs_of_the_configuration() -> None:
    config = yaml.safe_load((MONITORING / "prometheus.yml").read_text())
    jobs = {job["job_name"] for job in config["scrape_configs"]}
    text = (MONITORING / "alerts.yml").read_text() + " ".join(queries())
    named = {job for jobs in re.findall(r'job=~?"([^"$]+)"', text) for job in jobs.split("|")}
    assert named - {"job"} == jobs  # `job` is the variable of the dashboard


def test_configuration_and_rules_are_valid(promtool: str) -> None:
    subprocess.run([promtool, "check", "config", MONITORING / "prometheus.yml"], check=True)


def test_alerts_fire_in_their_cases_only(promtool: str) -> None:
    subprocess.run([promtool, "test", "rules", MONITORING / "alerts_test.yml"], check=True)


def test_every_alert_has_a_case() -> None:
    cases = yaml.safe_load((MONITORING / "alerts_test.yml").read_text())["tests"]
    fired = {
        each["alertname"]
        for case in cases
        for each in case["alert_rule_test"]
        if each.get("exp_alerts")
    }
    assert fired == {rule["alert"] for rule in alerts()}


def test_queries_of_the_dashboard_are_valid(promtool: str, tmp_path: Path) -> None:
    rules = [{"record": f"q:{n}", "expr": query} for n, query in enumerate(queries())]
    path = tmp_path / "rules.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    subprocess.run([promtool, "check", "rules", path], check=True)
