"""Prepares a corpus for training: downloads, cleans, learns the tokenizer, encodes.

    python -m tfnmt.prepare --list
    python -m tfnmt.prepare --dataset=multi30k [--source=en] [--target=de]
    python -m tfnmt.prepare --train=my.tmx --source=en --target=de [--val=dev.en,dev.de]

Training does the same by itself where it has not been done. The same command again finds it done.
"""

from typing import Any

from absl import flags

from tfnmt.cli import define_experiment, read_data, resolve, run
from tfnmt.data.corpora.catalog import listing
from tfnmt.errors import UsageError
from tfnmt.progress import say

FLAGS = flags.FlagValues()
define_experiment(FLAGS)
flags.DEFINE_bool("list", False, "list the corpora that there are", flag_values=FLAGS)


def main(values: Any, positional: list[str]) -> None:
    """Prepares the corpus and prints its report."""
    if positional:
        raise UsageError(f"{positional[0]}: not expected; see --help")
    if values.list:
        print(listing())
        return
    _, prepared = read_data(values, resolve(values))
    print(prepared.table)
    say(f"prepared in {prepared.folder}; report.html there shows more")


if __name__ == "__main__":
    run(main, FLAGS, __doc__)
