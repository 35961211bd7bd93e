"""A served model under load, or under attack.

    python -m benchmarks.serving --url=http://127.0.0.1:8501/v1/models/demo
        [--grpc=127.0.0.1:8500] [--signature=greedy] [--input=F] [--seconds=10] [--clients=1,8]
    python -m benchmarks.serving --url=... --hostile=10000 [--seed=1] [--pid=N]
    python -m benchmarks.serving --app=http://127.0.0.1:8080 [--mode=greedy] [--clients=1,8]
        [--rates=20,40] [--offline=EXPORT_VERSION] [--input=F] [--seconds=10] [--pid=N]

First every signature of texts is asked in rows and in columns: both must give the same. Then so
many clients at a time send a sentence each, the next one when the answer is there: one JSON line a
number of clients, over REST and, with --grpc, over gRPC. Clients and server share the machine if
they are on the same one.

With --hostile so many texts of the worst kinds are sent instead, some in a request, to each
signature in turn. All must be answered, as valid UTF-8 with finite numbers; only a broken surrogate
pair may be refused.

With --app the web application is put under load: by clients that wait for their answers, so many
at a time, then by requests that come at random, so many a second, whether or not others are
answered. What it refuses in time with 429 or 503 is counted apart. Start it with --cache=0: the
sentences come again when all were sent, and then it is the cache that answers. --offline measures,
before that and with TensorFlow's own settings, what the model does in batches of 64 and of one.

--pid names the server's process: its memory is noted at every tenth of an attack, and at the end of
a load. The exit status is 1 if anything is not as it must be.
"""

import math
import random
import sys
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from absl import flags

from benchmarks.clients import load, protocols
from benchmarks.load import Load, Seen, offline
from benchmarks.measurement import percentiles, resident, tell
from benchmarks.rest import Rest
from tests.soak.contract import keeps_contract
from tests.soak.hostile_inputs import attack
from tfnmt.cli import run as run_command
from tfnmt.data.corpora.text_files import read_lines
from tfnmt.data.corpora.toy import grammar
from tfnmt.errors import UsageError, UserError
from tfnmt.runtime.startup import import_tensorflow

FLAGS = flags.FlagValues()
flags.DEFINE_string("url", None, "the model's REST address", flag_values=FLAGS)
flags.DEFINE_string("grpc", None, "the server's gRPC host:port", flag_values=FLAGS)
flags.DEFINE_string("signature", "serving_default", "what is put under load", flag_values=FLAGS)
flags.DEFINE_string(
    "input", None, "sentences, one per line (default: the toy's)", flag_values=FLAGS
)
flags.DEFINE_float("seconds", 10, "how long a load lasts", lower_bound=0.1, flag_values=FLAGS)
flags.DEFINE_list("clients", ["1", "8"], "numbers of clients, one by one", flag_values=FLAGS)
flags.DEFINE_string("app", None, "the web application's address", flag_values=FLAGS)
flags.DEFINE_string("mode", "beam", "what the application is asked for", flag_values=FLAGS)
flags.DEFINE_list("rates", [], "requests a second, one by one", flag_values=FLAGS)
flags.DEFINE_string("offline", None, "a version's folder, measured first", flag_values=FLAGS)
flags.DEFINE_integer("hostile", 0, "hostile texts to send", lower_bound=0, flag_values=FLAGS)
flags.DEFINE_integer("seed", 1, "decides the hostile texts", flag_values=FLAGS)
flags.DEFINE_integer("pid", None, "the server's process, to watch its memory", flag_values=FLAGS)


def main(values: Any, positional: list[str]) -> None:
    """Checks the contract, then loads or attacks."""
    if positional or bool(values.url) == bool(values.app):
        raise UsageError(
            "--url or --app: give one; a model's, as http://127.0.0.1:8501/v1/models/demo, or the "
            "web application's"
        )
    if values.app and values.hostile:
        raise UsageError("--hostile: goes with --url")
    numbers = _numbers(values.clients)
    texts = _texts(values.input)
    if values.app:
        right = _load_app(values, texts, numbers, _rates(values.rates))
    elif not keeps_contract(Rest(values.url), texts[:3]):
        right = False
    elif values.hostile:
        right = attack(Rest(values.url), values.hostile, random.Random(values.seed), values.pid)
    else:
        right = True
        for protocol, connect in protocols(values.url, values.grpc, values.signature):
            for clients in numbers:
                right &= load(protocol, connect, texts, clients, values.seconds)
    if not right:
        sys.exit(1)


def _numbers(clients: list[str]) -> list[int]:
    if not all(number.isdigit() and int(number) > 0 for number in clients):
        raise UsageError(f"--clients={','.join(clients)}: not numbers; try 1,8")
    return [int(number) for number in clients]


def _rates(rates: list[str]) -> list[float]:
    with suppress(ValueError):
        found = [float(rate) for rate in rates]
        if all(0 < rate < math.inf for rate in found):
            return found
    raise UsageError(f"--rates={','.join(rates)}: not numbers; try 20,40")


def _texts(path: str | None) -> list[str]:
    if path is None:
        return [source for source, _ in islice(grammar.pairs("test"), 500)]
    texts = list(read_lines(Path(path)))
    if not texts:
        raise UserError(f"{path}: empty; give sentences, one per line")
    return texts


def _load_app(values: Any, texts: list[str], numbers: list[int], rates: list[float]) -> bool:
    """Prints what the application's clients see; whether none of them saw an error."""
    if values.offline:
        import_tensorflow("tensorflow_text")
        for rows in (64, 1):
            rate = offline(values.offline, texts, rows, values.seconds)
            tell("offline", rows=rows, sentences_per_s=round(rate, 1))
    crowd = Load(values.app, texts, {"mode": values.mode})
    errors = 0
    for clients in numbers:
        seen = crowd.closed(clients, values.seconds)
        _tell_seen("closed", seen, values.pid, clients=clients)
        errors += len(seen.errors)
    for rate in rates:
        seen = crowd.open(rate, values.seconds)
        _tell_seen("open", seen, values.pid, rate=rate)
        errors += len(seen.errors)
    return not errors


def _tell_seen(task: str, seen: Seen, pid: int | None, **fields: Any) -> None:
    tell(
        task, **fields, seconds=round(seen.took, 1), sentences=len(seen.answered),
        sentences_per_s=round(len(seen.answered) / seen.took, 1), **percentiles(seen.answered),
        refused=len(seen.refused), slowest_refusal_ms=round(1000 * max(seen.refused, default=0), 1),
        slowest_ms=round(1000 * max(seen.answered, default=0), 1),
        errors=dict(seen.errors), memory_mb=resident(pid),
    )  # fmt: skip


if __name__ == "__main__":
    run_command(main, FLAGS, __doc__)
