"""Whether a translation depends on what is beside it, and whether its score is what it should be.

    python -m tests.soak.exactness --model=RUN --input=F.en [--alone=200] [--seed=1]

Translates all lines as `tfnmt.translate` does, translates them again in another order, and some of
them alone: strings that differ, and the largest difference of scores. Next, how many are near-ties:
the two best of the beam score within 1e-4 of each other. Then, by beam and greedily, the largest
difference between the score that search gave a translation and what its ids come to when they are
read once more; and how many translations are cut into other pieces than they were put together
from, so that their text has another score. A JSON line each.
"""

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import flags

from tfnmt.cli import run
from tfnmt.data.corpora.text_files import read_lines
from tfnmt.errors import UsageError, UserError
from tfnmt.loading.models import find_run

if TYPE_CHECKING:
    from tfnmt.decoding.lines import Answering, Hypothesis
    from tfnmt.decoding.translator import Translator

NEAR = 1e-4
"""Scores that differ by less are a near-tie."""

SHOWN = 3

FLAGS = flags.FlagValues()
flags.DEFINE_string("model", None, "a run", flag_values=FLAGS)
flags.DEFINE_string("input", None, "lines to translate", flag_values=FLAGS)
flags.DEFINE_integer("alone", 200, "lines to translate alone", 0, flag_values=FLAGS)
flags.DEFINE_integer("seed", 1, "decides their order", flag_values=FLAGS)


def main(values: Any, positional: list[str]) -> None:
    """Translates and compares."""
    if positional or not (values.model and values.input):
        raise UsageError("--model and --input: give both, and nothing else; see --help")
    lines = [line for line in read_lines(Path(values.input)) if line.strip()]
    if not lines:
        raise UserError(f"{values.input}: no text in it")
    model = find_run(Path(values.model))
    translator = model.load_translator()

    from tfnmt.decoding.lines import best
    from tfnmt.decoding.translator import Translator

    draw = random.Random(values.seed)
    answering = best(translator.translate)
    found = _translate(answering, lines)
    ties = _near_ties(translator, lines)

    order = draw.sample(range(len(lines)), len(lines))
    shuffled = _translate(answering, [lines[number] for number in order])
    _compare("shuffled", found, dict(zip(order, shuffled, strict=True)), ties)

    numbers = sorted(draw.sample(range(len(lines)), min(values.alone, len(lines))))
    alone = {number: _translate(answering, [lines[number]])[0] for number in numbers}
    _compare("alone", found, alone, ties)

    shares = {"lines": len(lines), "near_ties": len(ties), "within": NEAR}
    _print("near_ties", beam_size=translator.decoding.beam_size, **shares)

    greedy = translator.decoding.model_copy(update={"beam_size": 1})
    tokenizer_model = model.run.tokenizer_model()
    _read_again(translator, lines)
    _read_again(Translator(translator.transformer, tokenizer_model, greedy), lines)


def _translate(answering: "Answering", lines: Iterable[str]) -> list["Hypothesis"]:
    from tfnmt.decoding.lines import translate_lines, windows

    return [answer.best for answer in translate_lines(answering, windows(lines))]


def _compare(
    task: str, expected: list["Hypothesis"], found: dict[int, "Hypothesis"], ties: set[int]
) -> None:
    """Prints in what some lines' translations differ from the expected ones."""
    differing = [number for number in found if found[number].text != expected[number].text]
    gaps = [
        abs(found[number].score - expected[number].score)
        for number in found if number not in differing
    ]  # fmt: skip
    _print(
        task, lines=len(found), strings_that_differ=len(differing),
        of_which_near_ties=len(ties.intersection(differing)),
        largest_difference_of_scores=max(gaps, default=0.0),
        examples=[[expected[number], found[number]] for number in differing[:SHOWN]],
    )  # fmt: skip


def _in_batches(lines: list[str]) -> Iterator[tuple[list[int], Any]]:
    """The lines' numbers and their texts, as many together as `tfnmt.translate` takes."""
    from tfnmt.decoding.lines import batches, to_tensor

    for numbers in batches([len(line) for line in lines]):
        yield numbers, to_tensor([lines[number] for number in numbers])


def _near_ties(translator: "Translator", lines: list[str]) -> set[int]:
    """The lines whose two best translations score alike; a beam of 1 has none to compare."""
    ties: set[int] = set()
    for numbers, texts in _in_batches(lines):
        scores = translator.nbest(texts)["scores"].numpy()  # [B, K], the best first
        for number, row in zip(numbers, scores.tolist(), strict=True):
            if len(row) > 1 and row[0] - row[1] < NEAR:
                ties.add(number)
    return ties


def _read_again(translator: "Translator", lines: list[str]) -> None:
    """Prints how search's scores and ids compare with those of a second reading."""
    from tfnmt.data.preparation.tokenizer import EOS

    gaps: list[float] = []
    unended, otherwise = 0, 0
    for _, texts in _in_batches(lines):
        source = translator.tokenize(texts)["tokens"]
        found = translator.search(source)
        gaps += _gaps(translator, source, found)
        pieces = translator.tokenize(translator.detokenize(found["tokens"])["translation"])
        for ids, again in zip(found["tokens"].numpy(), pieces["tokens"].numpy(), strict=True):
            if EOS not in ids:
                unended += 1
            elif _real(ids) != _real(again):
                otherwise += 1
    _print(
        "ids", beam_size=translator.decoding.beam_size, lines=len(gaps),
        largest_difference_of_scores=max(gaps), unended=unended, cut_otherwise=otherwise,
        share_cut_otherwise=round(otherwise / len(gaps), 4),
    )  # fmt: skip


def _gaps(translator: "Translator", source: Any, found: dict[str, Any]) -> list[float]:
    """How far each score of search is from what the ids come to."""
    import tensorflow as tf

    from tfnmt.decoding.inspector import token_log_probs
    from tfnmt.decoding.search import length_penalty

    tokens = found["tokens"]
    log_probs = tf.reduce_sum(token_log_probs(translator.transformer, source, tokens), axis=1)
    lengths = tf.math.count_nonzero(tokens, axis=1, dtype=tf.int32)
    scores = log_probs / length_penalty(lengths, translator.decoding.length_penalty)
    return [float(gap) for gap in tf.abs(scores - found["score"])]


def _real(ids: Sequence[int]) -> list[int]:
    """Ids without padding."""
    return [int(token) for token in ids if token]


def _print(task: str, **fields: Any) -> None:
    print(json.dumps({"task": f"exactness.{task}", **fields}, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    run(main, FLAGS, __doc__)
