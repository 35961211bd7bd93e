"""The task of `benchmarks.decoding`, which its baselines share: a model with random weights."""

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from absl import flags

from tfnmt.config import DecodingConfig, ModelConfig
from tfnmt.data.corpora.text_files import read_lines
from tfnmt.data.preparation.tokenizer import UNK
from tfnmt.errors import UsageError

if TYPE_CHECKING:
    import numpy as np

    from tfnmt.decoding.searcher import Searcher

BEAM_SIZE = 4
SOURCE_LENGTH = 16

CALLS = 15
MAX_SECONDS = 10.0
"""Limits of the measured calls of a turn. Their median is the result of the turn."""


class Shape(NamedTuple):
    """The shape of a model."""

    model: ModelConfig
    vocab_size: int


SHAPES = {
    "tiny": Shape(ModelConfig(d_model=16, num_heads=2, d_ff=32), 400),
    "reference": Shape(ModelConfig(d_model=128, d_ff=256), 8000),
    "base": Shape(
        ModelConfig(
            num_encoder_layers=6, num_decoder_layers=6, d_model=512, num_heads=8, d_ff=2048
        ),
        32000,
    ),
    "big": Shape(
        ModelConfig(
            num_encoder_layers=6, num_decoder_layers=6, d_model=1024, num_heads=16, d_ff=4096
        ),
        32000,
    ),
}


def define_flags(values: flags.FlagValues) -> None:
    """Define the flags that describe the task."""
    flags.DEFINE_enum("size", "reference", list(SHAPES), "size of the model", flag_values=values)
    flags.DEFINE_integer("steps", 20, "tokens of each translation", 1, flag_values=values)
    flags.DEFINE_list("batch_sizes", ["1", "16", "64"], "sentences per batch", flag_values=values)
    flags.DEFINE_string(
        "lengths_of",
        None,
        f"text file; its words per line are the lengths of the sources (default: {SOURCE_LENGTH})",
        flag_values=values,
    )


class Task(NamedTuple):
    """The searches to measure. With its random weights no hypothesis ends before `steps` tokens."""

    shape: Shape
    steps: int
    batch_sizes: list[int]
    lengths_of: str | None

    @classmethod
    def from_flags(cls, values: Any) -> "Task":
        """Return the task that the flags describe."""
        sizes = values.batch_sizes
        if not all(size.isdecimal() and int(size) > 0 for size in sizes):
            raise UsageError(f"--batch_sizes={','.join(sizes)}: not numbers; use for example 1,16")
        return cls(SHAPES[values.size], values.steps, [*map(int, sizes)], values.lengths_of)

    def make_searcher(self) -> "Searcher":
        """Create the model, with the same random weights for every system."""
        import keras

        from tfnmt.decoding.searcher import Searcher
        from tfnmt.model.transformer import Transformer

        keras.utils.set_random_seed(1)
        longest = max(map(len, self.sources(max(self.batch_sizes))))
        decoding = DecodingConfig(
            beam_size=BEAM_SIZE,
            length_penalty=0.6,
            max_length=self.steps,
            max_source_length=longest,
        )
        return Searcher(Transformer(self.shape.model, self.shape.vocab_size), decoding)

    def sources(self, batch_size: int) -> list["np.ndarray"]:
        """Return random ids, [n] for each sentence."""
        import numpy as np

        lengths = [SOURCE_LENGTH] * batch_size
        if self.lengths_of and batch_size > 1:
            lines = list(read_lines(Path(self.lengths_of)))[:batch_size]
            lengths = [len(line.split()) + 1 for line in lines]
        generator = np.random.default_rng(0)
        return [
            generator.integers(UNK + 1, self.shape.vocab_size, length).astype("int32")
            for length in lengths
        ]


def median_ms(search: Callable[[], object], streams: int = 1) -> float:
    """Return the median time of a search; of `streams` parallel ones, divided by that number."""
    times: list[float] = []
    with ThreadPoolExecutor(streams) as pool:
        while len(times) < CALLS and sum(times) < MAX_SECONDS:
            start = time.perf_counter()
            for found in [pool.submit(search) for _ in range(streams)]:
                found.result()
            times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times) / streams
