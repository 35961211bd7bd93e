"""The interface of a served model and its clients, over real sockets.

The tests use the stub server of tests/serving. To use a TensorFlow Serving instead, set
TFNMT_TFSERVING_URL to http://host:8501/v1/models/NAME, and TFNMT_TFSERVING_GRPC to host:8500.
"""

import base64
import json
import math
import os
import runpy
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import requests
import tensorflow as tf
import yaml
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from benchmarks.clients import protocols, run_clients
from benchmarks.load import Load
from benchmarks.rest import RestClient
from tests.soak.contract import check_contract
from tfnmt.data.corpora.toy import grammar
from tfnmt.errors import UserError

ROOT = Path(__file__).parents[2]
STUB_SERVER = ROOT / "tests" / "serving" / "stub_server.py"
CLIENTS = ROOT / "export" / "clients"
REAL_URL = os.environ.get("TFNMT_TFSERVING_URL")
REAL_GRPC = os.environ.get("TFNMT_TFSERVING_GRPC")

SENTENCES = [source for source, _ in islice(grammar.pairs("test"), 40)]
TEXTS = [*SENTENCES[:2], "", "Ünseen wörds 😀"]
NOT_UTF8 = b"a\xff\xc3(b\x00c"
NOT_FOUND = -1e9

TRANSLATION = {"translation": str, "score": float, "truncated": bool}
PAIR = {"source_tokens": list, "target_tokens": list, "source_length": int, "target_length": int}
SIGNATURES = {
    "serving_default": (("text",), TRANSLATION),
    "greedy": (("text",), TRANSLATION),
    "nbest": (
        ("text",),
        {"translations": list, "scores": list, "tokens": list, "truncated": bool},
    ),
    "align": (("text", "translation"), {**PAIR, "attention": list, "token_log_probs": list}),
    "attention": (
        ("text", "translation"),
        {**PAIR, "encoder": list, "decoder": list, "cross": list},
    ),
    "tokenize": (("text",), {"tokens": list, "truncated": bool}),
    "info": (("text",), {"card": str}),
}
"""The signatures that take text: their inputs, and the types of their outputs for a row."""

needs_grpc = pytest.mark.skipif(
    bool(REAL_URL and not REAL_GRPC), reason="TFNMT_TFSERVING_GRPC is not set"
)
needs_stub_server = pytest.mark.skipif(bool(REAL_URL), reason="needs the stub server")


@dataclass(frozen=True)
class Server:
    """The addresses of a served model."""

    url: str
    grpc: str
    pid: int = 0

    @property
    def model(self) -> str:
        return self.url.rpartition("/")[2]

    def post(self, body: Any, path: str = ":predict") -> requests.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return requests.post(self.url + path, data=content, timeout=60)

    def predict(self, **body: Any) -> Any:
        response = self.post(body)
        assert response.status_code == 200, response.text
        text = response.content.decode("utf-8")
        (content,) = json.loads(text, parse_constant=pytest.fail).values()
        return content

    def predict_grpc(
        self, signature: str, inputs: dict[str, Any], model: str | None = None, seconds: float = 60
    ) -> dict[str, Any]:
        request = predict_pb2.PredictRequest()
        request.model_spec.name = model or self.model
        request.model_spec.signature_name = signature
        for name, values in inputs.items():
            request.inputs[name].CopyFrom(tf.make_tensor_proto(values))
        with grpc.insecure_channel(self.grpc) as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            response = stub.Predict(request, timeout=seconds)
        return {name: tf.make_ndarray(tensor) for name, tensor in response.outputs.items()}


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    if REAL_URL:
        yield Server(REAL_URL.rstrip("/"), REAL_GRPC or "")
        return
    export = request.getfixturevalue("tiny_export")
    with stub_server(export, "--label=stable=1", "--enable_model_warmup=false") as started:
        yield started


