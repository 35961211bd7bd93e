"""Check that translations do not depend on their batch, and that scores are exact.

    python -m tests.soak.exactness --model=RUN [--input=F.en] [--alone=200] [--seed=1]

Prints JSON lines:

    exactness.shuffled   All lines translated again in another order: the number of different
                         strings, and the largest difference of scores.
    exactness.alone      The same for some lines, each translated alone.
    exactness.near_ties  The number of lines whose two best hypotheses have scores within 1e-4.
    exactness.scores     With beam search, then with greedy search: the largest difference between
                         the score of the search and the score of the same token ids when
                         force-decoded. Also the number of translations whose text is tokenized
                         into other ids than the search found. Their text has another score.
"""

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import flags

from benchmarks.measurement import read_sentences
from tfnmt.cli import run_command
from tfnmt.errors import UsageError, UserError
from tfnmt.loading.models import find_run

if TYPE_CHECKING:
    from tfnmt.decoding.lines import BatchTranslator, Hypothesis
    from tfnmt.decoding.translator import Translator

NEAR_TIE = 1e-4
"""Two hypotheses are a near tie if their scores differ by less."""

SHOWN = 3

FLAGS = flags.FlagValues()
flags.DEFINE_string("model", None, "run folder", flag_values=FLAGS)
flags.DEFINE_string(
    "input",
    None,
    "file with sentences, one per line (default: the toy corpus)",
    flag_values=FLAGS,
)
flags.DEFINE_integer("alone", 200, "lines to translate alone", 0, flag_values=FLAGS)
flags.DEFINE_integer("seed", 1, "random seed of the order", flag_values=FLAGS)


def main(values: Any, positional: list[str]) -> None:
    """Translate and compare."""
    if positional or not values.model:
        raise UsageError("--model: give a run folder and no other arguments; see --help")
    lines = [line for line in read_sentences(values.input) if line.strip()]
    if not lines:
        raise UserError(f"{values.input}: only empty lines; add sentences, one per line")
    model = find_run(Path(values.model))
    translator = model.load_translator()

    from tfnmt.decoding.lines import best_translations
    from tfnmt.decoding.translator import Translator

    generator = random.Random(values.seed)
    translate = best_translations(translator.translate)
    expected = _translate(translate, lines)
    ties = _near_ties(translator, lines)

    order = generator.sample(range(len(lines)), len(lines))
    shuffled = _translate(translate, [lines[number] for number in order])
    _compare("shuffled", expected, dict(zip(order, shuffled, strict=True)), ties)

    numbers = sorted(generator.sample(range(len(lines)), min(values.alone, len(lines))))
    alone = {number: _translate(translate, [lines[number]])[0] for number in numbers}
    _compare("alone", expected, alone, ties)

    beam_size = translator.decoding.beam_size
    _print("near_ties", beam_size=beam_size, lines=len(lines), near_ties=len(ties), within=NEAR_TIE)

    greedy = translator.decoding.model_copy(update={"beam_size": 1})
    tokenizer_model = model.run.tokenizer_model()
    _check_scores(translator, lines)
    _check_scores(Translator(translator.transformer, tokenizer_model, greedy), lines)


def _translate(translate: "BatchTranslator", lines: Iterable[str]) -> list["Hypothesis"]:
    from tfnmt.decoding.lines import read_windows, translate_lines

    return [translation.best for translation in translate_lines(translate, read_windows(lines))]


def _compare(
    task: str, expected: list["Hypothesis"], found: dict[int, "Hypothesis"], ties: set[int]
) -> None:
    """Print how the translations of some lines differ from the expected ones."""
    different = [number for number in found if found[number].text != expected[number].text]
    differences = [
        abs(found[number].score - expected[number].score)
        for number in found
        if number not in different
    ]
    _print(
        task,
        lines=len(found),
        different_strings=len(different),
        different_near_ties=len(ties.intersection(different)),
        max_score_difference=max(differences, default=0.0),
        examples=[[expected[number], found[number]] for number in different[:SHOWN]],
    )


def _batches(lines: list[str]) -> Iterator[tuple[list[int], Any]]:
    """Yield line numbers and texts in batches of the size that `tfnmt.translate` uses."""
    from tfnmt.decoding.lines import length_batches, to_strings

    for numbers in length_batches([len(line) for line in lines]):
        yield numbers, to_strings([lines[number] for number in numbers])


def _near_ties(translator: "Translator", lines: list[str]) -> set[int]:
    """Return the lines whose two best hypotheses are a near tie; none with a beam of 1."""
    ties: set[int] = set()
    for numbers, texts in _batches(lines):
        scores = translator.nbest(texts)["scores"].numpy()  # [B, K], best first
        for number, row in zip(numbers, scores.tolist(), strict=True):
            if len(row) > 1 and row[0] - row[1] < NEAR_TIE:
                ties.add(number)
    return ties


def _check_scores(translator: "Translator", lines: list[str]) -> None:
    """Print how scores and ids of the search compare with force-decoding and tokenization."""
    from tfnmt.data.preparation.tokenizer import EOS

    differences: list[float] = []
    truncated, tokenized_differently = 0, 0
    for _, texts in _batches(lines):
        source = translator.tokenize(texts)["tokens"]
        found = translator.search(source)
        differences += _score_differences(translator, source, found)
        tokens = translator.tokenize(translator.detokenize(found["tokens"])["translation"])
        for ids, retokenized in zip(found["tokens"].numpy(), tokens["tokens"].numpy(), strict=True):
            if EOS not in ids:
                truncated += 1
            elif _without_padding(ids) != _without_padding(retokenized):
                tokenized_differently += 1
    _print(
        "scores",
        beam_size=translator.decoding.beam_size,
        lines=len(differences),
        max_score_difference=max(differences),
        truncated=truncated,
        tokenized_differently=tokenized_differently,
        share_tokenized_differently=round(tokenized_differently / len(differences), 4),
    )


def _score_differences(translator: "Translator", source: Any, found: dict[str, Any]) -> list[float]:
    """Return the difference between the score of the search and that of force-decoding."""
    import tensorflow as tf

    from tfnmt.decoding.inspector import token_log_probs
    from tfnmt.decoding.search import length_penalty

    tokens = found["tokens"]
    log_probs = tf.reduce_sum(token_log_probs(translator.transformer, source, tokens), axis=1)
    lengths = tf.math.count_nonzero(tokens, axis=1, dtype=tf.int32)
    scores = log_probs / length_penalty(lengths, translator.decoding.length_penalty)
    return [float(difference) for difference in tf.abs(scores - found["score"])]


def _without_padding(ids: Sequence[int]) -> list[int]:
    return [int(token) for token in ids if token]


def _print(task: str, **fields: Any) -> None:
    print(json.dumps({"task": f"exactness.{task}", **fields}, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    run_command(main, FLAGS, __doc__)
