"""Prepare a corpus for training: download it, clean it, train the tokenizer and encode the text.

    python -m tfnmt.prepare --list
    python -m tfnmt.prepare --dataset=multi30k [--source=en] [--target=de]
    python -m tfnmt.prepare --dataset=tatoeba --directions=en-de,de-en,en-fr
    python -m tfnmt.prepare --train=my.tmx --source=en --target=de [--val=dev.en,dev.de]

This command is optional: tfnmt.train prepares a corpus that is not prepared yet. A repeated command
uses the existing result.

--executor=ray cleans and encodes shards of the corpus on workers of Ray. The result is the same.
"""

from functools import partial
from typing import Any

from absl import flags

from tfnmt.cli import define_executor, executor_problems, open_executor, run_command, uses_shards
from tfnmt.data.corpora.catalog import data_folder, listing
from tfnmt.errors import UsageError
from tfnmt.experiment import define_experiment, has_preset, read_data, resolve_config
from tfnmt.progress import log
from tfnmt.runtime.shards import SHARD_LINES
from tfnmt.training.sizing import size_run

FLAGS = flags.FlagValues()
define_experiment(FLAGS)
define_executor(FLAGS)
flags.DEFINE_bool("list", False, "list the named corpora", flag_values=FLAGS)


def main(values: Any, positional: list[str]) -> None:
    """Prepare the corpus and print its report."""
    if positional:
        raise UsageError(f"{positional[0]}: unexpected argument; see --help")
    if problems := executor_problems(values):
        raise UsageError(*problems)
    if values.list:
        print(listing())
        return
    config = resolve_config(values).of_run()
    if not has_preset(values):
        config = size_run(config, data_folder(values.data_dir))
    shards = None
    if uses_shards(values):
        from tfnmt.data.preparation.sharded import Shards

        shards = Shards(partial(open_executor, values), values.shard_lines or SHARD_LINES)
    _, prepared = read_data(values, config, shards=shards)
    print(prepared.table)
    report = "*/report.html" if prepared.directions else "report.html"
    log(f"prepared corpus: {prepared.folder}; its {report} has more details")


if __name__ == "__main__":
    run_command(main, FLAGS, __doc__)
