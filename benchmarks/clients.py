"""Load on a served model: several clients, each of which sends one request at a time."""

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import cycle, islice

import requests

from benchmarks.measurement import percentiles, print_result
from benchmarks.rest import TIMEOUT_SECONDS, RestClient
from tfnmt.errors import UserError
from tfnmt.runtime.startup import import_tensorflow

Translate = Callable[[str], object]


@dataclass
class ClientResults:
    """Response times and errors of one client."""

    seconds: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)


def protocols(
    url: str, grpc: str | None, signature: str, fields: Mapping[str, str]
) -> Iterator[tuple[str, Callable[[], Translate]]]:
    """Yield the name of each protocol, with a function that connects a client.

    Args:
        url: REST address of the model.
        grpc: host:port of the server's gRPC endpoint; None measures REST only.
        signature: Name of the signature.
        fields: Further inputs of each text.

    Raises:
        UserError: `grpc` is given and `url` does not contain the name of the model.
    """
    yield "rest", lambda: _rest_client(url, signature, fields)
    if grpc:
        found = re.search(r"/v1/models/([^/:]+)", url)
        if not found:
            raise UserError(f"--url={url}: no model name; use http://HOST:PORT/v1/models/NAME")
        yield "grpc", lambda: _grpc_client(grpc, found[1], signature, fields)


def _rest_client(url: str, signature: str, fields: Mapping[str, str]) -> Translate:
    rest = RestClient(url)
    return lambda text: rest.predict(signature, {"instances": [{"text": text, **fields}]})


def _grpc_client(server: str, model: str, signature: str, fields: Mapping[str, str]) -> Translate:
    # The generated modules import TensorFlow, so import it first with its log settings.
    import_tensorflow("tensorflow_serving.apis.prediction_service_pb2_grpc")
    import grpc  # type: ignore[import-untyped]
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

    # By default, all channels of a process share one connection.
    channel = grpc.insecure_channel(server, options=[("grpc.use_local_subchannel_pool", 1)])
    stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)

    def translate(text: str) -> object:
        request = predict_pb2.PredictRequest()
        request.model_spec.name = model
        request.model_spec.signature_name = signature
        for name, value in {"text": text, **fields}.items():
            request.inputs[name].CopyFrom(tf.make_tensor_proto([value]))
        return stub.Predict(request, timeout=TIMEOUT_SECONDS)

    return translate


def run_clients(
    protocol: str,
    connect: Callable[[], Translate],
    texts: list[str],
    clients: int,
    seconds: float,
) -> bool:
    """Run clients in parallel and print their throughput and latency.

    Args:
        protocol: Name to print.
        connect: Connects one client.
        texts: Sentences to send, repeated as often as needed.
        clients: Number of clients.
        seconds: Duration.

    Returns:
        True if there were responses and no errors.
    """
    results = [ClientResults() for _ in range(clients)]
    connected = [connect() for _ in range(clients)]
    for translate in connected:  # the first request opens the connection
        _send(translate, texts[0], ClientResults())
    start = time.monotonic()
    threads = [
        threading.Thread(
            target=_send_until,
            args=(translate, islice(cycle(texts), first, None), result, start + seconds),
        )
        for first, (translate, result) in enumerate(zip(connected, results, strict=True))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    duration = time.monotonic() - start
    times = [one for result in results for one in result.seconds]
    errors = sum((result.errors for result in results), Counter())
    print_result(
        "load",
        protocol=protocol,
        clients=clients,
        seconds=round(duration, 1),
        sentences=len(times),
        sentences_per_s=round(len(times) / duration, 1),
        **percentiles(times),
        errors=dict(errors),
    )
    return bool(times) and not errors


def _send_until(
    translate: Translate, texts: Iterable[str], results: ClientResults, end: float
) -> None:
    """Send one text after the other until `end`."""
    for text in texts:
        if time.monotonic() >= end:
            return
        _send(translate, text, results)


def _send(translate: Translate, text: str, results: ClientResults) -> None:
    start = time.perf_counter()
    try:
        translate(text)
    except Exception as error:
        results.errors[_error_name(error)] += 1
        time.sleep(0.1)  # an immediate retry would raise the load on a server that refuses
    else:
        results.seconds.append(time.perf_counter() - start)


def _error_name(error: Exception) -> str:
    """Return the HTTP status, the gRPC code or the type of an error."""
    if isinstance(error, requests.HTTPError):
        return str(error.response.status_code)
    code = getattr(error, "code", None)
    return str(code().name) if callable(code) else type(error).__name__
