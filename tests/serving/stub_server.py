"""A stub server with the REST and gRPC interfaces of TensorFlow Serving.

    stub_server.py --model=DIR [--name=demo] [--host=127.0.0.1] [--rest_port=0] [--grpc_port=0]
        [--label=stable=1] [--rest_api_timeout_in_ms=30000] [--enable_model_warmup=true]
        [--file_system_poll_wait_seconds=0]

For tests, and for development where TensorFlow Serving cannot run. Not for production. DIR is a
model base path. The stub server prints its ports as a line of JSON when all versions are loaded.

Like TensorFlow Serving, it runs the signatures of a SavedModel in a session of TensorFlow 1 and
handles requests in parallel. Paths, shapes, status codes and messages are those of TensorFlow
Serving. It does not merge requests into batches. With --file_system_poll_wait_seconds, it replaces
its versions by the highest whenever that changes.
"""

import argparse
import base64
import binascii
import json
import os
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NoReturn

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import grpc
import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  registers its operations
from google.protobuf.json_format import MessageToDict
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_log_pb2,
    prediction_service_pb2_grpc,
)

Code = grpc.StatusCode
Arrays = dict[str, np.ndarray]

DEFAULT_SIGNATURE = "serving_default"
WARMUP = Path("assets.extra") / "tf_serving_warmup_requests"
METRICS = "/monitoring/prometheus/metrics"
SIGNATURE_DEF = "signature_def"

PREDICT_PATH = re.compile(
    r"/v1/models/([^/:]+)(?:/versions/(\d+)|/labels/([^/:]+))?:(classify|regress|predict)", re.I
)
MODEL_PATH = re.compile(
    r"/v1/models(?:/([^/:]+))?(?:/versions/(\d+)|/labels/([^/:]+))?(?:/(metadata))?", re.I
)

CODES = {code.value[0]: code for code in Code}
HTTP_STATUS = {
    Code.INVALID_ARGUMENT: 400,
    Code.FAILED_PRECONDITION: 400,
    Code.OUT_OF_RANGE: 400,
    Code.NOT_FOUND: 404,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.CANCELLED: 499,
    Code.UNIMPLEMENTED: 501,
    Code.UNAVAILABLE: 503,
    Code.DEADLINE_EXCEEDED: 504,
}
"""HTTP status of each code. All other codes give 500."""

FIELDS = {
    tf.string: "string_val",
    tf.float32: "float_val",
    tf.int32: "int_val",
    tf.int64: "int64_val",
    tf.bool: "bool_val",
}
"""The field of a TensorProto with the values. The server does not send them as packed bytes."""

JSON_TYPES = {
    tf.string: str,
    tf.float32: (int, float),
    tf.int32: int,
    tf.int64: int,
    tf.bool: bool,
}


