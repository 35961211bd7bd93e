"""Train a Transformer on parallel text.

    python -m tfnmt.train --dataset=multi30k [--source=en] [--target=de]
    python -m tfnmt.train --train=my.en,my.de [--val=dev.en,dev.de] [--minutes=10]
    python -m tfnmt.train --dataset=tatoeba --directions=en-de,de-en,en-fr,fr-en

The run folder is runs/<dataset>-<source>-<target>, and runs/<dataset>-<languages> for several
directions, such as runs/tatoeba-en+de+fr. With --train, the name of the first file stands for the
dataset: runs/my-en-de. The same command resumes where it stopped. Settings come from the
preset of --dataset (or --config), then from flags, then from --set. Without a preset, train chooses
the sizes by the amount of text and, with --minutes, by the speed of this machine. An existing run
keeps its sizes.
"""

import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from absl import flags

from tfnmt.cli import non_utf8_problems, run_command
from tfnmt.config import END_KEYS, Config, flatten
from tfnmt.data.corpora.catalog import data_folder, split_name
from tfnmt.data.corpora.corpus import Corpus, log_empty_pairs
from tfnmt.data.corpora.directions import by_direction
from tfnmt.data.corpora.text_files import Pair
from tfnmt.errors import UsageError
from tfnmt.experiment import (
    default_run_dir,
    define_experiment,
    has_preset,
    read_data,
    resolve_config,
)
from tfnmt.progress import log
from tfnmt.runs.run import Run
from tfnmt.runtime.cluster import check_slurm, is_chief, is_distributed
from tfnmt.runtime.files import check_folder
from tfnmt.runtime.startup import configure_threads, import_tensorflow
from tfnmt.training.batch_size import fitting_batch_tokens, limit_memory
from tfnmt.training.precision import automatic_precision
from tfnmt.training.sizing import size_run

if TYPE_CHECKING:
    from tfnmt.data.preparation.prepared import Prepared
    from tfnmt.decoding.inspector import Inspector
    from tfnmt.decoding.lines import Signatures
    from tfnmt.decoding.scorer import Scored
    from tfnmt.model.transformer import Transformer
    from tfnmt.training.validation import Evaluate

AUTOMATIC_KEYS = ("data.batch_tokens", "training.precision")
"""Keys whose value may be `auto`. A run keeps the value that was found when it started."""

SAMPLES = 5
"""Validation sentences of a direction that TensorBoard shows."""

FLAGS = flags.FlagValues()
define_experiment(FLAGS)
flags.DEFINE_string("run_dir", None, "the run folder", flag_values=FLAGS)
flags.DEFINE_bool(
    "profile",
    False,
    "profile some steps for TensorBoard (tensorboard-plugin-profile)",
    flag_values=FLAGS,
)


def main(values: Any, positional: list[str]) -> None:
    """Start a training run, resume it, or report that it has finished."""
    if positional:
        raise UsageError(f"{positional[0]}: unexpected argument; see --help")
    check_slurm()
    config = resolve_config(values).of_run()
    run = _open_run(values, config)
    if not has_preset(values):
        earlier = run if run.has_checkpoint() else None
        config = size_run(config, data_folder(values.data_dir), earlier)
    if run.has_checkpoint():
        config = _with_values_of(run.config(), config)
        run.check_config(config)
    if run.finished and run.config() == config:
        _log_finished(run, config)
        return
    run.check_resumable()

    corpus, prepared = read_data(values, config, run)
    split = split_name(config.data, corpus, "val")
    val = {
        direction: list(part.pairs(split))
        for direction, part in by_direction(config.data, corpus).items()
    }
    log_empty_pairs("validation set", [*chain(*val.values())])
    limit_memory()
    if config.training.precision == "auto":
        config = _with_value(config, "training", "precision", _find_precision())
    if config.data.batch_tokens == "auto":
        batch_tokens = _find_batch_tokens(config, prepared)
        config = _with_value(config, "data", "batch_tokens", batch_tokens)
    from tfnmt.data.batching.plan import make_plan

    plan = make_plan(config, prepared)
    configure_threads()
    import_tensorflow()
    from tfnmt.training.loop import Training, train

    def make_evaluate(transformer: "Transformer") -> "Evaluate":
        return _make_evaluate(transformer, config, prepared.tokenizer.model, val)

    with run.locked() if is_chief() else nullcontext():
        _write_or_check_run(run, config, corpus, prepared)
        caught = train(Training(config, prepared, plan, run, make_evaluate, values.profile))
    if caught is not None:
        command = f"python -m tfnmt.train {shlex.join(sys.argv[1:])}"
        log(f"{run.path}: stopped and saved; resume with the same command: {command}")
        sys.exit(128 + caught)
    target = f" --target={config.data.target}" if prepared.tokenizer.language_tokens else ""
    log(f'done; try: python -m tfnmt.translate --model={run.path}{target} "..."')


