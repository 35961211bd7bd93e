"""Command line flags of the application."""

import argparse
import hashlib
import ipaddress
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from app.command import Parser
from app.engines.engine import CPU_COUNT
from app.errors import UsageError

USAGE = """\
Serve a web page and an HTTP API for exported models, on one port.

    python -m app --model=export/models/en_de
    python -m app --model=there=export/models/en_de --model=back=export/models/de_en
    python -m app --backend=http://127.0.0.1:8501/v1/models/en_de

--model loads an export of tfnmt.export into this process. --backend uses TensorFlow Serving.
Exit codes: 0 success, 1 failure, 2 invalid arguments."""

MAX_PORT = 65535

BUNDLE = ".tar.gz"
"""The end of the file name of a bundle, as in tfnmt.loading."""

MAX_TEXTS = 10_000
"""Maximum of --max_texts. It bounds the time to validate a request."""

POSITIVE = (
    *("deadline", "parallel_streams", "max_chars", "max_texts", "max_sentences"),
    *("document_mb", "document_minutes", "document_deadline", "suggestion_days"),
)

EXAMPLE_ORIGIN = "https://example.org"


@dataclass(frozen=True)
class Settings:
    """Settings of the application, one per flag."""

    models: tuple[tuple[str, Path], ...]
    backends: tuple[tuple[str, str], ...]
    host: str = "127.0.0.1"
    port: int = 8080
    deadline: float = 20.0
    parallel_streams: int = 1
    max_chars: int = 5000
    max_texts: int = 64
    max_sentences: int = 1000
    document_mb: int = 10
    document_minutes: int = 30
    document_deadline: float = 600.0
    suggestions: Path | None = None
    suggestion_days: int = 90
    explorer: Path | None = None
    cache: int = 10_000
    rate: int = 0
    key_digests: frozenset[bytes] = frozenset()
    trusted_proxies: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()

    @property
    def max_wait(self) -> float:
        """Maximum seconds that a request may wait in the queue."""
        return self.deadline / 4

    @property
    def max_body_bytes(self) -> int:
        """Maximum size of a request body.

        It holds a text and a translation of the same length, even if JSON escapes each character
        as a surrogate pair of 12 bytes.
        """
        return 2 * 12 * self.max_chars + 4096

    @property
    def max_document_bytes(self) -> int:
        """Maximum size of a document."""
        return self.document_mb * 1_000_000

    @property
    def max_document_chars(self) -> int:
        """Maximum characters to translate in a document: 200 times those of a request."""
        return 200 * self.max_chars


def parse(
    arguments: list[str],
    find_folder: Callable[[str], Path] = Path,
    default_models: Sequence[str] = (),
) -> Settings:
    """Parse the command line.

    Args:
        arguments: The arguments.
        find_folder: Returns the folder of a model, which is named by its folder or in another way.
        default_models: Values of --model if neither --model nor --backend is given.

    Raises:
        UsageError: A flag is invalid.
    """
    flags = make_parser().parse(arguments)
    if not flags.backend:
        flags.model = flags.model or list(default_models)
    if not flags.model and not flags.backend:
        raise UsageError(
            "no model; set --model=DIR (an export) or --backend=http://host:8501/v1/models/NAME, "
            "or use tfnmt serve, which has a default model"
        )
    for name in POSITIVE:
        if getattr(flags, name) <= 0:
            raise UsageError(f"--{name}={getattr(flags, name)}: must be greater than 0")
    for name in ("cache", "rate", "port"):
        if getattr(flags, name) < 0:
            raise UsageError(f"--{name}={getattr(flags, name)}: must be 0 or greater")
    for name, example in (("deadline", 60), ("document_deadline", 600)):
        if not isfinite(getattr(flags, name)):
            raise UsageError(f"--{name}={getattr(flags, name)}: must be finite; try {example}")
    for name, limit in (("port", MAX_PORT), ("max_texts", MAX_TEXTS)):
        if getattr(flags, name) > limit:
            raise UsageError(f"--{name}={getattr(flags, name)}: must be {limit} or less")
    models = tuple(_parse_model(value, find_folder) for value in flags.model)
    backends = tuple(_parse_backend(value) for value in flags.backend)
    _check_unique([name for name, _ in (*models, *backends)])
    return Settings(
        models=models,
        backends=backends,
        host=flags.host,
        port=flags.port,
        deadline=flags.deadline,
        parallel_streams=flags.parallel_streams,
        max_chars=flags.max_chars,
        max_texts=flags.max_texts,
        max_sentences=flags.max_sentences,
        document_mb=flags.document_mb,
        document_minutes=flags.document_minutes,
        document_deadline=flags.document_deadline,
        suggestions=flags.suggestions,
        suggestion_days=flags.suggestion_days,
        explorer=flags.explorer and _check_explorer(flags.explorer),
        cache=flags.cache,
        rate=flags.rate,
        key_digests=_read_keys(flags.api_keys) if flags.api_keys else frozenset(),
        trusted_proxies=_parse_networks(flags.trusted_proxies),
        allowed_origins=tuple(_parse_origin(value) for value in flags.allow_origin),
    )


