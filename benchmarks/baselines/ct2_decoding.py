"""Measure beam search of CTranslate2, as a baseline of `benchmarks.decoding`.

    python -m benchmarks.baselines.ct2_decoding [--size=base] [--steps=20] [--batch_sizes=1,64]

The weights are those of `benchmarks.decoding`. For each batch size, several settings are tried once
and the fastest is measured: one translator with one or two threads, or two translators with one
thread each and smaller batches. Prints one JSON line per type of the weights and batch size.
"""

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from absl import flags

from benchmarks.decoding_task import BEAM_SIZE, Task, define_flags, median_ms
from tfnmt.cli import run_command
from tfnmt.config import Config, DataConfig
from tfnmt.runtime.startup import configure_for_single_sentences, import_tensorflow

Threads = tuple[int, int]
"""Translators in parallel, and threads of each."""

THREADS: tuple[Threads, ...] = ((1, 1), (1, 2), (2, 1))
"""The threads to try."""

BATCH_SIZES = (8, 16, 32, 64)
"""Batch sizes to try with translators in parallel. One translator gets all sentences at once."""

FLAGS = flags.FlagValues()
define_flags(FLAGS)


def main(values: Any, positional: list[str]) -> None:
    """Measure all types of the weights and all batch sizes."""
    del positional
    import ctranslate2

    task = Task.from_flags(values)
    configure_for_single_sentences()
    import_tensorflow()
    for quantization in ("float32", "int8"):
        with tempfile.TemporaryDirectory() as folder:
            names = _save(task, quantization, Path(folder) / "model")
            translators = {
                (parallel, threads): ctranslate2.Translator(
                    f"{folder}/model", inter_threads=parallel, intra_threads=threads
                )
                for parallel, threads in THREADS
            }
        for batch_size in task.batch_sizes:
            sources = [[names[number] for number in ids] for ids in task.sources(batch_size)]
            setting, search = min(
                _searches(translators, sources, task.steps), key=lambda each: _seconds(each[1])
            )
            line = {
                "system": f"CTranslate2 {ctranslate2.__version__} {quantization}",
                "batch_size": batch_size,
                "ms": round(median_ms(search), 2),
                **setting,
            }
            print(json.dumps(line), flush=True)


def _save(task: Task, quantization: str, folder: Path) -> list[str]:
    """Write the model; return its token strings by id."""
    from tfnmt.exporting.ctranslate2 import make_spec

    searcher = task.make_searcher()
    names = ["<blank>", "<s>", "</s>", "<unk>"]
    names += [f"t{number}" for number in range(len(names), task.shape.vocab_size)]
    config = Config(
        data=DataConfig(corpus="toy", source="en", target="de"),
        model=task.shape.model,
        decoding=searcher.decoding,
    )
    spec = make_spec(searcher.transformer, config, names)
    spec.config.add_source_eos = False
    spec.validate()
    spec.optimize(quantization)
    folder.mkdir()
    spec.save(str(folder))
    return names


def _searches(
    translators: dict[Threads, Any], sources: list[list[str]], steps: int
) -> Iterator[tuple[dict[str, int], Callable[[], object]]]:
    """Yield settings with their searches."""
    for parallel, threads in translators:
        if parallel == 1:
            rows = [len(sources)]
        else:
            rows = [size for size in BATCH_SIZES if parallel * size <= len(sources)]
        for max_batch_size in rows:
            setting = {
                "inter_threads": parallel,
                "intra_threads": threads,
                "max_batch_size": max_batch_size,
            }
            search = partial(
                translators[parallel, threads].translate_batch,
                sources,
                max_batch_size=max_batch_size,
                beam_size=BEAM_SIZE,
                min_decoding_length=steps,
                max_decoding_length=steps,
            )
            yield setting, search


def _seconds(search: Callable[[], object]) -> float:
    """Return the shortest time of two searches. The first one allocates memory."""
    times = []
    for _ in range(2):
        start = time.perf_counter()
        search()
        times.append(time.perf_counter() - start)
    return min(times)


if __name__ == "__main__":
    run_command(main, FLAGS, __doc__)
