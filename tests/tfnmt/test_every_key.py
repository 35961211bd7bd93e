"""Every configuration key has an effect: changing it changes the result of a probe."""

import copy
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.util import event_pb2

from tfnmt import translate
from tfnmt.config import Config, build_config, flatten, merge, parse_overrides
from tfnmt.data.batching.batches import Batches, gather
from tfnmt.data.batching.plan import Pairs, make_plan
from tfnmt.data.corpora.catalog import open_corpus
from tfnmt.data.preparation.prepared import Prepared, prepare
from tfnmt.data.preparation.tokenizer import train_tokenizer
from tfnmt.decoding.translator import Translator
from tfnmt.diversification.plan import make_stages
from tfnmt.experiment import reused_tokenizer
from tfnmt.loading.models import RunModel
from tfnmt.model.transformer import Transformer
from tfnmt.runs.run import Run
from tfnmt.training import callbacks, tensorboard
from tfnmt.training.checkpoints import Progress
from tfnmt.training.loop import Training, _finish, has_ended, last_step
from tfnmt.training.trainer import Trainer, make_trainer
from tfnmt.training.validation import EvaluationModel, Validation, Validator

pytestmark = pytest.mark.slow  # each key trains or translates

FIGURE = tf.io.encode_png(tf.zeros([2, 2, 3], tf.uint8)).numpy()

DIRTY = {
    "nothing": ("a", " "),
    "replacement character": ("b \ufffd", "e"),
    "one side much longer": ("a", "e f g h e f g h e f g h"),
    "identical sides": ("d e f", "d e f"),
    "another script": ("b", "Ω Ω"),
    "validation pair": ("a b", "e f"),
}
"""Pairs that each violate one cleaning rule."""

DIRTY_SOURCE, DIRTY_TARGET = (
    "".join(f"{pair[side]}\n" for pair in DIRTY.values()) for side in (0, 1)
)

