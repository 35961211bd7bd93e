"""Hostile texts for a model behind REST."""

import base64
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle
from typing import Any, NoReturn

import requests

from benchmarks.measurement import print_result, resident_mb
from benchmarks.rest import RestClient
from tfnmt.progress import log

MAX_ROWS = 16
"""Maximum number of hostile texts per request."""

MAX_CHARACTERS = 20_000
"""Maximum length of a hostile text."""

UNPAIRED_SHARE = 0.1
"""Share of requests that contain an unpaired surrogate in each text."""

BLOCKS = (
    (0x20, 95),  # Latin
    (0xA0, 96),  # Latin, accented
    (0x300, 112),  # combining marks
    (0x391, 57),  # Greek
    (0x410, 64),  # Cyrillic
    (0x5D0, 27),  # Hebrew
    (0x620, 90),  # Arabic
    (0x904, 100),  # Devanagari
    (0xE01, 58),  # Thai
    (0x1100, 200),  # Hangul Jamo
    (0x2000, 112),  # punctuation, joiners and direction marks
    (0x3041, 86),  # Hiragana
    (0x4E00, 500),  # Chinese characters
    (0xAC00, 500),  # Hangul syllables
    (0xFE00, 16),  # variation selectors
    (0xFF01, 94),  # full-width forms
    (0x1F300, 500),  # emoji
    (0x1F1E6, 26),  # regional indicators
    (0x20000, 100),  # Chinese characters beyond the basic plane
    (0xE0020, 96),  # tags
)
"""First code point and number of characters."""

ALPHABETS = "".join("".join(map(chr, range(first, first + count))) for first, count in BLOCKS)

CONTROLS = "".join(map(chr, [*range(0x20), *range(0x7F, 0xA0), 0xFEFF, 0xFFFE, 0xFFFF, 0x202E]))

MARKUP = [
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


TextGenerator = Callable[[random.Random], Any]


def _random_bytes(generator: random.Random) -> Any:
    content = generator.randbytes(generator.randint(0, 300))
    return {"b64": base64.b64encode(content).decode("ascii")}


def _long_text(generator: random.Random) -> Any:
    length = generator.randint(MAX_CHARACTERS // 2, MAX_CHARACTERS)
    pattern = generator.choice(["a", "word ", "。", "😀", "Ab1-", "\u0301", "x" * 999 + " "])
    return (pattern * length)[:length]


def _blank_text(generator: random.Random) -> Any:
    return generator.choice(["", " ", "\n", "\t\t", "\u00a0", "\u3000 ", "\u200b", {"b64": ""}])


def _mixed_scripts(generator: random.Random) -> Any:
    return "".join(generator.choices(ALPHABETS, k=generator.randint(1, 300)))


def _control_characters(generator: random.Random) -> Any:
    return "".join(generator.choices(CONTROLS + "ab ", k=generator.randint(1, 100)))


def _markup(generator: random.Random) -> Any:
    return "".join(generator.choices([*MARKUP, " ", "word"], k=generator.randint(1, 30)))


def _unpaired_surrogate(generator: random.Random) -> Any:
    surrogate = chr(generator.randint(0xD800, 0xDFFF))
    return f"{_markup(generator)}{surrogate}{_markup(generator)}"


HOSTILE = (
    _random_bytes,
    _blank_text,
    _mixed_scripts,
    _control_characters,
    _markup,
    _random_bytes,
    _mixed_scripts,
    _control_characters,
    _markup,
    _long_text,
)
"""Generators of texts that must be answered. Long texts are rare, because they are slow."""


def attack(rest: RestClient, total: int, generator: random.Random, pid: int | None) -> bool:
    """Send hostile texts and print a JSON line with the results.

    Args:
        rest: Client of the model.
        total: Number of texts.
        generator: Source of the texts.
        pid: Process id of the server, to report its memory; None reports none.

    Returns:
        True if every request was answered correctly, or refused where that is allowed.
    """
    signatures = cycle(rest.signatures().items())
    verdicts: Counter[str] = Counter()
    failures: list[str] = []
    memory = [resident_mb(pid)]
    sent = 0
    start = time.monotonic()
    while sent < total:
        name, inputs = next(signatures)
        rows = min(generator.randint(1, MAX_ROWS), total - sent)
        may_be_refused = generator.random() < UNPAIRED_SHARE
        kinds = [_unpaired_surrogate] if may_be_refused else HOSTILE
        instances = [
            rest.row(inputs, partial(_hostile_text, kinds, generator)) for _ in range(rows)
        ]
        verdict = _send(rest, name, instances, may_be_refused)
        verdicts[verdict.partition(":")[0]] += 1
        failures += [f"{name}: {verdict}"] if verdict not in ("answered", "refused") else []
        sent += rows
        if sent * 10 // total >= len(memory):
            memory.append(resident_mb(pid))
            log(f"{sent:,} of {total:,} texts" + (f", {memory[-1]:,} MB" if pid else ""))
    print_result(
        "hostile",
        texts=sent,
        requests=sum(verdicts.values()),
        **verdicts,
        failures=failures[:5],
        seconds=round(time.monotonic() - start, 1),
        memory_mb=memory if pid else None,
    )
    return not failures


def _hostile_text(kinds: Sequence[TextGenerator], generator: random.Random) -> Any:
    return generator.choice(kinds)(generator)


def _send(
    rest: RestClient, name: str, instances: list[dict[str, Any]], may_be_refused: bool
) -> str:
    """Send a request; return `answered`, `refused` if that is allowed, or the failure."""
    try:
        response = rest.post(name, {"instances": instances})
    except requests.RequestException as error:
        return f"lost: {error}"
    if response.status_code == 400 and may_be_refused:
        return "refused"
    if response.status_code != 200:
        return f"failed: {response.status_code}, {response.text[:200]}"
    try:
        text = response.content.decode("utf-8")
        predictions = json.loads(text, parse_constant=_reject_constant)["predictions"]
    except ValueError as error:
        return f"invalid: {error}"
    return "answered" if len(predictions) == len(instances) else "invalid: rows are missing"


def _reject_constant(constant: str) -> NoReturn:
    """Reject NaN and infinities, which Python accepts although they are not JSON."""
    raise ValueError(constant)