def make_parser() -> Parser:
    """Create the parser of the command line."""
    parser = Parser(
        prog="python -m app",
        description=USAGE,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_models(parser.add_argument_group("models").add_argument)
    _add_server(parser.add_argument_group("server").add_argument)
    _add_limits(parser.add_argument_group("limits").add_argument)
    _add_documents(parser.add_argument_group("documents").add_argument)
    _add_suggestions(parser.add_argument_group("corrections of translations").add_argument)
    _add_access(parser.add_argument_group("access").add_argument)
    return parser


def _add_models(add: Callable[..., object]) -> None:
    add(
        "--model",
        action="append",
        default=[],
        metavar="[NAME=]DIR",
        help="an export, or one version of it; repeatable",
    )
    add(
        "--backend",
        action="append",
        default=[],
        metavar="[NAME=]URL",
        help="REST address of a model in TensorFlow Serving; repeatable",
    )
    add(
        "--parallel_streams",
        type=int,
        default=min(8, CPU_COUNT),
        metavar="N",
        help="batches that a --model runs in parallel (default: number of CPUs, at most 8)",
    )
    add(
        "--cache",
        type=int,
        default=Settings.cache,
        metavar="N",
        help="translated sentences to keep in memory; 0 disables the cache (default: %(default)d)",
    )
    add(
        "--explorer",
        type=Path,
        metavar="DIR",
        help="a web export of the model, whose explorer the page then links to; none by default",
    )


def _add_server(add: Callable[..., object]) -> None:
    add("--host", default=Settings.host, help="address to listen on (default: %(default)s)")
    add(
        "--port",
        type=int,
        default=Settings.port,
        help="port to listen on; 0 selects a free port (default: %(default)s)",
    )
    add(
        "--deadline",
        type=float,
        default=Settings.deadline,
        metavar="SECONDS",
        help="maximum time to answer a request (default: %(default)g)",
    )


def _add_limits(add: Callable[..., object]) -> None:
    add(
        "--max_chars",
        type=int,
        default=Settings.max_chars,
        metavar="N",
        help="maximum characters per request (default: %(default)d)",
    )
    add(
        "--max_texts",
        type=int,
        default=Settings.max_texts,
        metavar="N",
        help="maximum texts per request (default: %(default)d)",
    )
    add(
        "--max_sentences",
        type=int,
        default=Settings.max_sentences,
        metavar="N",
        help="maximum sentences in all texts of a request (default: %(default)d)",
    )
    add(
        "--rate",
        type=int,
        default=Settings.rate,
        metavar="N",
        help="maximum characters per client and minute; 0 means no limit (default: %(default)d)",
    )


def _add_documents(add: Callable[..., object]) -> None:
    add(
        "--document_mb",
        type=int,
        default=Settings.document_mb,
        metavar="N",
        help="maximum size of a document in MB (default: %(default)d)",
    )
    add(
        "--document_minutes",
        type=int,
        default=Settings.document_minutes,
        metavar="N",
        help="minutes after which a finished document is deleted (default: %(default)d)",
    )
    add(
        "--document_deadline",
        type=float,
        default=Settings.document_deadline,
        metavar="SECONDS",
        help="maximum time to translate a document (default: %(default)g)",
    )


def _add_suggestions(add: Callable[..., object]) -> None:
    add(
        "--suggestions",
        type=Path,
        metavar="FILE",
        help="SQLite database in which corrections of translations are kept; none by default",
    )
    add(
        "--suggestion_days",
        type=int,
        default=Settings.suggestion_days,
        metavar="N",
        help="days after which a correction is deleted (default: %(default)d)",
    )


def _add_access(add: Callable[..., object]) -> None:
    add(
        "--api_keys",
        type=Path,
        metavar="FILE",
        help="file with one API key per line; API requests must then include one of them",
    )
    add(
        "--trusted_proxies",
        default="",
        metavar="ADDRESSES",
        help="comma-separated addresses or networks whose X-Forwarded-For header is trusted",
    )
    add(
        "--allow_origin",
        action="append",
        default=[],
        metavar="ORIGIN",
        help=f"site whose pages may use the API, such as {EXAMPLE_ORIGIN}; repeatable",
    )


def _parse_model(value: str, find_folder: Callable[[str], Path]) -> tuple[str, Path]:
    """Parse [NAME=]DIR.

    The default name is that of the folder or bundle, and for a version that of its parent.
    """
    name, folder = _split_name(value)
    path = find_folder(folder)
    resolved = Path(os.path.realpath(folder))  # unlike resolve, it accepts a cycle of links
    default = resolved.parent.name if resolved.name.isdigit() else resolved.name
    default = default.removesuffix(BUNDLE)
    return name or default, path


def _parse_backend(value: str) -> tuple[str, str]:
    from app.engines.tf_serving import model_name

    name, url = _split_name(value)
    return name or model_name(url), url


def _split_name(value: str) -> tuple[str, str]:
    """Split NAME=PLACE. A place without a name may contain an equals sign after a slash."""
    name, equals, place = value.partition("=")
    return (name, place) if equals and "/" not in name else ("", value)


def _check_unique(names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise UsageError(
                f"--model, --backend: two models are named {name}; rename one: --model=NAME=DIR"
            )


def _check_explorer(folder: Path) -> Path:
    if not os.path.isfile(folder / "explorer.html"):  # also if the folder cannot be read
        raise UsageError(
            f"--explorer={folder}: no web export; write one with python -m tfnmt.export "
            f"--format=web --output={folder}"
        )
    return folder


def _read_keys(path: Path) -> frozenset[bytes]:
    """Read the API keys as digests, so that comparing any two takes the same time."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, ValueError) as error:
        raise UsageError(f"--api_keys={path}: cannot be read: {error}") from error
    keys = {number: line.strip() for number, line in enumerate(lines, start=1) if line.strip()}
    for number, key in keys.items():
        if not key.isascii() or len(key.split()) > 1:
            raise UsageError(
                f"--api_keys={path}: line {number}: contains white space or is not ASCII; "
                "write one key per line"
            )
    if not keys:
        raise UsageError(f"--api_keys={path}: contains no key; write one per line")
    return frozenset(map(key_digest, keys.values()))


def key_digest(key: str) -> bytes:
    """Return the digest of an API key. The keys themselves are not kept in memory."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def _parse_networks(value: str) -> tuple[str, ...]:
    networks = tuple(part.strip() for part in value.split(",") if part.strip())
    for network in networks:
        try:
            ipaddress.ip_network(network)
        except ValueError as error:
            raise UsageError(
                f"--trusted_proxies={network}: not an address or network; try 10.0.0.0/8"
            ) from error
    return networks


def _parse_origin(value: str) -> str:
    scheme, _, rest = value.partition("://")
    if scheme not in ("http", "https") or not rest or set(rest) & set("/?#*@ "):
        raise UsageError(f"--allow_origin={value}: not an origin; try {EXAMPLE_ORIGIN}")
    return value
