"""What well-known mistakes do to a Transformer: each put in from outside, on the toy corpus.

    python -m benchmarks.faults NAME [--work_dir=runs/faults] [--set=model.norm_first=false]
    python -m benchmarks.faults NAME --tests
    python -m benchmarks.faults pictures --output=docs/images

NAME is `none`, for a sound run, or a fault: `--help` lists them. Trains configs/toy.yaml for 500
updates and prints a JSON line: the mean loss of the last 50, BLEU on 300 validation sentences, how
many texts the four best translations of a sentence are, and a translation. A fault of the search
needs no training: it translates with the sound run, which must be there. --tests runs those of our
tests that are near the fault, with the fault in place, and prints which ones fail. `pictures` draws
the losses and the cross-attention of all that was measured, faults-loss.png and
faults-attention.png.

The code stays as it is: a fault takes the place of one function in this process alone.
"""

import importlib
import json
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from absl import flags

from tfnmt.errors import UsageError, nearest
from tfnmt.flags import run as run_command
from tfnmt.quiet import import_tensorflow
from tfnmt.run import Run, home, write_atomically

Tensor = Any
Function = Callable[..., Any]

SOUND, PICTURES = "none", "pictures"
"""Names that are not of faults."""

ATTENTION_FILE = "attention.npz"
"""In a run's folder: where the last decoder layer looks, the mean of its heads."""

STEPS = 500
LAST_LOSSES = 50
"""Updates whose losses are averaged: what a batch comes to depends on its sentences."""

SENTENCES = 300
"""Of the validation text, translated: a faulty model that does not end takes its time."""

SHOWN = 6
"""The one of them that is printed."""

SETTINGS = {
    "training.max_steps": STEPS, "training.checkpoint_steps": STEPS, "training.keep_last": 1,
    "training.average_last": 1, "training.validation_steps": 10 * STEPS, "training.log_steps": 1,
}  # fmt: skip


class Fault(NamedTuple):
    """A mistake: what it is, where it goes, and what takes that place."""

    says: str
    place: str  # module:function, or module:Class.function
    broken: Callable[[Function], Function]  # given the sound one
    tests: tuple[str, ...]  # of tests/tfnmt/: those nearest to the place
    trains: bool = True  # else it is a fault of the search


def main(values: Any, positional: list[str]) -> None:
    """Puts the fault in; then trains and measures, or tests."""
    if len(positional) != 1:
        raise UsageError("NAME: give one; see --help")
    (name,) = positional
    known = [SOUND, PICTURES, *FAULTS]
    if name not in known:
        hint = nearest(name, known)
        raise UsageError(f"{name}: no such fault; {hint}there are {', '.join(known)}")
    fault = FAULTS.get(name)
    if values.tests and fault is None:
        raise UsageError(f"--tests: goes with a fault, not with {name}")
    folder = Path(values.work_dir or home() / "runs" / "faults")
    import_tensorflow()
    if name == PICTURES:
        _draw(folder, Path(values.output or "."))
        return
    if fault is not None:
        plant(fault)
    if values.tests and fault is not None:
        _test(name, fault)
        return
    run = Run(folder / (name if fault is None or fault.trains else SOUND))
    if fault is None or fault.trains:
        _train(run, values.set)
    elif not run.finished:
        raise UsageError(f"{name}: is of the search; first run `python -m benchmarks.faults none`")
    _measure(name, run)


def plant(fault: Fault) -> None:
    """Puts the broken function where the sound one is, also where that was imported before."""
    module_name, path = fault.place.split(":")
    owner: Any = importlib.import_module(module_name)
    *classes, name = path.split(".")
    for each in classes:
        owner = getattr(owner, each)
    sound = getattr(owner, name)
    broken = fault.broken(sound)
    setattr(owner, name, broken)
    for module in [module for key, module in sys.modules.items() if key.startswith("tfnmt")]:
        for key, value in list(vars(module).items()):
            if value is sound:
                setattr(module, key, broken)


