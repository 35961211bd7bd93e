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
answered. What it refuses in time with 429 or 503 is counted apart. --offline measures, before that
and with TensorFlow's own settings, what the model does in batches of 64 and of one.

--pid names the server's process: its memory is noted at every tenth of an attack, and at the end of
a load. The exit status is 1 if anything is not as it must be.
"""

import base64
import json
import math
import random
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from statistics import quantiles
from typing import Any, NoReturn

import requests
from absl import flags

from benchmarks.load import Load, Seen, offline
from tfnmt.data import toy
from tfnmt.errors import UsageError, UserError
from tfnmt.flags import run as run_command
from tfnmt.progress import say
from tfnmt.quiet import import_tensorflow

Ask = Callable[[str], object]

PATIENCE = 120.0
"""Seconds for an answer: longer than any server's own limit."""

ROWS = 16
"""Hostile texts in a request, at most."""

LONGEST = 20_000
"""Characters of a hostile text, at most."""

PAIR = ("text", "translation")
"""Inputs that can be filled with any text; signatures of others are left out."""

FLAGS = flags.FlagValues()
flags.DEFINE_string("url", None, "the model's REST address", flag_values=FLAGS)
flags.DEFINE_string("grpc", None, "the server's gRPC host:port", flag_values=FLAGS)
flags.DEFINE_string("signature", "serving_default", "what is put under load", flag_values=FLAGS)
flags.DEFINE_string("input", None, "sentences, one a line (default: the toy's)", flag_values=FLAGS)
flags.DEFINE_float("seconds", 10, "how long a load lasts", lower_bound=0.1, flag_values=FLAGS)
flags.DEFINE_list("clients", ["1", "8"], "numbers of clients, one by one", flag_values=FLAGS)
flags.DEFINE_string("app", None, "the web application's address", flag_values=FLAGS)
flags.DEFINE_string("mode", "beam", "what the application is asked for", flag_values=FLAGS)
flags.DEFINE_list("rates", [], "requests a second, one by one", flag_values=FLAGS)
flags.DEFINE_string("offline", None, "a version's folder, measured first", flag_values=FLAGS)
flags.DEFINE_integer("hostile", 0, "hostile texts to send", lower_bound=0, flag_values=FLAGS)
flags.DEFINE_integer("seed", 1, "decides the hostile texts", flag_values=FLAGS)
flags.DEFINE_integer("pid", None, "the server's process, to watch its memory", flag_values=FLAGS)


@dataclass
class Measured:
    """What a client has seen."""

    seconds: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)


