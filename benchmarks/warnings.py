"""Measure how often the quality warnings of `translate --json` are right.

    python -m benchmarks.warnings --model=RUN --test=val.en,val.de [--distortion=joined]

Translates the sources, distorted or not, and scores each translation against its reference with
sacreBLEU's sentence chrF. Below 40 a translation is bad, below 52 it is poor. Prints one JSON line
per warning, and one for all warnings together:

    warned             number of translations with the warning
    precision          share of bad and of poor translations, and mean chrF, among those warned
    base_rate          the same among all translations
    references_warned  number of references that get the warning when force-decoded: false alarms
    sources_warned     number of sources that get the warning when force-decoded as translations:
                       copies

Distortions: joined (2 to 4 pairs become one), typos (one letter in seven is swapped with the next
one), target (references as sources), names (lists of names instead of the pairs, each its own
reference).
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

from tfnmt.cli import run_command
from tfnmt.data.corpora.text_files import Pair, read_pairs
from tfnmt.errors import UsageError
from tfnmt.loading.models import find_model
from tfnmt.progress import progress_bar

if TYPE_CHECKING:
    from tfnmt.decoding.lines import Segment, Signatures, Translation

BAD, POOR = 40, 52
"""Limits of chrF.

A tenth and a quarter of the translations score below them on the validation set of Multi30k, with
the model of benchmarks/notes/quality-flags.md. So do 99% of its references when scored against the
reference of another sentence.
"""

WARNINGS = ("repetition", "short", "long", "copy", "undertranslated")

JOINED_PAIRS = 2, 4
LISTED_NAMES = 3, 8
TYPO_SHARE = 1 / 7
NAMES = (
    "Anna Berger",
    "Paul Schmidt",
    "Maria Lopez",
    "John Miller",
    "Linda Chen",
    "Peter Novak",
    "Sofia Rossi",
    "Jan de Vries",
    "Emma Brown",
    "Ali Hassan",
    "Boston",
    "Berlin",
    "Paris",
    "Oslo",
)

Distortion = Callable[[list[Pair], random.Random], list[Pair]]


def main(values: Any, positional: list[str]) -> None:
    """Translate, score and print the results."""
    if positional or not values.model or len(values.test or ()) != 2:
        raise UsageError("--model, --test=SOURCE,TARGET: give both; see --help")
    source, target = map(Path, values.test)
    text = list(islice(read_pairs(source, target), values.rows))
    pairs = DISTORTIONS[values.distortion](text, random.Random(values.seed))
    signatures = find_model(values.model, {}).load()
    translations = _translate(signatures, pairs)
    sources, references = (_force_decode(signatures, pairs, side) for side in (0, 1))
    chrf = CHRF()
    scores = [
        chrf.sentence_score(translation.best.text, [reference]).score
        for translation, (_, reference) in zip(translations, pairs, strict=True)
    ]
    for name, warnings in (*((one, {one}) for one in WARNINGS), ("any", set(WARNINGS))):
        warned = _with_warning(warnings, translations)
        line = {
            "task": "warnings",
            "test": values.test,
            "distortion": values.distortion,
            "warning": name,
            "translations": len(pairs),
            "warned": len(warned),
            "precision": _shares([scores[n] for n in warned]),
            "base_rate": _shares(scores),
            "references_warned": len(_with_warning(warnings, references)),
            "sources_warned": len(_with_warning(warnings, sources)),
        }
        if values.examples:
            line["examples"] = [
                {
                    "chrf": round(scores[n], 1),
                    "source": pairs[n][0],
                    "translation": translations[n].best.text,
                    "reference": pairs[n][1],
                }
                for n in warned[: values.examples]
            ]
        print(json.dumps(line, ensure_ascii=False), flush=True)


def _translate(signatures: "Signatures", pairs: list[Pair]) -> "list[Translation]":
    """Translate the sources with warnings, as `translate --json` does."""
    from tfnmt.decoding.lines import (
        found_translations,
        read_windows,
        translate_lines,
        with_log_probs,
    )

    translate = with_log_probs(found_translations(signatures, signatures["search"]), signatures)
    translations = translate_lines(translate, read_windows(source for source, _ in pairs))
    return list(progress_bar(translations, "translating", "sentences", len(pairs)))


def _force_decode(signatures: "Signatures", pairs: list[Pair], side: int) -> "list[Translation]":
    """Force-decode one side of the pairs, as if the search had found it."""
    from tfnmt.decoding.lines import (
        Hypothesis,
        Translation,
        read_windows,
        translate_lines,
        with_log_probs,
    )

    def given(segments: "Sequence[Segment]") -> list[Translation]:
        texts = (pairs[segment.position[0]][side] for segment in segments)
        return [Translation((Hypothesis(text, 0.0),)) for text in texts]

    translations = translate_lines(
        with_log_probs(given, signatures), read_windows(source for source, _ in pairs)
    )
    return list(progress_bar(translations, "force-decoding", "sentences", len(pairs)))


def _with_warning(warnings: set[str], translations: "list[Translation]") -> list[int]:
    """Return the indices of the translations that have one of the warnings."""
    return [
        n
        for n, translation in enumerate(translations)
        if warnings.intersection(translation.warnings)
    ]


def _shares(scores: list[float]) -> dict[str, float] | None:
    """Return the shares of bad and of poor translations, and the mean chrF."""
    if not scores:
        return None
    return {
        "bad": round(sum(score < BAD for score in scores) / len(scores), 3),
        "poor": round(sum(score < POOR for score in scores) / len(scores), 3),
        "chrf": round(statistics.fmean(scores), 1),
    }


def _joined(pairs: list[Pair], generator: random.Random) -> list[Pair]:
    rest, joined = iter(pairs), []
    while group := list(islice(rest, generator.randint(*JOINED_PAIRS))):
        sources, targets = zip(*group, strict=True)
        joined.append((" ".join(sources), " ".join(targets)))
    return joined


def _typos(pairs: list[Pair], generator: random.Random) -> list[Pair]:
    def mistype(text: str) -> str:
        letters = list(text)
        for n in range(1, len(letters)):
            if generator.random() < TYPO_SHARE:
                letters[n - 1], letters[n] = letters[n], letters[n - 1]
        return "".join(letters)

    return [(mistype(source), target) for source, target in pairs]


def _names(pairs: list[Pair], generator: random.Random) -> list[Pair]:
    lists = (", ".join(generator.sample(NAMES, generator.randint(*LISTED_NAMES))) for _ in pairs)
    return [(each, each) for each in lists]


DISTORTIONS: dict[str, Distortion] = {
    "none": lambda pairs, _: pairs,
    "joined": _joined,
    "typos": _typos,
    "target": lambda pairs, _: [(target, target) for _, target in pairs],
    "names": _names,
}

FLAGS = flags.FlagValues()
flags.DEFINE_string("model", None, "run or export", flag_values=FLAGS)
flags.DEFINE_list("test", None, "source and reference files: val.en,val.de", flag_values=FLAGS)
flags.DEFINE_enum(
    "distortion", "none", [*DISTORTIONS], "distortion of the sources", flag_values=FLAGS
)
flags.DEFINE_integer(
    "rows", 2000, "maximum number of pairs, from the start of the files", 1, flag_values=FLAGS
)
flags.DEFINE_integer("seed", 1, "random seed of the distortion", flag_values=FLAGS)
flags.DEFINE_integer(
    "examples", 0, "example translations to print per warning", 0, flag_values=FLAGS
)


if __name__ == "__main__":
    run_command(main, FLAGS, __doc__)