def _train(run: Run, changes: list[str]) -> None:
    """The train command, but for what the settings change; a finished run stays as it is."""
    from tfnmt import train

    settings = [f"--set={key}={value}" for key, value in SETTINGS.items()]
    changed = [f"--set={change}" for change in changes]
    values = train.FLAGS
    values(["train", "--dataset=toy", f"--run_dir={run.path}", *settings, *changed])
    train.main(values, [])


def _measure(name: str, run: Run) -> None:
    """Prints what the run came to."""
    from tfnmt.data import toy
    from tfnmt.decoding.answers import best
    from tfnmt.decoding.inspector import Inspector
    from tfnmt.decoding.lines import translate_lines, windows
    from tfnmt.evaluation.scores import bleu
    from tfnmt.exporting.models import find_run
    from tfnmt.pictures.curves import read_curves

    translator = find_run(run.path).load_translator()
    sources, references = zip(*islice(toy.pairs("val"), SENTENCES), strict=True)
    answers = translate_lines(best(translator.translate), windows(sources))
    translations = [answer.best.text for answer in answers]
    lists = translator.nbest(list(sources))["translations"].numpy()
    losses = read_curves(run).loss.values[-LAST_LOSSES:]
    result = {
        "task": f"faults.{name}",
        "steps": STEPS,
        "loss": round(float(np.mean(losses)), 3),
        "bleu": round(bleu(translations, references), 2),
        "texts_of_4": round(float(np.mean(np.count_nonzero(lists, axis=1))), 2),
        "source": sources[SHOWN],
        "translation": translations[SHOWN],
    }
    print(json.dumps(result, ensure_ascii=False), flush=True)
    inspector = Inspector(translator.transformer, translator.codec, translator.decoding)
    look = inspector.look(sources[SHOWN], references[SHOWN])
    weights = look.cross[-1].mean(axis=0)  # [T, S]
    np.savez(run.path / ATTENTION_FILE, weights=weights, source=look.source, target=look.target)


def _draw(folder: Path, output: Path) -> None:
    """The pictures of all trainings that were measured, the sound one first."""
    from tfnmt.pictures.attention import draw_attention
    from tfnmt.pictures.curves import draw_beside, read_curves
    from tfnmt.pictures.style import to_png

    names = [name for name in (SOUND, *FAULTS) if (folder / name / ATTENTION_FILE).is_file()]
    if len(names) < 2:
        raise UsageError(f"{folder}: has no faults beside {SOUND}; train them first")
    seen = [np.load(folder / name / ATTENTION_FILE) for name in names]
    weights = np.stack([each["weights"] for each in seen])
    title = "cross-attention of the last layer, mean over heads"
    attention = draw_attention(weights, seen[0]["target"], seen[0]["source"], title, names)
    write_atomically(output / "faults-attention.png", to_png(attention))
    sound, *faulty = (read_curves(Run(folder / name)) for name in names)
    write_atomically(output / "faults-loss.png", to_png(draw_beside(sound, faulty)))