def _open_run(values: Any, config: Config) -> Run:
    """Return the run folder after checking that it can be used."""
    run = Run(Path(values.run_dir or default_run_dir(values, config)))
    if problems := non_utf8_problems([str(run.path)]):  # TensorFlow does not accept such names
        raise UsageError(*(f"--run_dir: {problem}" for problem in problems))
    if is_chief():
        check_folder(run.path)
        check_folder(run.logs)
        run.check_free()
    return run


def _log_finished(run: Run, config: Config) -> None:
    keys = flatten(config)
    ends = " or ".join(key for key in END_KEYS if keys[key] is not None)
    log(
        f"{run.path}: training has finished; raise {ends} to continue, or set --run_dir for a new "
        "run"
    )


def _write_or_check_run(run: Run, config: Config, corpus: Corpus, prepared: "Prepared") -> None:
    """Write a new run folder, or check the existing one: another process may have created it."""
    if run.has_checkpoint():
        run.check_config(config)
        run.check_data(prepared.identity, prepared.tokenizer.model)
    elif is_chief():
        run.create(config, prepared.tokenizer.model, prepared.identity, corpus.held_out)
    if is_chief():
        run.accept_changes(config)
    log(f"run folder: {run.path}")


def _with_values_of(earlier: Config, config: Config) -> Config:
    """Replace each value of `auto` with that of an earlier configuration."""
    for key, value in flatten(config).items():
        if key in AUTOMATIC_KEYS and value == "auto":
            section, name = key.split(".")
            config = _with_value(config, section, name, flatten(earlier)[key])
    return config


def _with_value(config: Config, section: str, key: str, value: Any) -> Config:
    changed = getattr(config, section).model_copy(update={key: value})
    return config.model_copy(update={section: changed})


def _find_precision() -> str:
    """Choose the value of training.precision=auto for this machine."""
    if is_distributed():
        raise UsageError("training.precision=auto: needs a single host; set the same on all")
    precision, reason = automatic_precision()
    log(f"training.precision={precision}: {reason}")
    return precision


def _find_batch_tokens(config: Config, prepared: "Prepared") -> int:
    """Measure the value of data.batch_tokens=auto on this machine."""
    if is_distributed():
        raise UsageError("data.batch_tokens=auto: needs a single host; set the same number on all")
    log("measuring the memory of a batch")
    batch_tokens = fitting_batch_tokens(config, prepared.tokenizer.vocab_size)
    log(f"data.batch_tokens={batch_tokens}")
    return batch_tokens


def _make_evaluate(
    transformer: "Transformer",
    config: Config,
    tokenizer_model: bytes,
    val: Mapping[str, list[Pair]],
) -> "Evaluate":
    """Build the validation, which uses the same Translator as an export."""
    from tfnmt.decoding.inspector import Inspector, scoring_graph
    from tfnmt.decoding.lines import best_translations, read_windows, translate_lines
    from tfnmt.decoding.scorer import Scorer
    from tfnmt.decoding.signatures import with_target
    from tfnmt.decoding.translator import Translator
    from tfnmt.evaluation.metrics import bleu
    from tfnmt.training.validation import Validation

    translator = Translator(transformer, tokenizer_model, config.decoding)
    inspector = Inspector(transformer, translator.codec, config.decoding)
    targets = {
        direction: direction.split("-")[1] if translator.codec.languages else None
        for direction in val
    }

    graphs = {
        "serving_default": translator.translate,
        "tokenize": translator.tokenize,
        "token_log_probs": scoring_graph(transformer),
    }
    graphs_of = {direction: with_target(graphs, target) for direction, target in targets.items()}

    def translate(sources: Sequence[str], graphs: "Signatures") -> list[str]:
        translator_of_lines = best_translations(graphs["serving_default"])
        results = translate_lines(translator_of_lines, read_windows(sources))
        return [result.best.text for result in results]

    def evaluate() -> Validation:
        scores: dict[str, float] = {}
        scored: list[Scored] = []
        samples: list[tuple[str, str, str]] = []
        for direction, pairs in val.items():
            sources, references = zip(*pairs, strict=True)
            translations = translate(sources, graphs_of[direction])
            scores[direction] = bleu(translations, references)
            scored += Scorer(graphs_of[direction], tokenizer_model, config.decoding).score(pairs)
            samples += [*zip(sources, translations, references, strict=True)][:SAMPLES]
        direction, ((source, reference), *_) = next(iter(val.items()))
        figure = _draw_attention(inspector, source, reference, targets[direction])
        several = scores if len(scores) > 1 else {}
        loss = -sum(each.log_prob for each in scored) / sum(each.tokens for each in scored)
        return Validation(fmean(scores.values()), samples, figure, several, loss)

    return evaluate


def _draw_attention(
    inspector: "Inspector", source: str, reference: str, target: str | None
) -> bytes:
    """Draw the cross-attention of the last decoder layer for one pair, as PNG."""
    from tfnmt.plots.attention import draw_attention
    from tfnmt.plots.style import to_png

    maps = inspector.attention_maps(source, reference, target)
    title = "cross-attention of the last layer"
    return to_png(draw_attention(maps.cross[-1], maps.target, maps.source, title))


if __name__ == "__main__":
    run_command(main, FLAGS, __doc__)