class Rest:
    """A model behind REST, over connections that stay open; one a thread."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self.session = requests.Session()

    def signatures(self) -> dict[str, set[str]]:
        """The names of those that take texts, with their inputs."""
        try:
            answer = self.session.get(f"{self.url}/metadata", timeout=PATIENCE)
            answer.raise_for_status()
        except requests.RequestException as error:
            raise UserError(f"{self.url}: {error}") from error
        found = answer.json()["metadata"]["signature_def"]["signature_def"]
        inputs = {name: set(signature["inputs"]) for name, signature in found.items()}
        return {
            name: names for name, names in sorted(inputs.items()) if {"text"} <= names <= {*PAIR}
        }

    def post(self, signature: str, form: dict[str, Any]) -> requests.Response:
        """Asks; the form is `instances`, rows, or `inputs`, columns."""
        request = {"signature_name": signature, **form}
        return self.session.post(f"{self.url}:predict", json=request, timeout=PATIENCE)

    def predict(self, signature: str, form: dict[str, Any]) -> Any:
        """What came, without its key."""
        answer = self.post(signature, form)
        answer.raise_for_status()
        (content,) = answer.json().values()
        return content


def main(values: Any, positional: list[str]) -> None:
    """Checks the contract, then loads or attacks."""
    if positional or not (values.url or values.app):
        raise UsageError(
            "--url: missing; give the model's, as http://127.0.0.1:8501/v1/models/demo, or --app"
        )
    numbers = _numbers(values.clients)
    texts = _texts(values.input)
    if values.app:
        _load_app(values, texts, numbers)
        return
    right = _check_contract(Rest(values.url), texts[:3])
    if values.hostile:
        right &= _attack(Rest(values.url), values.hostile, random.Random(values.seed), values.pid)
    else:
        for protocol, connect in _protocols(values):
            for clients in numbers:
                right &= _load(protocol, connect, texts, clients, values.seconds)
    if not right:
        sys.exit(1)


def _numbers(clients: list[str]) -> list[int]:
    if not all(number.isdigit() and int(number) > 0 for number in clients):
        raise UsageError(f"--clients={','.join(clients)}: not numbers; try 1,8")
    return [int(number) for number in clients]


def _texts(path: str | None) -> list[str]:
    if path is None:
        return [source for source, _ in islice(toy.pairs("test"), 500)]
    try:
        texts = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: {error}") from error
    return texts or _fail(f"{path}: empty; give sentences, one a line")


def _fail(problem: str) -> NoReturn:
    raise UserError(problem)


# The contract.


def _check_contract(rest: Rest, texts: list[str]) -> bool:
    """Whether every signature answers, the same in rows and in columns; prints a line each."""
    verdicts = [_check_signature(rest, *one, texts) for one in rest.signatures().items()]
    return bool(verdicts) and all(verdicts)  # all are asked, whatever the first gives


def _check_signature(rest: Rest, name: str, inputs: set[str], texts: list[str]) -> bool:
    columns = dict.fromkeys(inputs, texts)
    instances = [dict.fromkeys(inputs, text) for text in texts]
    try:
        by_rows = rest.predict(name, {"instances": instances})
        by_columns = rest.predict(name, {"inputs": columns})
    except (requests.RequestException, ValueError) as error:
        _print("contract", signature=name, right=False, error=str(error))
        return False
    if isinstance(by_columns, dict):
        rows = [
            dict(zip(by_columns, row, strict=True))
            for row in zip(*by_columns.values(), strict=True)
        ]
    else:
        rows = by_columns
    right = len(rows) == len(texts) and _same(by_rows, rows)
    _print("contract", signature=name, right=right)
    return right


def _same(one: Any, other: Any) -> bool:
    """Equal, numbers nearly."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-4, abs_tol=1e-4)
    return bool(one == other)


# Load.


def _protocols(values: Any) -> Iterator[tuple[str, Callable[[], Ask]]]:
    """Their names, and what makes a client of each."""
    yield "rest", lambda: _rest_client(values.url, values.signature)
    if values.grpc:
        found = re.search(r"/v1/models/([^/:]+)", values.url)
        model = found[1] if found else _fail(f"--url={values.url}: names no model")
        yield "grpc", lambda: _grpc_client(values.grpc, model, values.signature)


def _rest_client(url: str, signature: str) -> Ask:
    rest = Rest(url)
    return lambda text: rest.predict(signature, {"instances": [{"text": text}]})


def _grpc_client(server: str, model: str, signature: str) -> Ask:
    import_tensorflow("tensorflow_serving.apis.prediction_service_pb2_grpc")  # which needs it
    import grpc  # type: ignore[import-untyped]
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

    # Else all channels of a process share one connection.
    channel = grpc.insecure_channel(server, options=[("grpc.use_local_subchannel_pool", 1)])
    stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)

    def ask(text: str) -> object:
        request = predict_pb2.PredictRequest()
        request.model_spec.name = model
        request.model_spec.signature_name = signature
        request.inputs["text"].CopyFrom(tf.make_tensor_proto([text]))
        return stub.Predict(request, timeout=PATIENCE)

    return ask


