"""Measure a served model or the web application under load.

    python -m benchmarks.serving --url=http://127.0.0.1:8501/v1/models/demo
        [--grpc=127.0.0.1:8500] [--signature=greedy] [--target=de] [--input=F] [--seconds=10]
        [--clients=1,8]
    python -m benchmarks.serving --app=http://127.0.0.1:8080 [--mode=greedy] [--clients=1,8]
        [--rates=20,40] [--offline=EXPORT_VERSION] [--target=de] [--input=F] [--seconds=10]
        [--pid=N]

--url measures a model behind REST and, with --grpc, behind gRPC. Each client sends one sentence at
a time, the next one when the response has arrived. Prints one JSON line per protocol and number of
clients. Clients on the machine of the server share its CPUs.

--app measures the web application. First come clients that wait for their responses (--clients),
then requests at random times (--rates, requests per second), regardless of pending responses.
Requests that the application refuses with 429 or 503 are counted separately. Start the application
with --cache=0, because sentences repeat and the cache would answer them. --offline first measures
the model without a server, in batches of 64 and of one, with TensorFlow's default settings. --pid
is the process id of the server; it adds the server's memory at the end of each load.

The exit status is 1 if any request fails. `python -m tests.soak.serving` checks the signatures of
a served model and sends hostile texts.
"""

import math
import sys
from contextlib import suppress
from typing import Any

from absl import flags

from benchmarks.clients import protocols, run_clients
from benchmarks.load import Load, LoadResults, offline
from benchmarks.measurement import percentiles, print_result, read_sentences, resident_mb
from tfnmt.cli import run_command
from tfnmt.errors import UsageError
from tfnmt.runtime.startup import import_tensorflow

FLAGS = flags.FlagValues()
flags.DEFINE_string("url", None, "REST address of the model", flag_values=FLAGS)
flags.DEFINE_string("grpc", None, "host:port of the server's gRPC endpoint", flag_values=FLAGS)
flags.DEFINE_string(
    "signature", "serving_default", "signature of the model to measure", flag_values=FLAGS
)
flags.DEFINE_string(
    "target", None, "language to translate to, for a model with several", flag_values=FLAGS
)
flags.DEFINE_string(
    "input",
    None,
    "file with sentences, one per line (default: the toy corpus)",
    flag_values=FLAGS,
)
flags.DEFINE_float(
    "seconds", 10, "duration of each measurement", lower_bound=0.1, flag_values=FLAGS
)
flags.DEFINE_list(
    "clients", ["1", "8"], "numbers of parallel clients to measure", flag_values=FLAGS
)
flags.DEFINE_string("app", None, "address of the web application", flag_values=FLAGS)
flags.DEFINE_string(
    "mode", "beam", "decoding mode to request from the application", flag_values=FLAGS
)
flags.DEFINE_list("rates", [], "requests per second to measure", flag_values=FLAGS)
flags.DEFINE_string(
    "offline", None, "version folder of an export, measured without a server", flag_values=FLAGS
)
flags.DEFINE_integer(
    "pid", None, "process id of the application, to report its memory", flag_values=FLAGS
)


def main(values: Any, positional: list[str]) -> None:
    """Run the load and print the results."""
    if positional or bool(values.url) == bool(values.app):
        raise UsageError(
            "--url, --app: give exactly one; the address of a model, such as "
            "http://127.0.0.1:8501/v1/models/demo, or that of the web application"
        )
    numbers = _parse_clients(values.clients)
    fields = {"target": values.target} if values.target else {}
    texts = read_sentences(values.input)
    if values.app:
        succeeded = _load_app(values, texts, fields, numbers)
    else:
        succeeded = True
        for protocol, connect in protocols(values.url, values.grpc, values.signature, fields):
            for clients in numbers:
                succeeded &= run_clients(protocol, connect, texts, clients, values.seconds)
    if not succeeded:
        sys.exit(1)


def _parse_clients(clients: list[str]) -> list[int]:
    if not all(number.isdigit() and int(number) > 0 for number in clients):
        raise UsageError(f"--clients={','.join(clients)}: not numbers; use for example 1,8")
    return [int(number) for number in clients]


def _parse_rates(rates: list[str]) -> list[float]:
    with suppress(ValueError):
        found = [float(rate) for rate in rates]
        if all(0 < rate < math.inf for rate in found):
            return found
    raise UsageError(f"--rates={','.join(rates)}: not numbers; use for example 20,40")


def _load_app(values: Any, texts: list[str], fields: dict[str, str], numbers: list[int]) -> bool:
    """Print the results of each load; return True if there were no errors."""
    rates = _parse_rates(values.rates)
    if values.offline:
        import_tensorflow("tensorflow_text")
        for rows in (64, 1):
            rate = offline(values.offline, texts, fields, rows, values.seconds)
            print_result("offline", rows=rows, sentences_per_s=round(rate, 1))
    load = Load(values.app, texts, {"mode": values.mode, **fields})
    errors = 0
    for clients in numbers:
        results = load.closed_loop(clients, values.seconds)
        _print_load("closed", results, values.pid, clients=clients)
        errors += len(results.errors)
    for rate in rates:
        results = load.open_loop(rate, values.seconds)
        _print_load("open", results, values.pid, rate=rate)
        errors += len(results.errors)
    return not errors


def _print_load(task: str, results: LoadResults, pid: int | None, **fields: Any) -> None:
    print_result(
        task,
        **fields,
        seconds=round(results.duration, 1),
        sentences=len(results.answered),
        sentences_per_s=round(len(results.answered) / results.duration, 1),
        **percentiles(results.answered),
        refused=len(results.refused),
        slowest_refusal_ms=round(1000 * max(results.refused, default=0), 1),
        slowest_ms=round(1000 * max(results.answered, default=0), 1),
        errors=dict(results.errors),
        memory_mb=resident_mb(pid),
    )


if __name__ == "__main__":
    run_command(main, FLAGS, __doc__)