FILES = {
    "train.en": "a b c d\nb c d e\nＡ Ａ\n" * 8 + DIRTY_SOURCE,
    "train.de": "e f g h\nf g\nh\n" * 8 + DIRTY_TARGET,
    "other.en": "rest sets\n" * 20,
    "other.de": "test trees\n" * 20,
    "three.tsv": "en\tde\tfr\n" + "a b\te f\tc d\n" * 20,
    "few.en": "a b c d\n" * 3,
    "few.fr": "e f g h\n" * 3,
    "val.en": "a b\n",
    "val.fr": "c d\n",
    "val.de": "e f\n",
}
BASE = {
    "data": {
        "corpus": None,
        "train": ("train.en", "train.de"),
        "val": ("val.en", "val.de"),
        "max_length": 16,
        "batch_tokens": 64,
    },
    "tokenizer": {"vocab_size": 272},
    "model": {
        "num_encoder_layers": 1,
        "num_decoder_layers": 1,
        "d_model": 8,
        "num_heads": 2,
        "d_ff": 8,
        "dropout": 0.1,
        "attention_dropout": 0.1,
        "ffn_dropout": 0.1,
    },
    "training": {"max_steps": 1000, "max_epochs": 100, "warmup_steps": 1},
    "decoding": {"max_source_length": 6, "max_extra_length": 4},
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def prepared(config: Config) -> Prepared:
    corpus = open_corpus(config.data, config.training.seed, Path("data"))
    return prepare(config, corpus, Path("cache"), reused_tokenizer(config))


def transformer(config: Config) -> Transformer:
    keras.utils.set_random_seed(1)
    model = Transformer(config.model, 272)
    for weight in model.weights:  # also changes biases and norms, which start as 0 and 1
        weight.assign_add(0.1 * np.random.default_rng(0).standard_normal(weight.shape))
    return model


# --- Probes: each returns a comparable value that depends on the configuration -------------------


def text(config: Config) -> Any:
    corpus = open_corpus(config.data, config.training.seed, Path("data"))
    return [next(iter(corpus.pairs(split))) for split in ("train", "val")]


def ids(config: Config) -> Any:
    corpus = prepared(config)
    return corpus.tokenizer.model, len(corpus.source)


def reused_ids(config: Config) -> Any:
    other = Run(Path("other_run"))
    lines = (FILES["other.en"] + FILES["other.de"]).splitlines()
    other.create(build_config(BASE), train_tokenizer(lines, config.tokenizer), "prepared")
    return ids(config)


def batches(config: Config) -> Any:
    plan = make_plan(config, prepared(config))
    return len(plan.rows), [plan.batch(step).pairs.rows.tolist() for step in range(6)]


def kept_pairs(config: Config) -> Any:
    corpus = prepared(config)
    return corpus.source_lines.between(0, len(corpus.source)), len(corpus.source)


def bpe_samples(config: Config) -> Any:
    batches = Batches(make_plan(config, prepared(config)))
    return [side.tolist() for step in range(3) for part in batches.shards(step, 1) for side in part]


def logits(config: Config) -> Any:
    model = transformer(config)
    seed = tf.constant([1, 2])
    return np.array(model(np.array([[5, 6, 2]]), np.array([[1, 7, 8]]), seed=seed)).tolist()


def updated_weights(config: Config) -> Any:
    trainer = Trainer(transformer(config), config.training)
    corpus = prepared(config)
    batch = gather(Pairs(corpus.source, corpus.target, np.arange(4)), 16)
    logs = [trainer.train_step(((batch.source, batch.target_in), batch.target_out)) for _ in "ab"]
    return float(logs[-1]["loss"]), [weight.numpy().tolist() for weight in trainer.weights]


def evaluated_weights(config: Config) -> Any:
    trainer = Trainer(transformer(config), config.training)
    corpus = prepared(config)
    batch = gather(Pairs(corpus.source, corpus.target, np.arange(4)), 16)
    for _ in "ab":
        trainer.train_step(((batch.source, batch.target_in), batch.target_out))
    evaluation_model = transformer(config)
    trainer.write_weights(evaluation_model)
    return [weight.numpy().tolist() for weight in evaluation_model.weights]


def trained_weights(config: Config) -> Any:
    trainer = make_trainer(config, 272, tf.distribute.get_strategy())
    return [weight.path for weight in trainer.transformer.trainable_variables]


def layer_types(config: Config) -> Any:
    return [type(layer).__name__ for layer in transformer(config)._flatten_layers()]


def compute_dtype(config: Config) -> Any:
    try:
        return make_trainer(config, 272, tf.distribute.get_strategy()).transformer.compute_dtype
    finally:
        keras.config.set_dtype_policy("float32")


def end(config: Config) -> Any:
    plan = make_plan(config, prepared(config))
    progress = Progress(seconds=90, tokens=90, worse=3)
    return last_step(config.training, plan), has_ended(config.training, plan, progress)


def checkpoints(config: Config) -> Any:
    run = Run(Path("run"))
    progress = Progress()
    checkpointer = callbacks.Checkpointer(run, config.training, progress)
    checkpointer.set_model(Trainer(transformer(config), config.training))
    for progress.step in range(1, 9):
        checkpointer.on_train_batch_end(progress.step)
    return [path.name for path in run.checkpoints().all()]


def validations(config: Config) -> Any:
    progress, validated = Progress(best_bleu=100.0), []

    def evaluate() -> Validation:
        validated.append(progress.step)
        return Validation(0.0, [], FIGURE)

    writer = tf.summary.create_noop_writer()
    Path("run").mkdir(exist_ok=True)
    evaluation_model = EvaluationModel(transformer(config), evaluate)
    validator = Validator(evaluation_model, writer, Run(Path("run")), progress)
    validator.set_model(Trainer(transformer(config), config.training))
    for progress.step in range(1, 9):
        validator.on_train_batch_end(progress.step)
    return validated


def curve_points(config: Config) -> Any:
    progress = Progress()
    writer = tf.summary.create_file_writer("logs")
    curves = tensorboard.Curves(writer, progress, config.training.log_steps)
    curves.set_model(Trainer(transformer(config), config.training))
    names = ("loss", "cross_entropy", "accuracy", "gradient_norm", "learning_rate", "padding")
    logs = dict.fromkeys(names, 1.0)
    for progress.step in range(1, 9):
        progress.busy += 1
        curves.on_train_batch_end(progress.step, logs)
    writer.close()
    return [step for step, _ in read_and_remove_events()]


def read_and_remove_events() -> list[tuple[int, str]]:
    """Return step and tag of every TensorBoard value, and remove the files."""
    files = sorted(Path("logs").iterdir())
    records = tf.data.TFRecordDataset([str(file) for file in files])
    events = [event_pb2.Event.FromString(record) for record in records.as_numpy_iterator()]
    for file in files:
        file.unlink()
    return [(event.step, value.tag) for event in events for value in event.summary.value]


def histograms(config: Config) -> Any:
    if config.training.histogram_steps is None:
        return []
    corpus = prepared(config)
    progress = Progress()
    writer = tf.summary.create_file_writer("logs")
    batches = Batches(make_plan(config, corpus))
    callback = tensorboard.Histograms(writer, progress, batches, config.training.histogram_steps)
    callback.set_model(Trainer(transformer(config), config.training))
    for progress.step in range(1, 4):
        callback.on_train_batch_end(progress.step)
    writer.close()
    return read_and_remove_events()


def averaged(config: Config) -> Any:
    run = Run(Path("run"))
    progress = Progress()
    trainer = Trainer(transformer(config), config.training)
    checkpointer = callbacks.Checkpointer(run, config.training, progress)
    checkpointer.set_model(trainer)
    for progress.step in range(1, 9):
        checkpointer.on_train_batch_end(progress.step)
    corpus = prepared(config)
    validation = Validation(0.0, [], FIGURE)
    plan = make_plan(config, corpus)
    training = Training(config, corpus, plan, run, lambda _: lambda: validation)
    _finish(training, trainer, progress)
    return run.summary_path.read_text()


def translations(config: Config) -> Any:
    translator = Translator(transformer(config), prepared(config).tokenizer.model, config.decoding)
    outputs = translator.translate(tf.constant(["a b c d e f g h a b c d", "a"]))
    return [outputs[name].numpy().tolist() for name in ("translation", "score", "truncated")]


def splits_by_default(config: Config) -> bool:
    values = copy.deepcopy(translate.FLAGS)
    values(["translate"])
    return translate._splits(values, RunModel(Run(Path("run")), Path("weights"), config))


def stages(config: Config) -> Any:
    return make_stages(Path("diversified"), config)


Probe = Callable[[Config], Any]
Settings = dict[str, str]

COPY = {
    "data.corpus": "copy",
    "data.train": "null",
    "data.val": "null",
    "data.source": "digits",
    "data.target": "copied",
}
REVERSE = {"data.corpus": "reverse", "data.target": "reversed"}
THREE_LANGUAGES = {
    "data.train": "[three.tsv]",
    "data.val": "[three.tsv]",
    "data.source": "en",
    "data.target": "de",
}

TWO_PAIRS = {
    "data.train": "[train.en, train.de, few.en, few.fr]",
    "data.val": "[val.en, val.de, val.en, val.fr]",
    "data.directions": "[en-de, en-fr]",
    "tokenizer.vocab_size": "280",
}

GROUPS: list[tuple[Probe, Settings, Settings]] = [
    # probe, settings before, changes: each change is a case
    (text, {}, {"data.train": "[other.en, other.de]", "data.val": "[train.en, train.de]"}),
    (
        ids,
        {},
        {
            "data.max_pairs": "10",
            "tokenizer.vocab_size": "273",
            "tokenizer.normalization": "nfkc",
        },
    ),
    (
        kept_pairs,
        {},
        {
            "cleaning.empty": "false",
            "cleaning.broken": "true",
            "cleaning.max_characters": "10",
            "cleaning.max_ratio": "5",
            "cleaning.identical": "true",
            "cleaning.scripts": "true",
            "cleaning.duplicates": "true",
            "cleaning.leakage": "false",
        },
    ),
    (bpe_samples, {"data.train": "[other.en, other.de]"}, {"data.bpe_dropout": "0.5"}),
    (ids, {"tokenizer.vocab_size": "280"}, {"data.directions": "[en-de, de-en]"}),
    (batches, TWO_PAIRS, {"data.direction_temperature": "5"}),
    (batches, {}, {"data.max_length": "6", "data.batch_tokens": "32", "training.seed": "2"}),
    (
        logits,
        {},
        {
            "model.num_encoder_layers": "2",
            "model.num_decoder_layers": "2",
            "model.d_model": "16",
            "model.num_heads": "4",
            "model.d_ff": "16",
            "model.dropout": "0.5",
            "model.attention_dropout": "0.5",
            "model.ffn_dropout": "0.5",
            "model.activation": "gelu",
            "model.norm_first": "false",
            "model.norm_epsilon": "0.1",
            "model.tie_embeddings": "none",
        },
    ),
    (
        end,
        {},
        {
            "training.max_steps": "5",
            "training.max_epochs": "1",
            "training.max_minutes": "1",
            "training.max_tokens": "80",
            "training.patience": "2",
        },
    ),
    (layer_types, {}, {"model.attention": "flash"}),
    (compute_dtype, {}, {"training.precision": "mixed_bfloat16"}),
    (evaluated_weights, {}, {"training.ema_decay": "0.5"}),
    (trained_weights, {}, {"training.freeze": "[encoder]"}),
    (reused_ids, {}, {"training.init_from": "other_run", "tokenizer.from_run": "other_run"}),
    (updated_weights, {"model.dropout": "0.5"}, {"training.device_tokens": "16"}),
    (
        updated_weights,
        {},
        {
            "training.warmup_steps": "50",
            "training.learning_rate_scale": "2.0",
            "training.adam_beta_1": "0.5",
            "training.adam_beta_2": "0.5",
            "training.adam_epsilon": "0.1",
            "training.clip_norm": "0.001",
            "training.label_smoothing": "0.4",
        },
    ),
    (
        updated_weights,
        {"model.dropout": "0.5"},
        {"training.r_drop": "5.0", "training.simcut": "3.0"},
    ),
    (updated_weights, {"training.simcut": "3.0"}, {"training.simcut_share": "0.5"}),
    (histograms, {}, {"training.histogram_steps": "2"}),
    (
        checkpoints,
        {"training.checkpoint_steps": "1"},
        {"training.checkpoint_steps": "2", "training.keep_last": "7"},
    ),
    (validations, {"training.validation_steps": "1"}, {"training.validation_steps": "2"}),
    (averaged, {"training.checkpoint_steps": "1"}, {"training.average_last": "2"}),
    (curve_points, {"training.log_steps": "1"}, {"training.log_steps": "2"}),
    (
        translations,
        {},
        {
            "decoding.beam_size": "1",
            "decoding.length_penalty": "2.0",
            "decoding.max_source_length": "4",
            "decoding.max_extra_length": "2",
            "decoding.max_length": "3",
            "decoding.no_repeat_ngram": "2",
        },
    ),
    (splits_by_default, {}, {"decoding.split_sentences": "true"}),
    (
        stages,
        {"diversification.forward": "[sampling]"},
        {
            "diversification.teachers": "2",
            "diversification.rounds": "2",
            "diversification.real_copies": "2",
            "diversification.forward": "[beam]",
            "diversification.backward": "[]",
            "diversification.temperature": "0.5",
            "diversification.tag": "<bt>",
            "diversification.forward_teacher": "[model.d_ff=16]",
            "diversification.backward_teacher": "[model.d_ff=16]",
            "diversification.student": "[model.d_ff=16]",
        },
    ),
    # A beam of the whole vocabulary. Random weights do not prefer EOS, but it must end hypotheses.
    (translations, {"decoding.beam_size": "272"}, {"decoding.min_length": "3"}),
]

CASES: list[tuple[str, Probe, Settings, Settings]] = [
    # key, probe, settings before, settings after
    ("data.corpus", text, COPY, COPY | REVERSE),
    ("data.source", text, THREE_LANGUAGES, THREE_LANGUAGES | {"data.source": "fr"}),
    ("data.target", text, THREE_LANGUAGES, THREE_LANGUAGES | {"data.target": "fr"}),
    *(
        (key, probe, before, before | {key: value})
        for probe, before, changes in GROUPS
        for key, value in changes.items()
    ),
]


def make_config(settings: Settings) -> Config:
    overrides = parse_overrides([f"{key}={value}" for key, value in settings.items()])
    return build_config(merge(BASE, overrides))


def test_every_key_has_a_case() -> None:
    assert sorted(case[0] for case in CASES) == sorted(flatten(Config()))


@pytest.mark.parametrize(("key", "probe", "before", "after"), CASES, ids=[c[0] for c in CASES])
def test_changing_a_key_changes_its_probe(
    key: str,
    probe: Probe,
    before: Settings,
    after: Settings,
    folder: Path,
) -> None:
    original, changed = make_config(before), make_config(after)
    assert flatten(original)[key] != flatten(changed)[key]
    assert repeat(probe, original) != probe(changed)


@cache
def repeat(probe: Probe, config: Config) -> Any:
    """Return the result of a probe, after checking that it is the same twice."""
    result = probe(config)
    shutil.rmtree("run", ignore_errors=True)
    assert result == probe(config)
    shutil.rmtree("run", ignore_errors=True)
    return result