def _load(
    protocol: str, connect: Callable[[], Ask], texts: list[str], clients: int, seconds: float
) -> bool:
    """Prints what so many clients see; whether all was answered."""
    everyone = [Measured() for _ in range(clients)]
    asks = [connect() for _ in range(clients)]
    for ask in asks:  # connects
        _time(ask, texts[0], Measured())
    begun = time.monotonic()
    threads = [
        threading.Thread(
            target=_ask_on, args=(ask, islice(cycle(texts), start, None), measured, begun + seconds)
        )
        for start, (ask, measured) in enumerate(zip(asks, everyone, strict=True))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.monotonic() - begun
    times = [one for measured in everyone for one in measured.seconds]
    errors = sum((measured.errors for measured in everyone), Counter())
    _print(
        "load", protocol=protocol, clients=clients, seconds=round(took, 1), sentences=len(times),
        sentences_per_s=round(len(times) / took, 1), **_percentiles(times), errors=dict(errors),
    )  # fmt: skip
    return bool(times) and not errors


def _ask_on(ask: Ask, texts: Iterable[str], measured: Measured, end: float) -> None:
    """Asks for one text after the other until the time is up."""
    for text in texts:
        if time.monotonic() >= end:
            return
        _time(ask, text, measured)


def _time(ask: Ask, text: str, measured: Measured) -> None:
    begun = time.perf_counter()
    try:
        ask(text)
    except Exception as error:
        measured.errors[_kind(error)] += 1
        time.sleep(0.1)  # a server that refuses must not be asked the faster for it
    else:
        measured.seconds.append(time.perf_counter() - begun)


def _kind(error: Exception) -> str:
    """An HTTP status, a gRPC code, or what else went wrong."""
    if isinstance(error, requests.HTTPError):
        return str(error.response.status_code)
    code = getattr(error, "code", None)
    return str(code().name) if callable(code) else type(error).__name__


def _percentiles(times: list[float]) -> dict[str, float]:
    """In milliseconds."""
    if len(times) < 2:
        return {}
    cuts = quantiles(times, n=100, method="inclusive")
    return {f"p{n}_ms": round(1000 * cuts[n - 1], 1) for n in (50, 95, 99)}


# The web application.


def _load_app(values: Any, texts: list[str], numbers: list[int]) -> None:
    """Prints what the application's clients see."""
    if values.offline:
        import_tensorflow("tensorflow_text")
        for rows in (64, 1):
            rate = offline(values.offline, texts, rows, values.seconds)
            _print("offline", rows=rows, sentences_per_s=round(rate, 1))
    load = Load(values.app, texts, {"mode": values.mode})
    for clients in numbers:
        seen = load.closed(clients, values.seconds)
        _print_seen("closed", seen, values.pid, clients=clients)
    for rate in map(float, values.rates):
        _print_seen("open", load.open(rate, values.seconds), values.pid, rate=rate)


def _print_seen(task: str, seen: Seen, pid: int | None, **fields: Any) -> None:
    _print(
        task, **fields, seconds=round(seen.took, 1), sentences=len(seen.answered),
        sentences_per_s=round(len(seen.answered) / seen.took, 1), **_percentiles(seen.answered),
        refused=len(seen.refused), slowest_refusal_ms=round(1000 * max(seen.refused, default=0), 1),
        slowest_ms=round(1000 * max(seen.answered, default=0), 1),
        errors=dict(seen.errors), memory_mb=_memory(pid),
    )  # fmt: skip


# Attack.

ALPHABETS = "".join(
    "".join(map(chr, range(first, first + count)))
    for first, count in (
        (0x20, 95), (0xA0, 96), (0x300, 112), (0x391, 57), (0x410, 64), (0x5D0, 27), (0x620, 90),
        (0x904, 100), (0xE01, 58), (0x1100, 200), (0x2000, 112), (0x3041, 86), (0x4E00, 500),
        (0xAC00, 500), (0xFE00, 16), (0xFF01, 94), (0x1F300, 500), (0x1F1E6, 26), (0x20000, 100),
        (0xE0020, 96),
    )
)  # fmt: skip
"""Letters, marks, signs and joiners of many scripts, up to the highest planes."""

CONTROLS = "".join(map(chr, [*range(0x20), *range(0x7F, 0xA0), 0xFEFF, 0xFFFE, 0xFFFF, 0x202E]))

MARKS = [
    "<s>",
    "</s>",
    "<pad>",
    "<unk>",
    "<0x00>",
    "<0xFF>",
    "▁",
    "\\u0000",
    '"]}',
    "%s",
    "{{",
    "\ufffd",
]


def _bytes(draw: random.Random) -> Any:
    content = draw.randbytes(draw.randint(0, 300))
    return {"b64": base64.b64encode(content).decode("ascii")}


def _huge(draw: random.Random) -> Any:
    length = draw.randint(LONGEST // 2, LONGEST)
    pattern = draw.choice(["a", "word ", "。", "😀", "Ab1-", "\u0301", "x" * 999 + " "])
    return (pattern * length)[:length]


def _empty(draw: random.Random) -> Any:
    return draw.choice(["", " ", "\n", "\t\t", "\u00a0", "\u3000 ", "\u200b", {"b64": ""}])


def _scripts(draw: random.Random) -> Any:
    return "".join(draw.choices(ALPHABETS, k=draw.randint(1, 300)))


def _controls(draw: random.Random) -> Any:
    return "".join(draw.choices(CONTROLS + "ab ", k=draw.randint(1, 100)))


def _marks(draw: random.Random) -> Any:
    return "".join(draw.choices([*MARKS, " ", "word"], k=draw.randint(1, 30)))


def _surrogates(draw: random.Random) -> Any:
    broken = chr(draw.randint(0xD800, 0xDFFF))
    return f"{_marks(draw)}{broken}{_marks(draw)}"


HOSTILE = (_bytes, _empty, _scripts, _controls, _marks, _bytes, _scripts, _controls, _marks, _huge)


def _attack(rest: Rest, total: int, draw: random.Random, pid: int | None) -> bool:
    """Sends hostile texts, and prints what came of them; whether all was right."""
    signatures = cycle(rest.signatures().items())
    verdicts: Counter[str] = Counter()
    wrong: list[str] = []
    memory = [_memory(pid)]
    sent = 0
    begun = time.monotonic()
    while sent < total:
        name, inputs = next(signatures)
        rows = min(draw.randint(1, ROWS), total - sent)
        broken = draw.random() < 0.1
        kinds = [_surrogates] if broken else HOSTILE
        instances = [{alias: draw.choice(kinds)(draw) for alias in inputs} for _ in range(rows)]
        verdict = _judge(rest, name, instances, broken)
        verdicts[verdict.partition(":")[0]] += 1
        wrong += [f"{name}: {verdict}"] if verdict not in ("answered", "refused") else []
        sent += rows
        if sent * 10 // total >= len(memory):
            memory.append(_memory(pid))
            say(f"{sent:,} of {total:,} texts" + (f", {memory[-1]:,} MB" if pid else ""))
    _print(
        "hostile", texts=sent, requests=sum(verdicts.values()), **verdicts, wrong=wrong[:5],
        seconds=round(time.monotonic() - begun, 1), memory_mb=memory if pid else None,
    )  # fmt: skip
    return not wrong


def _judge(rest: Rest, name: str, instances: list[dict[str, Any]], broken: bool) -> str:
    """`answered`, `refused` where that is right, or what is wrong."""
    try:
        answer = rest.post(name, {"instances": instances})
    except requests.RequestException as error:
        return f"lost: {error}"
    if answer.status_code == 400 and broken:
        return "refused"
    if answer.status_code != 200:
        return f"failed: {answer.status_code}, {answer.text[:200]}"
    try:
        text = answer.content.decode("utf-8")
        predictions = json.loads(text, parse_constant=_fail)["predictions"]
    except (ValueError, UserError) as error:
        return f"invalid: {error}"
    return "answered" if len(predictions) == len(instances) else "invalid: rows are missing"


def _memory(pid: int | None) -> int | None:
    """The resident memory of a process in MB; None of no process."""
    if pid is None:
        return None
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return _fail(f"--pid={pid}: no such process, or it has ended")
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    return int(found[1]) // 1024 if found else None


def _print(task: str, **fields: Any) -> None:
    print(json.dumps({"task": f"serving.{task}", **fields}), flush=True)


if __name__ == "__main__":
    run_command(main, FLAGS, __doc__)
