"""Translates a file with CTranslate2.

    python -m benchmarks.baselines.ct2 EXPORT INPUT > OUTPUT

The file does not bear the engine's name: beside a script that is run by its path it would be
imported in the engine's place.

EXPORT comes from `python -m tfnmt.export --format=ctranslate2`. Batches of 64, side by side, one on
each processor; beam 4, a length penalty of 0: the search in which both find the same.
"""

import os
import sys
from pathlib import Path

import ctranslate2
import sentencepiece

from tfnmt.data.corpora.text_files import read_lines

ROWS = 64


def main(folder: Path, lines: list[str]) -> None:
    """A line out for each line in."""
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    lanes = len(os.sched_getaffinity(0))
    translator = ctranslate2.Translator(str(folder), inter_threads=lanes, intra_threads=1)
    results = translator.translate_batch(
        tokenizer.encode(lines, out_type=str), max_batch_size=ROWS, beam_size=4, length_penalty=0
    )
    for result in results:
        print(tokenizer.decode(result.hypotheses[0]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), list(read_lines(Path(sys.argv[2]))))
