"""Translates over gRPC: the arguments, or the lines of standard input; a line a translation.

    python grpc_client.py "A sentence." "Another one."
    python grpc_client.py --server=127.0.0.1:8500 --model=demo < lines.en > lines.de

Needs `tensorflow-serving-api`, which brings TensorFlow along: it takes seconds to start, and pays
in processes that stay. Exit codes: 0 done, 1 failed, 2 called wrongly.
"""

import argparse
import os
import random
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice

PAUSES = (0.5, 1.0, 2.0, 4.0)
"""Seconds before each further attempt, more or less: many clients must not come back at once."""


class ServerError(Exception):
    """No translation came; the message says why."""


@contextmanager
def silent_stderr() -> Iterator[None]:
    """Nothing reaches descriptor 2: TensorFlow greets there when it is imported."""
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def connect(server: str):
    """A channel to the server, for answers of any length."""
    import grpc

    options = [("grpc.max_receive_message_length", -1)]
    return grpc.insecure_channel(server, options=options)


def translate(channel, model: str, texts: list[str], signature: str, seconds: float) -> list[str]:
    """Asks once for all texts."""
    with silent_stderr():
        from tensorflow.core.framework import tensor_pb2, tensor_shape_pb2, types_pb2
        from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

    request = predict_pb2.PredictRequest()
    request.model_spec.name = model
    request.model_spec.signature_name = signature
    rows = tensor_shape_pb2.TensorShapeProto.Dim(size=len(texts))
    request.inputs["text"].CopyFrom(
        tensor_pb2.TensorProto(
            dtype=types_pb2.DT_STRING,
            tensor_shape=tensor_shape_pb2.TensorShapeProto(dim=[rows]),
            string_val=[text.encode(errors="replace") for text in texts],
        )
    )
    stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
    answer = attempt(stub.Predict, request, seconds)
    if "translation" not in answer.outputs:
        raise ServerError(f"the signature {signature} gives no translation")
    return [text.decode() for text in answer.outputs["translation"].string_val]


def attempt(call, request, seconds: float):
    """Calls, again if nobody is there or the server is busy, not if an answer takes too long."""
    import grpc

    busy = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED}
    for pause in PAUSES:
        try:
            return call(request, timeout=seconds)
        except grpc.RpcError as error:
            if error.code() not in busy:
                raise
        time.sleep(pause * random.uniform(0.5, 1.5))
    return call(request, timeout=seconds)


def batches(lines: Iterable[str], rows: int) -> Iterator[list[str]]:
    """The lines, some at a time."""
    rest = iter(lines)
    while batch := [line.rstrip("\r\n") for line in islice(rest, rows)]:
        yield batch


def one_line(text: str) -> str:
    """A translation without line breaks of its own."""
    return text.replace("\n", " ").replace("\r", " ")


def main() -> None:
    """Translates batch by batch, in order."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("texts", nargs="*", metavar="TEXT")
    parser.add_argument("--server", default="127.0.0.1:8500", metavar="HOST:PORT")
    parser.add_argument("--model", default="demo")
    parser.add_argument("--signature", default="serving_default")
    parser.add_argument("--rows", type=int, default=16, help="sentences a request")
    parser.add_argument("--timeout", type=float, default=30.0, help="seconds for an answer")
    flags = parser.parse_args()
    if flags.rows < 1:
        parser.error("--rows: at least 1")
    if not 0 < flags.timeout < float("inf"):
        parser.error("--timeout: a number of seconds above 0")
    sys.stdin.reconfigure(encoding="utf-8", errors="replace", newline="\n")
    sys.stdout.reconfigure(encoding="utf-8")
    import grpc

    try:
        with connect(flags.server) as channel:
            for texts in batches(flags.texts or sys.stdin, flags.rows):
                for line in translate(channel, flags.model, texts, flags.signature, flags.timeout):
                    print(one_line(line), flush=True)
    except grpc.RpcError as error:
        sys.exit(f"grpc_client.py: {flags.server}: {error.code().name}, {error.details()}")
    except ServerError as error:
        sys.exit(f"grpc_client.py: {flags.server}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # whoever read has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
