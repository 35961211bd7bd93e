"""Translate a file with CTranslate2.

    python -m benchmarks.baselines.ct2 EXPORT INPUT [BATCH_SIZE] > OUTPUT

EXPORT comes from `python -m tfnmt.export --format=ctranslate2`. Translates batches of 64 sentences,
or of BATCH_SIZE, one batch per CPU core at a time, with a beam of 4 and a length penalty of 0. With
these settings, CTranslate2 and tfnmt find the same translations. int8 is faster with 16 sentences.

This file must not be named ctranslate2.py. Python would import it instead of the package when
another script of this folder is run by its path.
"""

import os
import sys
from pathlib import Path

import ctranslate2
import sentencepiece

from tfnmt.data.corpora.text_files import read_lines

BATCH_SIZE = 64


def main(folder: Path, lines: list[str], batch_size: int) -> None:
    """Print a translation per line."""
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    parallel_batches = len(os.sched_getaffinity(0))
    translator = ctranslate2.Translator(
        str(folder), inter_threads=parallel_batches, intra_threads=1
    )
    results = translator.translate_batch(
        tokenizer.encode(lines, out_type=str),
        max_batch_size=batch_size,
        beam_size=4,
        length_penalty=0,
    )
    for result in results:
        print(tokenizer.decode(result.hypotheses[0]))


if __name__ == "__main__":
    _, export, source, *size = sys.argv
    main(Path(export), list(read_lines(Path(source))), int(size[0]) if size else BATCH_SIZE)
