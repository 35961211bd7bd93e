"""Compare the sizes that `train --minutes` chooses with settings made by hand.

    python -m benchmarks.first_run [--pairs=40000] [--minutes=10] [--system=chosen --system=small]

Trains each system for the same time on the same sample of Tatoeba English-German, one after
another, in processes of their own. Prints one JSON line per system: BLEU of the final model on the
validation set, and the steps and target tokens of the training run. Run it on a machine without
other work. The systems:

- chosen: the sizes that `train` chooses
- small: configs/small.yaml
- regularized: the same with a vocabulary of 2,000, batches of 1,024 and a dropout of 0.3
- deep: the same with the model of the preset multi30k
- wide: the same with the model and the batches of the preset tatoeba
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from absl import flags

from tfnmt.cli import define_data_dir, run_command
from tfnmt.config import DataConfig, preset_path
from tfnmt.data.corpora.catalog import data_folder, open_corpus
from tfnmt.data.corpora.text_files import Pair
from tfnmt.errors import UsageError, UserError
from tfnmt.runs.run import Run

SEED = 1
"""Of the sample of pairs."""

CHOSEN = "chosen"

SETTINGS: dict[str, dict[str, Any]] = {
    "small": {},
    "regularized": {
        "tokenizer.vocab_size": 2000,
        "data.batch_tokens": 1024,
        "model.dropout": 0.3,
    },
    "deep": {
        "tokenizer.vocab_size": 6000,
        "model.num_encoder_layers": 4,
        "model.num_decoder_layers": 4,
        "model.d_ff": 640,
    },
    "wide": {
        "tokenizer.vocab_size": 8000,
        "data.batch_tokens": 4096,
        "model.num_encoder_layers": 4,
        "model.num_decoder_layers": 4,
        "model.d_model": 256,
        "model.d_ff": 1024,
        "training.learning_rate_scale": 0.7,
    },
}
"""Changes to configs/small.yaml."""

FLAGS = flags.FlagValues()
define_data_dir(FLAGS)
flags.DEFINE_integer("pairs", 40_000, "training pairs", 1, flag_values=FLAGS)
flags.DEFINE_float("minutes", 10, "training time of each system", flag_values=FLAGS)
flags.DEFINE_multi_enum(
    "system", [CHOSEN, *SETTINGS], [CHOSEN, *SETTINGS], "systems to train", flag_values=FLAGS
)


def main(values: Any, positional: list[str]) -> None:
    """Train all systems and print the results."""
    if positional:
        raise UsageError(f"{positional[0]}: not expected; see --help")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        text = _write_text(values, folder)
        for system in values.system:
            run = Run(folder / system)
            run_flags = [f"--run_dir={run.path}", f"--cache_dir={folder}"]
            command = [*text, *run_flags, f"--minutes={values.minutes}", *_settings(system)]
            _train(command)
            print(json.dumps(_result(values, system, run)), flush=True)


def _write_text(values: Any, folder: Path) -> list[str]:
    """Write a sample of the training pairs and the validation set. Return the flags for them."""
    data = DataConfig(corpus="tatoeba", source="en", target="de")
    corpus = open_corpus(data, SEED, data_folder(values.data_dir))
    pairs = list(corpus.pairs("train"))
    if values.pairs > len(pairs):
        raise UsageError(f"--pairs={values.pairs}: the corpus has {len(pairs)}; use at most these")
    train = _write(folder, "train", Random(SEED).sample(pairs, values.pairs))
    return [f"--train={train}", f"--val={_write(folder, 'val', list(corpus.pairs('val')))}"]


def _write(folder: Path, name: str, pairs: Sequence[Pair]) -> str:
    """Write aligned files and return their names, separated by a comma."""
    paths = [folder / f"{name}.{language}" for language in ("en", "de")]
    for path, lines in zip(paths, zip(*pairs, strict=True), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return ",".join(map(str, paths))


def _settings(system: str) -> list[str]:
    """Return the flags of a system made by hand, whose time alone ends its training run."""
    if system == CHOSEN:
        return []
    changes = {"training.max_epochs": "null", **SETTINGS[system]}
    changed = [f"--set={key}={value}" for key, value in changes.items()]
    return [f"--config={preset_path('small')}", *changed]


def _train(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "tfnmt.train", *arguments]
    if code := subprocess.run(command, check=False).returncode:
        raise UserError(f"tfnmt.train: exit status {code}; its message is above")


def _result(values: Any, system: str, run: Run) -> dict[str, Any]:
    summary = json.loads(run.summary_path.read_text())
    config = run.config()
    return {
        "task": "first_run",
        "system": system,
        "pairs": values.pairs,
        "minutes": values.minutes,
        "val_bleu": round(summary["averaged_bleu"], 2),
        "steps": summary["step"],
        "target_tokens": summary["tokens"],
        "vocab_size": config.tokenizer.vocab_size,
        "model": config.model.model_dump(include={"d_model", "d_ff", "dropout"}),
        "warmup_steps": config.training.warmup_steps,
    }


if __name__ == "__main__":
    run_command(main, FLAGS, __doc__)