class RefusedError(Exception):
    """A request that the server refuses, with its code and message."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


def refuse(message: str, code: Code = Code.INVALID_ARGUMENT) -> NoReturn:
    """Raise a RefusedError."""
    raise RefusedError(code, message)


class Version:
    """A version of a model: a SavedModel in a session."""

    def __init__(self, path: Path, warm_up: bool) -> None:
        self.session = tf.compat.v1.Session(graph=tf.Graph())
        with self.session.graph.as_default():
            loaded = tf.compat.v1.saved_model.load(self.session, ["serve"], str(path))
        self.signatures = loaded.signature_def
        if warm_up and (path / WARMUP).exists():
            self._warm_up(path / WARMUP)

    def run(self, name: str, inputs: Arrays, wanted: list[str], seconds: float | None) -> Arrays:
        """Return the wanted outputs of a signature, or all if none is named."""
        signature = self.signatures[name]
        _check_names(set(inputs), set(signature.inputs))
        for alias, info in signature.inputs.items():
            _check_type(alias, inputs[alias], tf.as_dtype(info.dtype))
        outputs = {alias: signature.outputs[alias].name for alias in wanted or signature.outputs}
        feeds = {signature.inputs[alias].name: array for alias, array in inputs.items()}
        options = tf.compat.v1.RunOptions(timeout_in_ms=int(1000 * (seconds or 0)))
        try:
            return self.session.run(outputs, feeds, options=options)
        except tf.errors.OpError as error:
            raise RefusedError(CODES[error.error_code], error.message) from error
        except ValueError as error:  # wrong rank
            raise RefusedError(Code.INVALID_ARGUMENT, str(error)) from error

    def _warm_up(self, path: Path) -> None:
        """Run the warm-up requests. As in the server, a request that fails prevents the load."""
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            log = prediction_log_pb2.PredictionLog.FromString(record)
            request = log.predict_log.request
            name = request.model_spec.signature_name or DEFAULT_SIGNATURE
            self.run(name, from_protos(request.inputs), [], None)


def _check_names(given: set[str], expected: set[str]) -> None:
    if given != expected:
        refuse(
            f"input size does not match signature: {len(given)}!={len(expected)}. Sent extra: "
            f"{sorted(given - expected)}. Missing but required: {sorted(expected - given)}."
        )


def _check_type(name: str, given: np.ndarray, expected: Any) -> None:
    if tf.as_dtype(given.dtype) != expected:
        refuse(f"Expects {name} to be {expected.name} but {given.dtype.name} is provided")


@dataclass
class Model:
    """The versions of a model, with their labels and the number of requests by outcome."""

    name: str
    versions: dict[int, Version]
    labels: dict[str, int]
    seconds: float
    requests: Counter[str] = field(default_factory=Counter)

    def find(self, spec: model_pb2.ModelSpec) -> tuple[int, Version]:
        """Return the version that a request selects, with its number."""
        number: int | None = None
        if spec.HasField("version_label"):
            number = self.labels.get(spec.version_label)
            if number is None:
                refuse(f"Unrecognized servable version label: {spec.version_label}")
        elif spec.HasField("version"):
            number = spec.version.value
        selected = f"Latest({spec.name})" if number is None else f"Specific({spec.name}, {number})"
        number = max(self.versions) if number is None else number
        if spec.name != self.name or number not in self.versions:
            refuse(f"Servable not found for request: {selected}", Code.NOT_FOUND)
        return number, self.versions[number]

    def status(self, spec: model_pb2.ModelSpec) -> get_model_status_pb2.GetModelStatusResponse:
        """Return the status of the loaded versions."""
        numbers = sorted(self.versions, reverse=True) if spec.name == self.name else []
        if spec.HasField("version"):
            number = spec.version.value
            if number not in numbers:
                refuse(f"Could not find version {number} of model {spec.name}", Code.NOT_FOUND)
            numbers = [number]
        if not numbers:
            refuse(f"Could not find any versions of model {spec.name}", Code.NOT_FOUND)
        response = get_model_status_pb2.GetModelStatusResponse()
        for number in numbers:
            status = response.model_version_status.add(version=number, state="AVAILABLE")
            status.status.SetInParent()
        return response

    def signature_map(
        self, spec: model_pb2.ModelSpec
    ) -> tuple[model_pb2.ModelSpec, get_model_metadata_pb2.SignatureDefMap]:
        """Return the specification of the selected version, and its signatures."""
        number, version = self.find(spec)
        found = get_model_metadata_pb2.SignatureDefMap()
        for name, signature in version.signatures.items():
            found.signature_def[name].CopyFrom(signature)
        return model_pb2.ModelSpec(name=self.name, version={"value": number}), found


# --- JSON -----------------------------------------------------------------------------------------


def parse(body: bytes) -> dict[str, Any]:
    """Return the JSON object at the start of a body. Bytes that are not UTF-8 become surrogates."""
    if not body:
        refuse("JSON Parse error: The document is empty")
    try:
        text = body.decode("utf-8", "surrogateescape").lstrip()
        document, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError) as error:
        refuse(f"JSON Parse error: {error}")
    if not isinstance(document, dict):
        refuse(f"JSON Value: {_shown(document)} Is not object")
    return document


def inputs_from_json(document: dict[str, Any], infos: Any) -> tuple[Arrays, bool]:
    """Return the inputs of a request, and whether they are in rows (`instances`)."""
    if "instances" in document and "inputs" in document:
        refuse("Not formatted correctly expecting only one of 'inputs' or 'instances' keys")
    if "instances" in document:
        return _from_rows(document["instances"], infos), True
    if "inputs" in document:
        return _from_columns(document["inputs"], infos), False
    return refuse("Missing 'inputs' or 'instances' key")


def _from_rows(rows: Any, infos: Any) -> Arrays:
    if not isinstance(rows, list):
        refuse("Expecting 'instances' to be an list/array")
    if not rows:
        refuse("No values in 'instances' array")
    if not _is_named(rows[0]):
        if len(infos) > 1:
            refuse("instances is a plain list, but expecting list of objects")
        rows = [{next(iter(infos)): row} for row in rows]
    for number, row in enumerate(rows):
        if not _is_named(row):
            refuse(f"Expecting object but got list at item {number} of input list")
        if set(row) != set(infos):
            refuse(
                f"Failed to process element: {number} of 'instances' list. JSON object: "
                f"{_shown(row)} keys must be equal to: {','.join(sorted(infos))}"
            )
    return {name: array([row[name] for row in rows], infos[name]) for name in infos}


def _from_columns(columns: Any, infos: Any) -> Arrays:
    if not _is_named(columns):
        if len(infos) > 1:
            refuse("inputs is a plain value/list, but expecting an object")
        columns = {next(iter(infos)): columns}
    for name in infos:
        if name not in columns:
            refuse(f"Missing named input: {name} in 'inputs' object.")
    return {name: array(columns[name], infos[name]) for name in infos}


def _is_named(value: Any) -> bool:
    """Return whether a value is an object of inputs, not a base64 string."""
    return isinstance(value, dict) and not _is_base64(value)


def _is_base64(value: Any) -> bool:
    return isinstance(value, dict) and set(value) == {"b64"} and isinstance(value["b64"], str)


def array(value: Any, info: Any) -> np.ndarray:
    """Convert nested lists of equal lengths to an array of the type of an input."""
    dtype = tf.as_dtype(info.dtype)
    shape = []
    inner = value
    while isinstance(inner, list):
        shape.append(len(inner))
        inner = inner[0] if inner else None
    leaves = [_leaf(leaf, dtype) for leaf in _leaves(value, shape)]
    try:
        return np.array(leaves, dtype.as_numpy_dtype).reshape(shape)
    except OverflowError as error:
        refuse(str(error))


def _leaves(value: Any, shape: list[int]) -> Iterator[Any]:
    if isinstance(value, list) != bool(shape):
        refuse(f"JSON Value: {_shown(value)} found at incorrect level in the JSON DOM")
    if not shape:
        yield value
        return
    if len(value) != shape[0]:
        refuse(f"Encountered list at unexpected size: {len(value)} expected size: {shape[0]}")
    for part in value:
        yield from _leaves(part, shape[1:])


def _leaf(value: Any, dtype: Any) -> Any:
    if dtype == tf.string and isinstance(value, dict):
        return _from_base64(value)
    if not isinstance(value, JSON_TYPES[dtype]) or (isinstance(value, bool) and dtype != tf.bool):
        refuse(f"JSON Value: {_shown(value)} is not of expected type: {dtype.name}")
    return _bytes(value) if dtype == tf.string else value


def _from_base64(value: dict[str, Any]) -> bytes:
    if not _is_base64(value):
        refuse(f"JSON Value: {_shown(value)} not formatted correctly for base64 data")
    try:
        return base64.b64decode(value["b64"], validate=True)
    except (binascii.Error, ValueError):
        return refuse("Unable to base64 decode")


def _bytes(text: str) -> bytes:
    """Return the bytes of a JSON string.

    The parser of TensorFlow Serving refuses a high surrogate without a low one. It accepts a lone
    low surrogate as three bytes, which are not UTF-8.
    """
    if any("\ud800" <= character <= "\udbff" for character in text):
        refuse("JSON Parse error: The surrogate pair in string is invalid.")
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def _shown(value: Any) -> str:
    return json.dumps(value)[:256]


def outputs_to_json(outputs: Arrays, in_rows: bool) -> dict[str, Any]:
    """Return the outputs in the form of the request. A single output has no name."""
    values = {name: _plain(output) for name, output in sorted(outputs.items())}
    if not in_rows:
        return {"outputs": values if len(values) > 1 else next(iter(values.values()))}
    rows = zip(*values.values(), strict=True)
    if len(values) == 1:
        return {"predictions": [row for (row,) in rows]}
    return {"predictions": [dict(zip(values, row, strict=True)) for row in rows]}


def _plain(output: np.ndarray) -> Any:
    """Return nested lists. Floats have the shortest decimals that give the same float32."""
    if output.dtype == np.float32:
        return output.astype("U").astype(np.float64).tolist()
    if output.dtype == object:
        texts = [text.decode("utf-8", "surrogateescape") for text in output.ravel()]
        return np.array(texts, object).reshape(output.shape).tolist()
    return output.tolist()


# --- REST -----------------------------------------------------------------------------------------


class RestHandler(BaseHTTPRequestHandler):
    """Handles GET and POST requests."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    model: Model

    def do_GET(self) -> None:
        if self.path == METRICS:
            self._send(200, "text/plain", self._metrics())
        else:
            self._respond(b"")

    def do_POST(self) -> None:
        self._respond(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def log_message(self, *_: Any) -> None:
        """Log nothing, because the tests read stderr."""

    def _respond(self, body: bytes) -> None:
        try:
            status, content, outcome = 200, self._process(body), "OK"
        except RefusedError as error:
            status, outcome = HTTP_STATUS.get(error.code, 500), error.code.name
            content = {"error": str(error)}
        except Exception as error:
            status, outcome, content = 500, "INTERNAL", {"error": repr(error)}
        self.model.requests[outcome] += 1
        text = json.dumps(content, indent=4, ensure_ascii=False)
        self._send(status, "application/json", text.encode("utf-8", "surrogateescape"))

    def _process(self, body: bytes) -> Any:
        if self.command == "POST" and (match := PREDICT_PATH.fullmatch(self.path)):
            if match[4].lower() == "predict":
                return self._predict(_spec(*match.groups()[:3]), body)
            refuse(f"{match[4]}: not supported by the stub server", Code.UNIMPLEMENTED)
        if self.command == "GET" and (match := MODEL_PATH.fullmatch(self.path)):
            if not match[1]:
                refuse("Missing model name in request.")
            spec = _spec(*match.groups()[:3])
            return self._metadata(spec) if match[4] else _json(self.model.status(spec))
        return refuse(f"Malformed request: {self.command} {self.path}")

    def _predict(self, spec: model_pb2.ModelSpec, body: bytes) -> Any:
        document = parse(body)
        name = document.get("signature_name", "")
        if not isinstance(name, str):
            refuse("'signature_name' key must be a string value.")
        name = name or DEFAULT_SIGNATURE
        _, version = self.model.find(spec)
        if name not in version.signatures:
            refuse(f'Serving signature name: "{name}" not found in signature def')
        inputs, in_rows = inputs_from_json(document, version.signatures[name].inputs)
        return outputs_to_json(version.run(name, inputs, [], self.model.seconds), in_rows)

    def _metadata(self, spec: model_pb2.ModelSpec) -> Any:
        found, signatures = self.model.signature_map(spec)
        return {"model_spec": _json(found), "metadata": {SIGNATURE_DEF: _json(signatures)}}

    def _metrics(self) -> bytes:
        lines = [
            f':tensorflow:serving:request_count{{model_name="{self.model.name}",'
            f'status="{outcome}"}} {count}\n'
            for outcome, count in sorted(self.model.requests.items())
        ]
        return "".join(lines).encode()

    def _send(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


class RestServer(ThreadingHTTPServer):
    """A server with a thread per connection."""

    daemon_threads = True
    request_queue_size = 128


def _spec(name: str, version: str | None, label: str | None) -> model_pb2.ModelSpec:
    if version:
        return model_pb2.ModelSpec(name=name, version={"value": int(version)})
    return model_pb2.ModelSpec(name=name, version_label=label)


def _json(message: Any) -> Any:
    return MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


# --- gRPC -----------------------------------------------------------------------------------------


def from_protos(protos: Any) -> Arrays:
    """Convert the tensors of a request to arrays."""
    try:
        return {name: tf.make_ndarray(proto) for name, proto in protos.items()}
    except (TypeError, ValueError) as error:
        refuse(f"tensor parsing error: {error}")


def to_proto(output: np.ndarray) -> Any:
    """Convert an output to a TensorProto."""
    dtype = tf.as_dtype(output.dtype)
    proto = tf.make_tensor_proto([], dtype)
    proto.Clear()
    proto.dtype = dtype.as_datatype_enum
    proto.tensor_shape.CopyFrom(tf.TensorShape(output.shape).as_proto())
    getattr(proto, FIELDS[dtype]).extend(output.ravel().tolist())
    return proto


class _RefusalInterceptor(grpc.ServerInterceptor):
    """Converts a RefusedError to its gRPC code."""

    def intercept_service(self, continuation: Any, details: Any) -> Any:
        handler = continuation(details)
        if handler is None or handler.unary_unary is None:
            return handler

        def respond(request: Any, context: grpc.ServicerContext) -> Any:
            try:
                return handler.unary_unary(request, context)
            except RefusedError as error:
                return context.abort(error.code, str(error))

        return grpc.unary_unary_rpc_method_handler(
            respond, handler.request_deserializer, handler.response_serializer
        )


class Prediction(prediction_service_pb2_grpc.PredictionServiceServicer):
    """The methods Predict and GetModelMetadata."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def Predict(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        number, version = self.model.find(request.model_spec)
        name = request.model_spec.signature_name or DEFAULT_SIGNATURE
        if name not in version.signatures:
            refuse(f'Serving signature key "{name}" not found.', Code.FAILED_PRECONDITION)
        wanted = list(request.output_filter)
        for alias in wanted:
            if alias not in version.signatures[name].outputs:
                refuse(f"output tensor alias not found in signature: {alias}")
        inputs = from_protos(request.inputs)
        outputs = version.run(name, inputs, wanted, context.time_remaining())
        spec = model_pb2.ModelSpec(
            name=self.model.name, version={"value": number}, signature_name=name
        )
        tensors = {alias: to_proto(output) for alias, output in outputs.items()}
        return predict_pb2.PredictResponse(model_spec=spec, outputs=tensors)

    def GetModelMetadata(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        del context
        if list(request.metadata_field) != [SIGNATURE_DEF]:
            refuse(f"Metadata field {list(request.metadata_field)} is not supported")
        spec, signatures = self.model.signature_map(request.model_spec)
        response = get_model_metadata_pb2.GetModelMetadataResponse(model_spec=spec)
        response.metadata[SIGNATURE_DEF].Pack(signatures)
        return response


class Models(model_service_pb2_grpc.ModelServiceServicer):
    """The method GetModelStatus."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def GetModelStatus(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        del context
        return self.model.status(request.model_spec)


def start_grpc(model: Model, host: str, port: int) -> tuple[grpc.Server, int]:
    """Start the gRPC server in threads; return it and its port. Keep a reference to it."""
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    server = grpc.server(
        ThreadPoolExecutor(16), interceptors=[_RefusalInterceptor()], options=options
    )
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(Prediction(model), server)
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(Models(model), server)
    port = server.add_insecure_port(f"{host}:{port}")
    server.start()
    return server, port


def find_versions(folder: Path) -> dict[int, Path]:
    """Return the folders of all versions in a model base path by number."""
    paths = [path for path in folder.iterdir() if path.name.isdecimal()]
    return {int(path.name): path for path in sorted(paths)}


def load(folder: Path, warm_up: bool) -> dict[int, Version]:
    """Load all versions in a model base path."""
    paths = find_versions(folder)
    if not paths:
        sys.exit(f"{folder}: contains no version; export a model there")
    return {number: Version(path, warm_up) for number, path in paths.items()}


def follow(model: Model, folder: Path, warm_up: bool, seconds: float) -> NoReturn:
    """Serve the highest version of a model base path. The old one serves until the new one can."""
    while True:
        time.sleep(seconds)
        paths = find_versions(folder)
        highest = max(paths, default=max(model.versions))
        if highest not in model.versions:
            model.versions = {highest: Version(paths[highest], warm_up)}


def main() -> None:
    """Serve until the process is terminated."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--name", default="demo")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--rest_port", type=int, default=0)
    parser.add_argument("--grpc_port", type=int, default=0)
    parser.add_argument("--rest_api_timeout_in_ms", type=int, default=30_000)
    parser.add_argument("--enable_model_warmup", choices=["true", "false"], default="true")
    parser.add_argument("--file_system_poll_wait_seconds", type=float, default=0)
    parser.add_argument("--label", action="append", default=[], metavar="LABEL=VERSION")
    flags = parser.parse_args()
    labels = {name: int(number) for name, number in (pair.split("=") for pair in flags.label)}
    warm_up, seconds = flags.enable_model_warmup == "true", flags.file_system_poll_wait_seconds
    versions = load(flags.model, warm_up)
    model = Model(flags.name, versions, labels, flags.rest_api_timeout_in_ms / 1000)
    handler = type("Handler", (RestHandler,), {"model": model})
    rest = RestServer((flags.host, flags.rest_port), handler)
    server, grpc_port = start_grpc(model, flags.host, flags.grpc_port)
    threading.Thread(target=rest.serve_forever, daemon=True).start()
    if seconds:
        follower = (model, flags.model, warm_up, seconds)
        threading.Thread(target=follow, args=follower, daemon=True).start()
    ports = {"rest": rest.server_port, "grpc": grpc_port, "pid": os.getpid()}
    print(json.dumps(ports), flush=True)
    server.wait_for_termination()


if __name__ == "__main__":
    main()
