"""Clients of a served model, so many at a time, that ask again when their answers are there."""

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import cycle, islice

import requests

from benchmarks.measurement import percentiles, tell
from benchmarks.rest import PATIENCE, Rest
from tfnmt.errors import UserError
from tfnmt.runtime.startup import import_tensorflow

Ask = Callable[[str], object]


@dataclass
class Measured:
    """What a client has seen."""

    seconds: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)


def protocols(
    url: str, grpc: str | None, signature: str
) -> Iterator[tuple[str, Callable[[], Ask]]]:
    """Their names, and what makes a client of each."""
    yield "rest", lambda: _rest_client(url, signature)
    if grpc:
        found = re.search(r"/v1/models/([^/:]+)", url)
        if not found:
            raise UserError(f"--url={url}: names no model")
        yield "grpc", lambda: _grpc_client(grpc, found[1], signature)


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


def load(
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
    tell(
        "load", protocol=protocol, clients=clients, seconds=round(took, 1), sentences=len(times),
        sentences_per_s=round(len(times) / took, 1), **percentiles(times), errors=dict(errors),
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