@contextmanager
def stub_server(export: Path, *arguments: str) -> Iterator[Server]:
    """Run a stub server."""
    command = [sys.executable, str(STUB_SERVER), f"--model={export}", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            line = process.stdout.readline()
            assert line, "the stub server did not start"
            ports = json.loads(line)
            url = f"http://127.0.0.1:{ports['rest']}/v1/models/demo"
            yield Server(url, f"127.0.0.1:{ports['grpc']}", ports["pid"])
            assert process.poll() is None, "the stub server has stopped"
        finally:
            process.terminate()


def same(one: Any, other: Any) -> bool:
    """Return whether values are equal, with a tolerance for floats."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float):
        return math.isclose(one, other, rel_tol=1e-4, abs_tol=1e-4)
    return one == other


def rows_of(columns: Any) -> list[Any]:
    """Convert the columns of a response to rows."""
    if isinstance(columns, list):
        return columns
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


# --- Status and metadata --------------------------------------------------------------------------


def test_status_reports_an_available_model(server: Server) -> None:
    response = requests.get(server.url, timeout=60)
    assert response.status_code == 200
    (version,) = response.json()["model_version_status"]
    assert version["state"] == "AVAILABLE"
    assert version["version"].isdigit()
    assert version["status"] == {"error_code": "OK", "error_message": ""}


def test_metadata_has_signatures_and_shapes(server: Server) -> None:
    metadata = requests.get(f"{server.url}/metadata", timeout=60).json()
    assert metadata["model_spec"]["name"] == server.model
    found = metadata["metadata"]["signature_def"]["signature_def"]
    for name, (inputs, outputs) in SIGNATURES.items():
        assert set(found[name]["inputs"]) == set(inputs)
        assert set(found[name]["outputs"]) == set(outputs)
        for tensor in [*found[name]["inputs"].values(), *found[name]["outputs"].values()]:
            assert tensor["tensor_shape"]["dim"][0]["size"] == "-1"


@needs_stub_server
def test_health_check_of_the_kit_detects_a_missing_server(server: Server) -> None:
    kit = yaml.safe_load((ROOT / "export" / "compose.yaml").read_text())
    _, *command, script = kit["services"]["serving"]["healthcheck"]["test"]
    port = server.url.split(":")[2].partition("/")[0]
    for number, healthy in ((port, True), ("9", False)):
        done = subprocess.run(
            [*command, script.replace("8501", number)], stderr=subprocess.DEVNULL, timeout=60
        )
        assert (done.returncode == 0) == healthy


# --- Predictions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature_gives_equal_results_in_rows_in_columns_and_over_grpc(
    server: Server, name: str
) -> None:
    inputs, outputs = SIGNATURES[name]
    instances = [dict.fromkeys(inputs, text) for text in TEXTS]
    rows = server.predict(signature_name=name, instances=instances)
    assert len(rows) == len(TEXTS)
    for row in rows:
        values = (
            row if len(outputs) > 1 else dict.fromkeys(outputs, row)
        )  # a single output has no name
        assert {alias: type(value) for alias, value in values.items()} == outputs
    columns = dict.fromkeys(inputs, TEXTS)
    assert same(rows, rows_of(server.predict(signature_name=name, inputs=columns)))
    if server.grpc:
        tensors = server.predict_grpc(name, columns)
        response = {alias: plain(tensor) for alias, tensor in tensors.items()}
        assert same(rows, rows_of(response if len(outputs) > 1 else response[next(iter(outputs))]))


def plain(tensor: np.ndarray) -> Any:
    """Convert an array to its JSON form."""
    return json.loads(json.dumps(tensor.tolist(), default=bytes.decode))


def test_predict_accepts_a_single_input_without_its_name(server: Server) -> None:
    named = server.predict(instances=[{"text": text} for text in TEXTS])
    assert same(named, server.predict(instances=TEXTS))
    assert same(named, rows_of(server.predict(inputs=TEXTS)))


def test_predict_decodes_base64(server: Server) -> None:
    encoded = [{"b64": base64.b64encode(text.encode()).decode()} for text in TEXTS]
    expected = server.predict(instances=TEXTS)
    assert same(expected, server.predict(instances=[{"text": text} for text in encoded]))
    assert same(expected, server.predict(instances=encoded))
    assert same(expected, rows_of(server.predict(inputs={"text": encoded})))


def test_tokenize_search_and_detokenize_together_equal_serving_default(server: Server) -> None:
    source = server.predict(signature_name="tokenize", inputs=TEXTS)
    found = server.predict(signature_name="search", inputs=source["tokens"])
    texts = server.predict(signature_name="detokenize", instances=found["tokens"])
    whole = server.predict(inputs=TEXTS)
    assert texts == whole["translation"]
    assert same(found["score"], whole["score"])
    assert source["truncated"] == whole["truncated"]


def test_info_returns_the_card_for_every_row(server: Server) -> None:
    one, other = server.predict(signature_name="info", instances=["", "a"])
    assert one == other
    assert {"source", "target", "evaluations"} <= set(json.loads(one))


def test_empty_text_has_an_empty_translation(server: Server) -> None:
    for name in ("serving_default", "greedy"):
        (row,) = server.predict(signature_name=name, instances=[""])
        assert row == {"translation": "", "score": 0.0, "truncated": False}


def test_nbest_is_sorted_and_padded_with_empty_texts(server: Server) -> None:
    best = server.predict(signature_name="serving_default", instances=TEXTS)
    for row, first in zip(
        server.predict(signature_name="nbest", instances=TEXTS), best, strict=True
    ):
        assert row["translations"][0] == first["translation"]
        assert row["scores"] == sorted(row["scores"], reverse=True)
        for text, score in zip(row["translations"], row["scores"], strict=True):
            assert score > NOT_FOUND or text == ""


def test_long_text_is_reported_as_truncated(server: Server) -> None:
    rows = server.predict(signature_name="greedy", instances=["a b c " * 2000, "a"])
    assert [row["truncated"] for row in rows] == [True, False]


def test_predict_accepts_bytes_that_are_not_utf8(server: Server) -> None:
    encoded = {"b64": base64.b64encode(NOT_UTF8).decode()}
    surrogate = b'{"instances": ["a \\udc00 b", "a\\u0000b"]}'  # an unpaired surrogate, and NUL
    assert len(server.predict(instances=[encoded, "a"])) == 2
    assert server.post(surrogate).status_code == 200
    assert len(server.post(b'{"instances": ["' + NOT_UTF8[:5] + b'"]}').json()["predictions"]) == 1


@needs_stub_server
def test_served_results_equal_those_of_the_export(server: Server, tiny_export: Path) -> None:
    import tensorflow_text  # noqa: F401  registers its operations

    loaded = tf.saved_model.load(str(tiny_export / "1"))
    for name in ("serving_default", "greedy"):
        expected = loaded.signatures[name](text=tf.constant(TEXTS))
        columns = {alias: plain(tensor.numpy()) for alias, tensor in expected.items()}
        assert same(rows_of(columns), server.predict(signature_name=name, instances=TEXTS))


def test_paths_select_versions_and_labels(server: Server) -> None:
    status = requests.get(server.url, timeout=60).json()
    version = status["model_version_status"][0]["version"]
    body = {"instances": TEXTS}
    expected = server.post(body).json()
    assert same(server.post(body, f"/versions/{version}:predict").json(), expected)
    if not REAL_URL:
        assert same(server.post(body, "/labels/stable:predict").json(), expected)
    assert server.post(body, "/labels/nosuch:predict").status_code == 400
    assert server.post(body, "/versions/99999:predict").status_code == 404


def test_concurrent_requests_get_the_same_results_as_single_ones(server: Server) -> None:
    alone = [server.predict(signature_name="greedy", instances=[text]) for text in SENTENCES[:8]]
    with ThreadPoolExecutor(16) as pool:
        responses = pool.map(
            lambda number: server.predict(
                signature_name="greedy", instances=[SENTENCES[number % 8]]
            ),
            range(64),
        )
        for number, response in enumerate(responses):
            assert same(response, alone[number % 8])


# --- Errors ---------------------------------------------------------------------------------------

BAD_BODIES = {
    "malformed JSON": b'{"instances": [',
    "no JSON": b"instances=a",
    "nothing": b"",
    "a list": b"[]",
    "no rows": {"instances": []},
    "neither form": {"rows": ["a"]},
    "both forms": {"instances": ["a"], "inputs": ["a"]},
    "unknown signature": {"instances": ["a"], "signature_name": "nosuch"},
    "signature of a wrong type": {"instances": ["a"], "signature_name": 1},
    "wrong name": {"instances": [{"txt": "a"}]},
    "wrong name in columns": {"inputs": {"txt": ["a"]}},
    "a name too many": {"instances": [{"text": "a", "beam": 4}]},
    "an input is missing": {"instances": [{"text": "a"}], "signature_name": "align"},
    "no names for two inputs": {"instances": ["a"], "signature_name": "align"},
    "a number": {"instances": [1]},
    "null": {"instances": [None]},
    "named and not": {"instances": [{"text": "a"}, "b"]},
    "lists in lists": {"instances": [["a"], ["b"]]},
    "uneven lists": {"inputs": [["a"], ["b", "c"]]},
    "a scalar": {"inputs": "a"},
    "no base64": {"instances": [{"b64": "?"}]},
    "unpaired surrogate": b'{"instances": ["\\ud800"]}',
}


@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES)
def test_bad_request_is_refused_with_a_message(server: Server, body: Any) -> None:
    response = server.post(body)
    assert response.status_code == 400
    assert response.json()["error"]


@pytest.mark.parametrize("path", ["nosuch:predict", "nosuch", "nosuch/metadata"])
def test_unknown_model_gives_404(server: Server, path: str) -> None:
    url = f"{server.url.rpartition('/')[0]}/{path}"
    if path.endswith(":predict"):
        response = requests.post(url, json={"instances": ["a"]}, timeout=60)
    else:
        response = requests.get(url, timeout=60)
    assert response.status_code == 404
    assert "nosuch" in response.json()["error"]


def test_server_keeps_a_connection_after_a_refused_request(server: Server) -> None:
    with requests.Session() as session:  # over one connection
        for body, status in ((b"{", 400), (b'{"inputs": ["a"]}', 200), (b"", 400)) * 2:
            response = session.post(f"{server.url}:predict", data=body, timeout=60)
            assert response.status_code == status


# --- gRPC -----------------------------------------------------------------------------------------


@needs_grpc
def test_grpc_returns_status_and_signatures(server: Server) -> None:
    with grpc.insecure_channel(server.grpc) as channel:
        status = get_model_status_pb2.GetModelStatusRequest()
        status.model_spec.name = server.model
        models = model_service_pb2_grpc.ModelServiceStub(channel)
        (version,) = models.GetModelStatus(status, timeout=60).model_version_status
        metadata = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
        metadata.model_spec.name = server.model
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        found = stub.GetModelMetadata(metadata, timeout=60).metadata["signature_def"]
    assert version.state == get_model_status_pb2.ModelVersionStatus.AVAILABLE
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert found.Unpack(signatures)
    assert set(SIGNATURES) <= set(signatures.signature_def)


@needs_grpc
@pytest.mark.parametrize(
    ("call", "code"),
    [
        ({"signature": "greedy", "inputs": {"text": ["a"]}, "model": "nosuch"}, "NOT_FOUND"),
        ({"signature": "nosuch", "inputs": {"text": ["a"]}}, "FAILED_PRECONDITION"),
        ({"signature": "greedy", "inputs": {"txt": ["a"]}}, "INVALID_ARGUMENT"),
        ({"signature": "greedy", "inputs": {}}, "INVALID_ARGUMENT"),
        ({"signature": "greedy", "inputs": {"text": [1]}}, "INVALID_ARGUMENT"),
        ({"signature": "greedy", "inputs": {"text": "a"}}, "INVALID_ARGUMENT"),
    ],
    ids=["model", "signature", "name", "missing", "type", "shape"],
)
def test_grpc_error_has_code_and_details(server: Server, call: dict[str, Any], code: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        server.predict_grpc(**call)
    assert caught.value.code().name == code
    assert caught.value.details()


@needs_grpc
def test_grpc_accepts_any_bytes_and_empty_batches(server: Server) -> None:
    assert len(server.predict_grpc("greedy", {"text": [NOT_UTF8, b"a"]})["translation"]) == 2
    empty = server.predict_grpc("greedy", {"text": np.array([], object)})
    assert {tensor.shape for tensor in empty.values()} == {(0,)}


# --- Clients --------------------------------------------------------------------------------------


def run_client(*command: object, lines: str = "", **variables: str) -> Any:
    environment = {**os.environ, "NO_PROXY": "127.0.0.1", **variables}
    return subprocess.run(
        [*map(str, command)],
        input=lines,
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
    )


def rest_client(server: Server, *arguments: str, lines: str = "") -> Any:
    return run_client(
        sys.executable, CLIENTS / "rest.py", f"--url={server.url}", *arguments, lines=lines
    )


def grpc_client(server: Server, *arguments: str, lines: str = "") -> Any:
    flags = (f"--server={server.grpc}", f"--model={server.model}")
    return run_client(sys.executable, CLIENTS / "grpc_client.py", *flags, *arguments, lines=lines)


def curl_client(server: Server, *arguments: str, lines: str = "", **variables: str) -> Any:
    """Run translate.sh; replace the JSON of its output with the translations, one per line."""
    if not shutil.which("curl"):
        pytest.skip("curl is not installed")
    variables["TFNMT_URL"] = server.url
    done = run_client(CLIENTS / "translate.sh", *arguments, lines=lines, **variables)
    if done.returncode == 0:
        rows = [row for response in documents(done.stdout) for row in response["predictions"]]
        done.stdout = "".join(f"{row['translation']}\n" for row in rows)
    return done


def documents(text: str) -> Iterator[Any]:
    """Yield the JSON documents of a text."""
    remaining = text.lstrip()
    while remaining:
        document, end = json.JSONDecoder().raw_decode(remaining)
        yield document
        remaining = remaining[end:].lstrip()


CLIENT_NAMES = [
    "rest_client",
    "curl_client",
    pytest.param("grpc_client", marks=needs_grpc),
]


@pytest.fixture(params=CLIENT_NAMES)
def client(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return globals()[request.param]


@pytest.mark.parametrize("texts_from", ["arguments", "lines"])
def test_client_translates_arguments_and_lines(
    server: Server, client: Callable[..., Any], texts_from: str
) -> None:
    texts = [*TEXTS, 'a "quoted" \\ text', "a carriage\rreturn within"]
    done = (
        client(server, *texts)
        if texts_from == "arguments"
        else client(server, lines="\n".join(texts))
    )
    assert done.returncode == 0, done.stderr
    expected = [row["translation"] for row in server.predict(instances=texts)]
    assert done.stdout.splitlines() == expected


@needs_stub_server
def test_clients_and_app_translate_to_several_languages(
    two_way_export: Path, two_way_litert: Path, start_app: Any
) -> None:
    text = SENTENCES[0]
    with stub_server(two_way_export, "--enable_model_warmup=false") as started:
        rows = [{"text": text, "target": target} for target in ("de", "en")]
        expected = [row["translation"] for row in started.predict(instances=rows)]
        assert rest_client(started, "--target=de", text).stdout == f"{expected[0]}\n"
        assert grpc_client(started, "--target=en", text).stdout == f"{expected[1]}\n"
        assert curl_client(started, text, TFNMT_TARGET="en").stdout == f"{expected[1]}\n"
        refused = grpc_client(started, "--target=fr", text)
        assert "INVALID_ARGUMENT" in refused.stderr
        assert "de, en" in refused.stderr
        assert refused.stderr.count("\n") == 1
        assert check_contract(RestClient(started.url, "de"), SENTENCES[:2])
        with pytest.raises(UserError, match=r"^--target: missing"):
            check_contract(RestClient(started.url), SENTENCES[:2])
        for _, connect in protocols(started.url, started.grpc, "greedy", {"target": "en"}):
            assert run_clients("any", connect, SENTENCES, clients=1, seconds=1)
        exports = (f"--model=saved={two_way_export}", f"--model=lite={two_way_litert}")
        with start_app(*exports, f"--backend=remote={started.url}") as app:
            app.wait(200)
            for model in "saved", "lite", "remote":
                fields = {"model": model, "source": "de"}
                assert app.translate(text, target="en", **fields)[0]["text"] == expected[1]
                pair = {"text": text, "translation": "a dog", **fields}
                (found,) = app.post("/api/v1/align", pair).json()["pairs"]
                assert found["source"][0] == {"text": "<2en>", "start": 0, "end": 0}
                columns = app.post("/api/v1/attention", pair).json()["columns"]
                assert columns == [token["text"] for token in found["source"]]
            load = Load(app.url, SENTENCES, {"model": "lite", "target": "en"})
            assert not load.closed_loop(clients=1, seconds=1).errors


def test_client_reads_lines_with_crlf(server: Server, client: Callable[..., Any]) -> None:
    (expected,) = server.predict(instances=TEXTS[:1])
    done = client(server, lines=f"{TEXTS[0]}\r\n")
    assert done.stdout.splitlines() == [expected["translation"]]


def test_client_reports_an_error_in_one_line(server: Server, client: Callable[..., Any]) -> None:
    unknown = Server(f"{server.url}-nosuch", server.grpc)
    done = client(unknown, "a")
    assert done.returncode != 0
    assert f"Servable not found for request: Latest({unknown.model})" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


class BusyServer(ThreadingHTTPServer):
    """A server that refuses some requests, then translates everything as 'done'."""

    def __init__(self, refusals: int, status: int = 503) -> None:
        super().__init__(("127.0.0.1", 0), BusyHandler)
        self.refusals = refusals
        self.status = status
        self.requests = 0

    @property
    def address(self) -> Server:
        return Server(f"http://127.0.0.1:{self.server_port}/v1/models/demo", "")

    def __enter__(self) -> "BusyServer":
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class BusyHandler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.server.requests += 1
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        refused = self.server.requests <= self.server.refusals
        rows = [{"translation": "done"}] * len(body["instances"])
        response = {"error": "the queue is full"} if refused else {"predictions": rows}
        content = json.dumps(response).encode()
        self.send_response(self.server.status if refused else 200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.mark.parametrize("client", ["rest_client", "curl_client"], indirect=True)
def test_rest_client_retries_if_the_server_is_busy(client: Callable[..., Any]) -> None:
    with BusyServer(refusals=2) as busy:
        done = client(busy.address, "a", "b")
        assert done.returncode == 0, done.stderr
        assert done.stdout == "done\ndone\n"
        assert busy.requests == 3


@pytest.mark.parametrize(
    ("client", "code"), [("rest_client", 1), ("curl_client", 22)], indirect=["client"]
)
@pytest.mark.parametrize("status", [400, 404, 500, 504])
def test_rest_client_does_not_retry_permanent_errors(
    client: Callable[..., Any], code: int, status: int
) -> None:
    with BusyServer(refusals=9, status=status) as broken:
        done = client(broken.address, "a")
        assert done.returncode == code
        assert str(status) in done.stderr
        assert "the queue is full" in done.stdout + done.stderr
        assert broken.requests == 1


@pytest.mark.parametrize("client", ["rest_client", "curl_client"], indirect=True)
def test_rest_client_sends_many_lines_in_batches(client: Callable[..., Any]) -> None:
    with BusyServer(refusals=0) as server:
        done = client(server.address, lines="a line\n" * 33)
        assert done.stdout == "done\n" * 33
        assert server.requests == 3


@pytest.mark.parametrize("script", ["rest.py", "grpc_client.py"])
@pytest.mark.parametrize("flag", ["--timeout=0", "--timeout=nan", "--rows=0"])
def test_client_refuses_invalid_flags(script: str, flag: str) -> None:
    done = run_client(sys.executable, CLIENTS / script, flag, "a")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(f"{script}: error: {flag.split('=')[0]}: ")


def test_rest_client_stops_quietly_if_its_output_is_closed() -> None:
    with BusyServer(refusals=0) as server:
        client = f"{sys.executable} {CLIENTS / 'rest.py'} --url={server.address.url}"
        done = run_client("bash", "-c", f"{client} | head -1", lines="a line\n" * 5000)
        assert done.stdout == "done\n"
        assert done.stderr == ""


@pytest.mark.parametrize(
    ("redirections", "code", "output"),
    [
        ("<&-", 0, "done\n"),
        ("2>&-", 0, "done\n"),
        ("2>/dev/full", 0, "done\n"),
        (">&-", 1, ""),
        (">/dev/full", 1, ""),
        ("<&- >&- 2>&-", 1, ""),
    ],
)
def test_rest_client_reports_a_stream_that_it_cannot_use(
    redirections: str, code: int, output: str
) -> None:
    with BusyServer(refusals=0) as server:
        client = f"{sys.executable} {CLIENTS / 'rest.py'} --url={server.address.url} a"
        done = run_client("bash", "-c", f"{client} {redirections}")
    assert (done.returncode, done.stdout) == (code, output)
    assert len(done.stderr.splitlines()) <= code
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("script", ["rest.py", "grpc_client.py"])
@pytest.mark.parametrize(
    ("redirections", "stream"), [("<&-", "stdin"), (">&-", "stdout"), ("<&- >&-", "stdout")]
)
def test_client_without_a_necessary_stream_stops_before_the_request(
    script: str, redirections: str, stream: str
) -> None:
    done = run_client("bash", "-c", f"{sys.executable} {CLIENTS / script} {redirections}")
    assert done.returncode == 1
    assert done.stderr.startswith(f"{script}: {stream}: closed; ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("client", CLIENT_NAMES, indirect=True)
def test_client_fails_if_there_is_no_server(client: Callable[..., Any]) -> None:
    done = client(Server("http://127.0.0.1:9/v1/models/demo", "127.0.0.1:9"), "a")
    assert done.returncode != 0
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


class BusyPrediction(prediction_service_pb2_grpc.PredictionServiceServicer):
    def __init__(self, code: grpc.StatusCode) -> None:
        self.code = code
        self.requests = 0

    def Predict(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        del request
        self.requests += 1
        if self.requests <= 2:
            context.abort(self.code, "the queue is full")
        return predict_pb2.PredictResponse(outputs={"translation": tf.make_tensor_proto(["done"])})


@pytest.mark.parametrize(
    ("code", "attempts"), [("UNAVAILABLE", 3), ("RESOURCE_EXHAUSTED", 3), ("DEADLINE_EXCEEDED", 1)]
)
def test_grpc_client_retries_if_the_server_is_busy(code: str, attempts: int) -> None:
    busy = BusyPrediction(grpc.StatusCode[code])
    backend = grpc.server(ThreadPoolExecutor(2))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(busy, backend)
    port = backend.add_insecure_port("127.0.0.1:0")
    backend.start()
    client = runpy.run_path(str(CLIENTS / "grpc_client.py"))  # TensorFlow is already imported here
    try:
        with client["connect"](f"127.0.0.1:{port}") as channel:
            translate = partial(client["translate"], channel, "demo", ["a"], "greedy", 30)
            if attempts > 1:
                assert translate() == ["done"]
            else:
                with pytest.raises(grpc.RpcError):
                    translate()
    finally:
        backend.stop(None).wait()
    assert busy.requests == attempts


# --- Slow tests -----------------------------------------------------------------------------------


@needs_stub_server
def test_stub_server_ends_requests_after_the_time_limit(tiny_export: Path) -> None:
    flags = ("--rest_api_timeout_in_ms=1", "--enable_model_warmup=false")
    with stub_server(tiny_export, *flags) as server:
        assert server.post({"instances": SENTENCES}).status_code == 504
        with pytest.raises(grpc.RpcError) as caught:
            server.predict_grpc("serving_default", {"text": SENTENCES * 20}, seconds=0.001)
        assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        assert len(server.predict_grpc("greedy", {"text": ["a"]})["translation"]) == 1


@needs_stub_server
def test_hostile_texts_do_not_break_the_server_or_fill_its_memory(tiny_export: Path) -> None:
    with stub_server(tiny_export) as started:
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "tests.soak.serving",
                f"--url={started.url}",
                "--hostile=500",
                f"--pid={started.pid}",
            ],
            capture_output=True,
            text=True,
            cwd=ROOT,
            timeout=900,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["answered"] + result["refused"] == result["requests"]
    assert result["memory_mb"][-1] < 1.5 * result["memory_mb"][5]


@needs_stub_server
def test_serving_benchmark_reports_throughput_and_latency(server: Server) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "benchmarks.serving",
            f"--url={server.url}",
            f"--grpc={server.grpc}",
            "--seconds=2",
            "--clients=1,4",
            "--signature=greedy",
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    loads = [line for line in lines if line["task"] == "serving.load"]
    assert [(line["protocol"], line["clients"]) for line in loads] == [
        ("rest", 1),
        ("rest", 4),
        ("grpc", 1),
        ("grpc", 4),
    ]
    assert all(line["sentences"] and not line["errors"] for line in loads)
    assert all(line["p50_ms"] <= line["p95_ms"] <= line["p99_ms"] for line in loads)
