"""What the application is started with."""

import argparse
import hashlib
import ipaddress
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from app.errors import UsageError
from app.processors import PROCESSORS

USAGE = """\
Serves a page and an API for exported models, on one port.

    python -m app --model=export/models/en_de
    python -m app --model=there=export/models/en_de --model=back=export/models/de_en
    python -m app --backend=http://127.0.0.1:8501/v1/models/en_de

--model holds an export of tfnmt.export in this process; --backend asks TensorFlow Serving.
Exit codes: 0 done, 1 failed, 2 called wrongly."""

HIGHEST_PORT = 65535


@dataclass(frozen=True)
class Settings:
    """All that can be set."""

    models: tuple[tuple[str, Path], ...]
    backends: tuple[tuple[str, str], ...]
    host: str = "127.0.0.1"
    port: int = 8080
    deadline: float = 20.0
    lanes: int = 1
    max_chars: int = 5000
    max_texts: int = 64
    cache: int = 10_000
    rate: int = 0
    keys: frozenset[bytes] = frozenset()
    trusted_proxies: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()

    @property
    def patience(self) -> float:
        """Seconds that a request may have to wait before it is worked on."""
        return self.deadline / 4

    @property
    def max_body(self) -> int:
        """Bytes of a text and one as long, were every character the longest escape of JSON."""
        return 2 * 12 * self.max_chars + 4096


def parse(arguments: list[str]) -> Settings:
    """The settings, or a UsageError that says what is wrong."""
    flags = make_parser().parse_args(arguments)
    if not flags.model and not flags.backend:
        raise UsageError(
            "no model; give --model=DIR, an export, or --backend=http://host:8501/v1/models/NAME"
        )
    for name in ("deadline", "lanes", "max_chars", "max_texts"):
        if getattr(flags, name) <= 0:
            raise UsageError(f"--{name}={getattr(flags, name)}: must be more than 0")
    for name in ("cache", "rate", "port"):
        if getattr(flags, name) < 0:
            raise UsageError(f"--{name}={getattr(flags, name)}: must not be less than 0")
    if not isfinite(flags.deadline):
        raise UsageError(f"--deadline={flags.deadline}: must have an end; try 60")
    if flags.port > HIGHEST_PORT:
        raise UsageError(f"--port={flags.port}: must not be more than {HIGHEST_PORT}")
    models = tuple(_named_folder(value) for value in flags.model)
    backends = tuple(_named_url(value) for value in flags.backend)
    _check_names([name for name, _ in (*models, *backends)])
    return Settings(
        models=models,
        backends=backends,
        host=flags.host,
        port=flags.port,
        deadline=flags.deadline,
        lanes=flags.lanes,
        max_chars=flags.max_chars,
        max_texts=flags.max_texts,
        cache=flags.cache,
        rate=flags.rate,
        keys=_keys(flags.api_keys) if flags.api_keys else frozenset(),
        trusted_proxies=_networks(flags.trusted_proxies),
        allowed_origins=tuple(_origin(value) for value in flags.allow_origin),
    )


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise UsageError(f"{message}; see --help")


def make_parser() -> argparse.ArgumentParser:
    """The flags."""
    parser = _Parser(
        prog="python -m app", description=USAGE, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add = parser.add_argument
    add("--model", action="append", default=[], metavar="[NAME=]DIR", help="an export; repeatable")
    add(
        "--backend", action="append", default=[], metavar="[NAME=]URL",
        help="a model of TensorFlow Serving; repeatable",
    )  # fmt: skip
    add("--host", default=Settings.host, help="address to listen at (default: %(default)s)")
    add("--port", type=int, default=Settings.port, help="0 is any free one (default: %(default)s)")
    add(
        "--deadline", type=float, default=Settings.deadline, metavar="SECONDS",
        help="the longest that an answer may take (default: %(default)g)",
    )  # fmt: skip
    add(
        "--lanes", type=int, default=min(8, PROCESSORS), metavar="N",
        help="batches that a model here works on at a time (default: the processors, at most 8)",
    )  # fmt: skip
    add(
        "--max_chars", type=int, default=Settings.max_chars, metavar="N",
        help="characters of a request (default: %(default)d)",
    )  # fmt: skip
    add(
        "--max_texts", type=int, default=Settings.max_texts, metavar="N",
        help="texts of a request (default: %(default)d)",
    )  # fmt: skip
    add(
        "--cache", type=int, default=Settings.cache, metavar="N",
        help="sentences whose results are kept in memory; 0 is none (default: %(default)d)",
    )  # fmt: skip
    add(
        "--rate", type=int, default=Settings.rate, metavar="N",
        help="characters that a client may send a minute; 0 is any number (default: %(default)d)",
    )  # fmt: skip
    add("--api_keys", type=Path, metavar="FILE", help="only who has one of these keys, one a line")
    add(
        "--trusted_proxies", default="", metavar="ADDRESSES",
        help="whose X-Forwarded-For is believed: addresses or networks, with commas between",
    )  # fmt: skip
    add(
        "--allow_origin", action="append", default=[], metavar="ORIGIN",
        help="a site whose pages may use the API, as https://example.org; repeatable",
    )  # fmt: skip
    return parser


def _named_folder(value: str) -> tuple[str, Path]:
    """NAME=DIR, or DIR: its own name then, that of the model's folder where it is a version."""
    name, folder = _parted(value)
    path = Path(folder)
    resolved = path.resolve()
    own = resolved.parent.name if resolved.name.isdigit() else resolved.name
    return name or own, path


def _named_url(value: str) -> tuple[str, str]:
    from app.engines.tf_serving import model_name

    name, url = _parted(value)
    return name or model_name(url), url


def _parted(value: str) -> tuple[str, str]:
    """NAME=PLACE in its two parts; a place of its own may hold an = too."""
    name, equals, place = value.partition("=")
    return (name, place) if equals and "/" not in name else ("", value)


def _check_names(names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two models are called {name}; name them: --model=NAME=DIR")


def _keys(path: Path) -> frozenset[bytes]:
    """Digests of the keys, so that comparing them takes the same time for all."""
    try:
        lines = path.read_text(encoding="utf-8").split()
    except (OSError, ValueError) as error:
        raise UsageError(f"--api_keys={path}: cannot be read: {error}") from error
    if not lines:
        raise UsageError(f"--api_keys={path}: holds no key; write one a line")
    return frozenset(digest(line) for line in lines)


def digest(key: str) -> bytes:
    """What is kept of a key."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def _networks(value: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in value.split(",") if part.strip())
    for part in found:
        try:
            ipaddress.ip_network(part)
        except ValueError as error:
            raise UsageError(
                f"--trusted_proxies={part}: neither an address nor a network; try 10.0.0.0/8"
            ) from error
    return found


def _origin(value: str) -> str:
    scheme, _, rest = value.partition("://")
    if scheme not in ("http", "https") or not rest or set(rest) & set("/?#*@ "):
        raise UsageError(f"--allow_origin={value}: no origin; try https://example.org")
    return value
