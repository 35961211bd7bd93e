"""What a run's CTranslate2 export finds and costs, beside the run itself.

    python -m benchmarks.ctranslate2 --model=RUN --test=src,ref [--turns=3]

Three searches: greedy, the beam at length_penalty 0, and the beam at the run's own length_penalty,
where CTranslate2 divides by another penalty. One JSON line a system and search: BLEU, the share of
sentences that are translated as the run does, sentences/s with tokenizing (the systems in turn,
medians; float16 is computed in float32 on a CPU) and the size on disk.
"""

import json
import logging
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from absl import flags

from tfnmt.cli import run
from tfnmt.config import DecodingConfig
from tfnmt.data.corpora.corpus import Files
from tfnmt.data.corpora.formats import find_texts
from tfnmt.errors import UsageError
from tfnmt.exporting.ctranslate2 import (
    QUANTIZATIONS,
    check_export,
    export_ctranslate2,
    search_options,
)
from tfnmt.loading.models import RunModel, find_run
from tfnmt.progress import bar
from tfnmt.runtime.startup import LANES

ROWS = 64
"""Sentences translated together, as tfnmt does."""

FLAGS = flags.FlagValues()
flags.DEFINE_string("model", None, "a run", flag_values=FLAGS)
flags.DEFINE_list("test", None, "source and references: my.en,my.de", flag_values=FLAGS)
flags.DEFINE_integer("turns", 3, "translations timed, after one that is not", flag_values=FLAGS)

Translate = Callable[[list[str]], list[str]]
Change = dict[str, Any]


class System(NamedTuple):
    """What translates, and what is said about it."""

    name: str
    translate: Translate
    megabytes: float


def main(values: Any, positional: list[str]) -> None:
    """Translates with everything, then prints."""
    if positional or not (values.model and values.test):
        raise UsageError("--model and --test: give both; see --help")
    model = find_run(Path(values.model))
    data = model.config.data
    texts = find_texts([Path(name) for name in values.test], data.source, data.target)
    sources, references = map(list, zip(*Files({"test": texts}).pairs("test"), strict=True))
    with tempfile.TemporaryDirectory() as temporary:
        folders = _export(model, Path(temporary))
        for change in _searches(model.config.decoding):
            _compare(_systems(model, change, folders), change, sources, references, values.turns)


def _searches(decoding: DecodingConfig) -> list[Change]:
    """Changes to the run's `decoding`."""
    beam = {"beam_size": decoding.beam_size}
    return [
        {"beam_size": 1, "length_penalty": 0.0},
        beam | {"length_penalty": 0.0},
        beam | {"length_penalty": decoding.length_penalty},
    ]


def _export(model: RunModel, folder: Path) -> dict[str, Path]:
    """The run as CTranslate2 models, by quantization."""
    check_export(folder)
    translator, tokenizer_model = model.load_translator(), model.run.tokenizer_model()
    return {
        quantization: export_ctranslate2(
            translator.transformer, model.config, tokenizer_model, {}, folder / quantization,
            quantization,
        )
        for quantization in QUANTIZATIONS
    }  # fmt: skip


def _systems(model: RunModel, change: Change, folders: dict[str, Path]) -> list[System]:
    """The run, then its exports, all with the same search."""
    ours = find_run(model.run.path, change)
    systems = [System("tfnmt", _ours(ours), _megabytes(model.weights))]
    for quantization, folder in folders.items():
        translate = _theirs(folder, search_options(ours.config.decoding))
        size = _megabytes(folder / "model.bin")
        systems.append(System(f"CTranslate2 {quantization}", translate, size))
    return systems


def _ours(model: RunModel) -> Translate:
    graph = model.load()["serving_default"]
    from tfnmt.decoding.lines import best, translate_lines, windows

    def translate(sources: list[str]) -> list[str]:
        answers = translate_lines(best(graph), windows(sources))
        return [answer.best.text for answer in answers]

    return translate


def _theirs(folder: Path, options: dict[str, Any]) -> Translate:
    import ctranslate2
    import sentencepiece

    ctranslate2.set_log_level(logging.ERROR)  # else it tells what it does to float16 on a CPU
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    translator = ctranslate2.Translator(str(folder), inter_threads=LANES, intra_threads=1)

    def translate(sources: list[str]) -> list[str]:
        pieces = tokenizer.encode(sources, out_type=str)
        results = translator.translate_batch(pieces, max_batch_size=ROWS, **options)
        return [tokenizer.decode(result.hypotheses[0]) for result in results]

    return translate


def _compare(
    systems: list[System], change: Change, sources: list[str], references: list[str], turns: int
) -> None:
    """Prints a line a system; the first one is what the others are compared with."""
    from tfnmt.evaluation.metrics import bleu

    found = {system.name: system.translate(sources) for system in systems}
    seconds: dict[str, list[float]] = {system.name: [] for system in systems}
    for _ in bar(range(turns), json.dumps(change), "turns", turns):
        for system in systems:
            begun = time.perf_counter()
            system.translate(sources)
            seconds[system.name].append(time.perf_counter() - begun)
    expected = found[systems[0].name]
    for system in systems:
        same = sum(map(str.__eq__, found[system.name], expected))
        line = {
            "task": "ctranslate2",
            "system": system.name,
            **change,
            "sentences": len(sources),
            "bleu": round(bleu(found[system.name], references), 2),
            "same_as_tfnmt": round(same / len(sources), 4),
            "different": len(sources) - same,
            "sentences_per_s": round(len(sources) / statistics.median(seconds[system.name]), 1),
            "megabytes": round(system.megabytes, 2),
        }
        print(json.dumps(line), flush=True)


def _megabytes(path: Path) -> float:
    return path.stat().st_size / 1e6


if __name__ == "__main__":
    run(main, FLAGS, __doc__)
