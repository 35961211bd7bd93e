"""Hostile texts, sent to a model behind REST."""

import base64
import json
import random
import time
from collections import Counter
from itertools import cycle
from typing import Any, NoReturn

import requests

from benchmarks.measurement import resident, tell
from benchmarks.rest import Rest
from tfnmt.progress import say

ROWS = 16
"""Hostile texts in a request, at most."""

LONGEST = 20_000
"""Characters of a hostile text, at most."""

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


def attack(rest: Rest, total: int, draw: random.Random, pid: int | None) -> bool:
    """Sends hostile texts, and prints what came of them; whether all was right."""
    signatures = cycle(rest.signatures().items())
    verdicts: Counter[str] = Counter()
    wrong: list[str] = []
    memory = [resident(pid)]
    sent = 0
    begun = time.monotonic()
    while sent < total:
        name, inputs = next(signatures)
        rows = min(draw.randint(1, ROWS), total - sent)
        broken = draw.random() < 0.1
        kinds = [_surrogates] if broken else HOSTILE
        instances = [
            {alias: draw.choice(kinds)(draw) for alias in sorted(inputs)} for _ in range(rows)
        ]
        verdict = _judge(rest, name, instances, broken)
        verdicts[verdict.partition(":")[0]] += 1
        wrong += [f"{name}: {verdict}"] if verdict not in ("answered", "refused") else []
        sent += rows
        if sent * 10 // total >= len(memory):
            memory.append(resident(pid))
            say(f"{sent:,} of {total:,} texts" + (f", {memory[-1]:,} MB" if pid else ""))
    tell(
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
        predictions = json.loads(text, parse_constant=_refuse)["predictions"]
    except ValueError as error:
        return f"invalid: {error}"
    return "answered" if len(predictions) == len(instances) else "invalid: rows are missing"


def _refuse(constant: str) -> NoReturn:
    """NaN and the infinities are no JSON, though Python reads them."""
    raise ValueError(constant)
