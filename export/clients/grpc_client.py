"""Translate the arguments, or the lines of standard input, over gRPC; print one line per text.

    python grpc_client.py "A sentence." "Another one."
    python grpc_client.py --server=127.0.0.1:8500 --model=demo < lines.en > lines.de
    python grpc_client.py --target=de "A sentence."

Requires `tensorflow-serving-api`, which imports TensorFlow. The import takes seconds, so this suits
long-running processes. Exit codes: 0 success, 1 failure, 2 invalid arguments.
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
"""Seconds before each retry, varied at random so that clients do not retry at the same time."""


class ServerError(Exception):
    """The server returned no translation."""


@contextmanager
def silence_stderr() -> Iterator[None]:
    """Discard output to descriptor 2, where TensorFlow writes during its import."""
    saved = os.dup(2)
    null_device = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null_device, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(null_device)


def connect(server: str):
    """Open a channel to the server without a limit on the size of responses."""
    import grpc

    options = [("grpc.max_receive_message_length", -1)]
    return grpc.insecure_channel(server, options=options)


def translate(
    channel, model: str, texts: list[str], signature: str, seconds: float, target: str | None = None
) -> list[str]:
    """Translate texts in one request.

    A model of several directions needs the target language.

    Raises:
        ServerError: The signature does not translate.
        grpc.RpcError: The request failed.
    """
    with silence_stderr():
        from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

    request = predict_pb2.PredictRequest()
    request.model_spec.name = model
    request.model_spec.signature_name = signature
    request.inputs["text"].CopyFrom(tensor(texts))
    if target is not None:
        request.inputs["target"].CopyFrom(tensor([target] * len(texts)))
    stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
    response = call_with_retry(stub.Predict, request, seconds)
    if "translation" not in response.outputs:
        raise ServerError(f"--signature={signature}: has no output named translation")
    return [text.decode() for text in response.outputs["translation"].string_val]


def tensor(texts: list[str]):
    """Return texts as a tensor."""
    from tensorflow.core.framework import tensor_pb2, tensor_shape_pb2, types_pb2

    rows = tensor_shape_pb2.TensorShapeProto.Dim(size=len(texts))
    return tensor_pb2.TensorProto(
        dtype=types_pb2.DT_STRING,
        tensor_shape=tensor_shape_pb2.TensorShapeProto(dim=[rows]),
        string_val=[text.encode(errors="replace") for text in texts],
    )


def call_with_retry(call, request, seconds: float):
    """Send a request; retry if the server is unreachable or busy, but not after a timeout."""
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
    """Yield the lines in batches of `rows`."""
    remaining = iter(lines)
    while batch := [line.rstrip("\r\n") for line in islice(remaining, rows)]:
        yield batch


def one_line(text: str) -> str:
    """Replace line breaks in a translation or an error message."""
    return text.replace("\n", " ").replace("\r", " ")


def open_streams(reads_stdin: bool) -> None:
    """Check the standard streams and set their encoding.

    A closed one is opened on the null device. Otherwise a socket would get its number.
    """
    if sys.stdout is None:
        sys.exit("grpc_client.py: stdout: closed; send it to a file or a pipe")
    if reads_stdin and sys.stdin is None:
        sys.exit("grpc_client.py: stdin: closed; give a TEXT")
    while (null := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(null)
    sys.stdout.reconfigure(encoding="utf-8")
    if reads_stdin:
        sys.stdin.reconfigure(encoding="utf-8", errors="replace", newline="\n")


def discard_stdout() -> None:
    """Redirect stdout to the null device, because Python would fail again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main() -> None:
    """Translate in batches and print the translations in order."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("texts", nargs="*", metavar="TEXT")
    parser.add_argument(
        "--server",
        default="127.0.0.1:8500",
        metavar="HOST:PORT",
        help="address of the server (default: %(default)s)",
    )
    parser.add_argument("--model", default="demo", help="name of the model (default: %(default)s)")
    parser.add_argument(
        "--signature",
        default="serving_default",
        help="signature to call (default: %(default)s)",
    )
    parser.add_argument("--target", help="language to translate to, if the model has several")
    parser.add_argument(
        "--rows", type=int, default=16, help="sentences per request (default: %(default)s)"
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=30.0,
        help="seconds to wait for a response (default: %(default)s)",
    )
    flags = parser.parse_args()
    if flags.rows < 1:
        parser.error("--rows: must be 1 or greater")
    if not 0 < flags.timeout < float("inf"):
        parser.error("--timeout: must be a finite number of seconds greater than 0")
    open_streams(reads_stdin=not flags.texts)
    import grpc

    options = (flags.signature, flags.timeout, flags.target)

    try:
        with connect(flags.server) as channel:
            for texts in batches(flags.texts or sys.stdin, flags.rows):
                for line in translate(channel, flags.model, texts, *options):
                    print(one_line(line), flush=True)
    except grpc.RpcError as error:
        details = one_line(error.details())
        sys.exit(f"grpc_client.py: {flags.server}: {error.code().name}: {details}")
    except ServerError as error:
        sys.exit(f"grpc_client.py: {flags.server}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader has closed the pipe
        discard_stdout()
    except OSError as error:
        discard_stdout()
        sys.exit(f"grpc_client.py: stdin or stdout: {error.strerror}")


if __name__ == "__main__":
    main()