class Failures:
    """What pytest reports to: the tests that were run, and those that failed, by name."""

    def __init__(self) -> None:
        self.run: dict[str, None] = {}
        self.failed: dict[str, None] = {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Notes a test, whatever its parameters."""
        name = report.nodeid.partition("[")[0].removeprefix("tests/tfnmt/")
        self.run[name] = None
        if report.failed:
            self.failed[name] = None


def _test(name: str, fault: Fault) -> None:
    """Runs the tests near the fault, and prints which ones see it."""
    import pytest

    failures = Failures()
    paths = [str(home() / "tests" / "tfnmt" / path) for path in fault.tests]
    options = ["-q", "--no-header", "--tb=no", "-m", "not slow", "-p", "no:cacheprovider"]
    pytest.main([*options, *paths], [failures])
    result = {"run": len(failures.run), "failed": [*failures.failed]}
    print(json.dumps({"task": f"faults.{name}.tests", **result}))
    if not failures.failed:
        sys.exit(1)


# --- Masks ----------------------------------------------------------------------------------------


def _all_true(sound: Function) -> Function:
    def mask(tokens_or_length: Tensor) -> Tensor:
        from keras import ops

        return ops.ones_like(sound(tokens_or_length))

    return mask


# --- What the decoder reads, and what it is to say ------------------------------------------------


def _no_shift(sound: Function) -> Function:
    """Reads the very piece that it is to predict."""

    def gather(*arguments: Any) -> Any:
        batch = sound(*arguments)
        return batch._replace(target_in=batch.target_out)

    return gather


def _no_bos(sound: Function) -> Function:
    """The target without its last piece, and without its first, of a target that has no bos."""

    def gather(*arguments: Any) -> Any:
        batch = sound(*arguments)
        target_in = np.pad(batch.target_in[:, 1:], [(0, 0), (0, 1)])
        target_out = np.pad(batch.target_out[:, 1:], [(0, 0), (0, 1)])
        return batch._replace(target_in=target_in, target_out=target_out)

    return gather


def _no_eos(sound: Function) -> Function:
    """Never learns to end."""

    def gather(*arguments: Any) -> Any:
        from tfnmt.data.tokenizer import EOS, PAD

        batch = sound(*arguments)
        target_out = np.where(batch.target_out == EOS, PAD, batch.target_out)
        return batch._replace(target_out=target_out)

    return gather


# --- Attention ------------------------------------------------------------------------------------


def _no_scale(sound: Function) -> Function:
    def attention_weights(query: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
        return sound(query * query.shape[-1] ** 0.5, keys, mask)

    return attention_weights


def _heads_not_transposed(sound: Function) -> Function:
    """[B, H, T, D/H] read as if it were [B, T, H, D/H]: positions and heads are mixed up."""

    def merge_heads(x: Tensor) -> Tensor:
        from keras import ops

        _, num_heads, _, depth = x.shape
        return ops.reshape(x, (-1, ops.shape(x)[2], num_heads * depth))

    return merge_heads


def _values_twice(sound: Function) -> Function:
    """What the encoder attends to is multiplied by the values at its own place again."""

    def init(self: Any, config: Any, **kwargs: Any) -> None:
        from tfnmt.model.attention import attention_weights, merge_heads, project_heads

        sound(self, config, **kwargs)
        layer = self.self_attention

        def look_around(x: Tensor, mask: Tensor, seed: Tensor | None = None) -> Tensor:
            query, keys, values = project_heads(x, layer.join(), layer.num_heads)
            attended = attention_weights(query, keys, mask) @ values  # [B, H, S, D/H]
            return layer.output_projection(merge_heads(attended * values))

        layer.look_around = look_around

    return init


# --- Embeddings and positions ---------------------------------------------------------------------


def _untied_init(sound: Function) -> Function:
    """Drawn from normal(0, 1), as suits a table that is no output projection too."""

    def build(self: Any, input_shape: Any = None) -> None:
        sound(self, input_shape)
        self.table.assign(self.table * self.d_model**0.5)

    return build


def _positions_2k(sound: Function) -> Function:
    """The exponent counts twice: 2k / d_model, where k runs over even numbers already."""

    def sinusoids(positions: Tensor, d_model: int) -> Tensor:
        from keras import ops

        rates = 10000.0 ** (-2 * np.arange(0, d_model, 2) / d_model)  # [D/2]
        angles = ops.cast(positions, "float32")[:, None] * ops.convert_to_tensor(rates, "float32")
        pairs = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)  # [T, D/2, 2]
        return ops.reshape(pairs, (-1, d_model))

    return sinusoids


# --- Training -------------------------------------------------------------------------------------


def _no_warmup(sound: Function) -> Function:
    """The highest rate from the first update on."""

    def rate(self: Any, updates: Tensor) -> Tensor:
        from keras import ops

        return sound(self, ops.maximum(ops.cast(updates, "float32"), self.warmup_steps - 1.0))

    return rate


# --- Search ---------------------------------------------------------------------------------------


def _penalty_each_step(sound: Function) -> Function:
    """Divides the sum of log probabilities again and again, so that early ones hardly count."""

    def candidates(logits: Tensor, live: Any, position: Tensor, search: Any) -> Any:
        from tfnmt.decoding.search import length_penalty

        found = sound(logits, live, position, search)
        penalty = length_penalty(position + 1, search.length_penalty)
        return found._replace(log_probs=found.log_probs / penalty)

    return candidates


def _ended_go_on(sound: Function) -> Function:
    """What ended stays in the beam, ends again, and fills the list with one text."""

    def keep_live(candidates: Any, before: Any, position: Tensor, search: Any) -> Any:
        return sound(candidates, before, position, search._replace(eos=-1))

    return keep_live


MASKS = ("model/test_masks.py", "model/test_transformer.py")
ATTENTION = ("model/test_attention.py",)
BATCHES = ("data/test_batches.py",)
SEARCH = ("decoding/test_search.py",)

FAULTS = {
    "no_causal_mask": Fault(
        "each position of the target sees all of it",
        "tfnmt.model.masks:causal_mask", _all_true, MASKS,
    ),
    "no_padding_mask": Fault(
        "padding is attended to", "tfnmt.model.masks:padding_mask", _all_true, MASKS
    ),
    "no_shift": Fault(
        "the decoder reads the piece that it is to predict",
        "tfnmt.data.batches:gather", _no_shift, BATCHES,
    ),
    "no_bos": Fault(
        "trained on targets without a beginning, so that the first piece is never predicted",
        "tfnmt.data.batches:gather", _no_bos, BATCHES,
    ),
    "no_eos": Fault(
        "trained on targets without an end", "tfnmt.data.batches:gather", _no_eos, BATCHES
    ),
    "no_scale": Fault(
        "scores are not divided by the root of d_k",
        "tfnmt.model.attention:attention_weights", _no_scale, ATTENTION,
    ),
    "heads_not_transposed": Fault(
        "heads are reshaped without being transposed back",
        "tfnmt.model.attention:merge_heads", _heads_not_transposed, ATTENTION,
    ),
    "values_twice": Fault(
        "what the encoder attends to is multiplied by V twice",
        "tfnmt.model.encoder:EncoderLayer.__init__", _values_twice, ("model/test_transformer.py",),
    ),
    "untied_init": Fault(
        "the shared table is drawn from normal(0, 1)",
        "tfnmt.model.embedding:Embedding.build", _untied_init, ("model/test_embedding.py",),
    ),
    "positions_2k": Fault(
        "positions with the exponent 2k/d_model for k = 0, 2, 4 ...",
        "tfnmt.model.positions:sinusoids", _positions_2k, ("model/test_positions.py",),
    ),
    "no_warmup": Fault(
        "the highest learning rate from the first update on",
        "tfnmt.training.schedule:NoamSchedule.__call__", _no_warmup, ("training/test_schedule.py",),
    ),
    "penalty_each_step": Fault(
        "the length penalty divides the log probabilities at each step",
        "tfnmt.decoding.search:_candidates", _penalty_each_step, SEARCH, trains=False,
    ),
    "ended_go_on": Fault(
        "finished hypotheses stay in the beam and fill it up with duplicates",
        "tfnmt.decoding.search:_keep_live", _ended_go_on, SEARCH, trains=False,
    ),
}  # fmt: skip

FLAGS = flags.FlagValues()
flags.DEFINE_string("work_dir", None, "keeps the runs (default: runs/faults)", flag_values=FLAGS)
flags.DEFINE_string("output", None, "folder of the pictures (default: .)", flag_values=FLAGS)
flags.DEFINE_multi_string("set", [], "a key of the configuration, as train's", flag_values=FLAGS)
flags.DEFINE_bool("tests", False, "test with the fault in place", flag_values=FLAGS)


if __name__ == "__main__":
    names = "\n".join(f"  {name:<22} {fault.says}" for name, fault in FAULTS.items())
    run_command(main, FLAGS, f"{__doc__}\n{names}")
