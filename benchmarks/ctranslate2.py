"""Compare the quality, speed and size of a run's CTranslate2 exports with the run itself.

    python -m benchmarks.ctranslate2 --model=RUN --test=src,ref [--turns=3]

Measures greedy search, beam search with length_penalty 0, and beam search with the run's own
length_penalty. In the last case, CTranslate2 uses a different formula for the penalty. Prints one
JSON line per system and search: BLEU, the share of translations that equal those of the run,
sentences per second including tokenization, and the size on disk. The speed is the median over the
turns, in which all systems alternate. On a CPU, CTranslate2 computes float16 models in float32.
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

from tfnmt.cli import run_command
from tfnmt.config import DecodingConfig
from tfnmt.data.corpora.corpus import Files
from tfnmt.data.corpora.discovery import find_texts
from tfnmt.errors import UsageError
from tfnmt.exporting import QUANTIZATIONS
from tfnmt.exporting.ctranslate2 import (
    check_export,
    export_ctranslate2,
    search_options,
)
from tfnmt.loading.models import RunModel, find_run
from tfnmt.progress import progress_bar
from tfnmt.runtime.startup import PARALLEL_STREAMS

BATCH_SIZE = 64
"""Sentences per batch, as in tfnmt."""

FLAGS = flags.FlagValues()
flags.DEFINE_string("model", None, "run folder", flag_values=FLAGS)
flags.DEFINE_list("test", None, "source and reference files: my.en,my.de", flag_values=FLAGS)
flags.DEFINE_integer(
    "turns", 3, "measured translations, after one that is not counted", flag_values=FLAGS
)

Translate = Callable[[list[str]], list[str]]
DecodingChanges = dict[str, Any]


class System(NamedTuple):
    """A system to measure."""

    name: str
    translate: Translate
    megabytes: float  # size on disk


def main(values: Any, positional: list[str]) -> None:
    """Export the run, measure all systems and print the results."""
    if positional or not (values.model and values.test):
        raise UsageError("--model, --test: give both; see --help")
    model = find_run(Path(values.model))
    data = model.config.data
    texts = find_texts(values.test, data.source, data.target)
    sources, references = map(list, zip(*Files({"test": texts}).pairs("test"), strict=True))
    with tempfile.TemporaryDirectory() as temporary:
        folders = _export(model, Path(temporary))
        for changes in _searches(model.config.decoding):
            systems = _systems(model, changes, folders)
            _compare(systems, changes, sources, references, values.turns)


def _searches(decoding: DecodingConfig) -> list[DecodingChanges]:
    """Return changes to the run's decoding configuration, one per search."""
    beam = {"beam_size": decoding.beam_size}
    return [
        {"beam_size": 1, "length_penalty": 0.0},
        beam | {"length_penalty": 0.0},
        beam | {"length_penalty": decoding.length_penalty},
    ]


def _export(model: RunModel, folder: Path) -> dict[str, Path]:
    """Export the run with each quantization; return the folders."""
    check_export(folder)
    translator, tokenizer_model = model.load_translator(), model.run.tokenizer_model()
    return {
        quantization: export_ctranslate2(
            translator.transformer,
            model.config,
            tokenizer_model,
            {},
            folder / quantization,
            quantization,
        )
        for quantization in QUANTIZATIONS
    }


def _systems(model: RunModel, changes: DecodingChanges, folders: dict[str, Path]) -> list[System]:
    """Return the run, then its exports, all with the same search."""
    run_model = find_run(model.run.path, changes)
    systems = [System("tfnmt", _tfnmt_translate(run_model), _megabytes(model.weights))]
    for quantization, folder in folders.items():
        translate = _ctranslate2_translate(folder, search_options(run_model.config.decoding))
        size = _megabytes(folder / "model.bin")
        systems.append(System(f"CTranslate2 {quantization}", translate, size))
    return systems


def _tfnmt_translate(model: RunModel) -> Translate:
    graph = model.load()["serving_default"]
    from tfnmt.decoding.lines import best_translations, read_windows, translate_lines

    def translate(sources: list[str]) -> list[str]:
        translations = translate_lines(best_translations(graph), read_windows(sources))
        return [translation.best.text for translation in translations]

    return translate


def _ctranslate2_translate(folder: Path, options: dict[str, Any]) -> Translate:
    import ctranslate2
    import sentencepiece

    ctranslate2.set_log_level(logging.ERROR)  # no warning about float16 on a CPU
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    translator = ctranslate2.Translator(
        str(folder), inter_threads=PARALLEL_STREAMS, intra_threads=1
    )

    def translate(sources: list[str]) -> list[str]:
        tokens = tokenizer.encode(sources, out_type=str)
        results = translator.translate_batch(tokens, max_batch_size=BATCH_SIZE, **options)
        return [tokenizer.decode(result.hypotheses[0]) for result in results]

    return translate


def _compare(
    systems: list[System],
    changes: DecodingChanges,
    sources: list[str],
    references: list[str],
    turns: int,
) -> None:
    """Print a line per system. The first system is the one to which the others are compared."""
    from tfnmt.evaluation.metrics import bleu

    found = {system.name: system.translate(sources) for system in systems}
    seconds: dict[str, list[float]] = {system.name: [] for system in systems}
    for _ in progress_bar(range(turns), json.dumps(changes), "turns", turns):
        for system in systems:
            start = time.perf_counter()
            system.translate(sources)
            seconds[system.name].append(time.perf_counter() - start)
    expected = found[systems[0].name]
    for system in systems:
        same = sum(map(str.__eq__, found[system.name], expected))
        line = {
            "task": "ctranslate2",
            "system": system.name,
            **changes,
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
    run_command(main, FLAGS, __doc__)
