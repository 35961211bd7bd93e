"""How often the warnings of `translate --json` are right.

    python -m benchmarks.warnings --model=RUN --test=val.en,val.de [--distortion=joined]

Translates the sources, distorted or not, and scores each translation against its reference by
sacreBLEU's sentence chrF: below 40 it is bad, below 52 poor. One JSON line a warning, and one for
any of them: how many translations got it (warned), the shares of bad and of poor ones among those
(precision) and among all (base_rate), and how many references and how many of the sources
themselves got it, read as translations of the sources (references_warned, sources_warned): the
former are false alarms, the latter are copies.

Distortions: joined (2 to 4 pairs become one), typos (one letter in seven changes places with the
next), target (references as sources), names (lists of them that are their own references, as many
as there are pairs).
"""

import json
import random
import statistics
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import flags
from sacrebleu.metrics import CHRF

from tfnmt.cli import run
from tfnmt.data.corpora.text_files import Pair, read_pairs
from tfnmt.errors import UsageError
from tfnmt.loading.models import find_model
from tfnmt.progress import bar

if TYPE_CHECKING:
    from tfnmt.decoding.lines import Answer, Row, Signatures

BAD, POOR = 40, 52
"""A tenth and a quarter of the translations of Multi30k's val split, by the model of
docs/warnings.md, score less; 99 in 100 of its references do against another sentence's.
"""

WARNINGS = ("repetition", "short", "long", "copy", "untouched")

JOINED = 2, 4
LISTED = 3, 8
TYPOS = 1 / 7
NAMES = (
    "Anna Berger", "Paul Schmidt", "Maria Lopez", "John Miller", "Linda Chen", "Peter Novak",
    "Sofia Rossi", "Jan de Vries", "Emma Brown", "Ali Hassan", "Boston", "Berlin", "Paris", "Oslo",
)  # fmt: skip

Distortion = Callable[[list[Pair], random.Random], list[Pair]]


def main(values: Any, positional: list[str]) -> None:
    """Translates, scores, and prints the lines."""
    if positional or not values.model or len(values.test or ()) != 2:
        raise UsageError("--model, and --test=SOURCE,TARGET: needed; see --help")
    source, target = map(Path, values.test)
    text = list(islice(read_pairs(source, target), values.rows))
    pairs = DISTORTIONS[values.distortion](text, random.Random(values.seed))
    graphs = find_model(values.model, {}).load()
    answers = _translate(graphs, pairs)
    sources, references = (_read(graphs, pairs, side) for side in (0, 1))
    chrf = CHRF()
    scores = [
        chrf.sentence_score(answer.best.text, [reference]).score
        for answer, (_, reference) in zip(answers, pairs, strict=True)
    ]
    for name, warnings in (*((one, {one}) for one in WARNINGS), ("any", set(WARNINGS))):
        warned = _with(warnings, answers)
        line = {
            "task": "warnings", "test": values.test, "distortion": values.distortion,
            "warning": name, "translations": len(pairs), "warned": len(warned),
            "precision": _shares([scores[n] for n in warned]), "base_rate": _shares(scores),
            "references_warned": len(_with(warnings, references)),
            "sources_warned": len(_with(warnings, sources)),
        }  # fmt: skip
        if values.examples:
            line["examples"] = [
                {"chrf": round(scores[n], 1), "source": pairs[n][0],
                 "translation": answers[n].best.text, "reference": pairs[n][1]}
                for n in warned[: values.examples]
            ]  # fmt: skip
        print(json.dumps(line, ensure_ascii=False), flush=True)


def _translate(graphs: "Signatures", pairs: list[Pair]) -> "list[Answer]":
    """As `translate --json` does."""
    from tfnmt.decoding.lines import again, best, translate_lines, windows

    answering = again(best(graphs["serving_default"]), graphs["align"])
    answers = translate_lines(answering, windows(source for source, _ in pairs))
    return list(bar(answers, "translating", "sentences", len(pairs)))


def _read(graphs: "Signatures", pairs: list[Pair], side: int) -> "list[Answer]":
    """One side of the pairs, as if search had found it."""
    from tfnmt.decoding.lines import Answer, Hypothesis, again, translate_lines, windows

    def given(rows: "Sequence[Row]") -> list[Answer]:
        return [Answer((Hypothesis(pairs[row.place[0]][side], 0.0),)) for row in rows]

    answers = translate_lines(again(given, graphs["align"]), windows(pair[0] for pair in pairs))
    return list(bar(answers, "reading", "sentences", len(pairs)))


def _with(warnings: set[str], answers: "list[Answer]") -> list[int]:
    """Those that got one of the warnings, by their numbers."""
    return [n for n, answer in enumerate(answers) if warnings.intersection(answer.warnings)]


def _shares(scores: list[float]) -> dict[str, float] | None:
    """Of bad and poor ones, and the mean score."""
    if not scores:
        return None
    return {
        "bad": round(sum(score < BAD for score in scores) / len(scores), 3),
        "poor": round(sum(score < POOR for score in scores) / len(scores), 3),
        "chrf": round(statistics.fmean(scores), 1),
    }


def _joined(pairs: list[Pair], draw: random.Random) -> list[Pair]:
    rest, joined = iter(pairs), []
    while some := list(islice(rest, draw.randint(*JOINED))):
        sources, targets = zip(*some, strict=True)
        joined.append((" ".join(sources), " ".join(targets)))
    return joined


def _typos(pairs: list[Pair], draw: random.Random) -> list[Pair]:
    def mistype(text: str) -> str:
        letters = list(text)
        for n in range(1, len(letters)):
            if draw.random() < TYPOS:
                letters[n - 1], letters[n] = letters[n], letters[n - 1]
        return "".join(letters)

    return [(mistype(source), target) for source, target in pairs]


def _names(pairs: list[Pair], draw: random.Random) -> list[Pair]:
    lists = (", ".join(draw.sample(NAMES, draw.randint(*LISTED))) for _ in pairs)
    return [(each, each) for each in lists]


DISTORTIONS: dict[str, Distortion] = {
    "none": lambda pairs, _: pairs,
    "joined": _joined,
    "typos": _typos,
    "target": lambda pairs, _: [(target, target) for _, target in pairs],
    "names": _names,
}

FLAGS = flags.FlagValues()
flags.DEFINE_string("model", None, "a run or an export", flag_values=FLAGS)
flags.DEFINE_list("test", None, "text: val.en,val.de", flag_values=FLAGS)
flags.DEFINE_enum("distortion", "none", [*DISTORTIONS], "of the sources", flag_values=FLAGS)
flags.DEFINE_integer("rows", 2000, "pairs to take, the first ones", 1, flag_values=FLAGS)
flags.DEFINE_integer("seed", 1, "of what is drawn", flag_values=FLAGS)
flags.DEFINE_integer("examples", 0, "translations to show of each warning", 0, flag_values=FLAGS)


if __name__ == "__main__":
    run(main, FLAGS, __doc__)
