"""Writing a SavedModel: text to text, for TensorFlow Serving or any TensorFlow with text ops."""

import json
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import tensorflow as tf

from tfnmt.decoding.signatures import signatures
from tfnmt.decoding.text import TEXT
from tfnmt.decoding.translator import Translator
from tfnmt.errors import UsageError
from tfnmt.exporting import answer_calls, replay_warmup
from tfnmt.exporting.parity import calls_of, certify, fresh_process
from tfnmt.exporting.warmup import check_warmup, write_warmup
from tfnmt.loading.models import CARD, versions_in
from tfnmt.runtime.files import written_aside

PARITY = Path("assets.extra") / "parity.json"


def served_graphs(translator: Translator, card: dict[str, Any]) -> dict[str, Any]:
    """The signatures of a Translator, and `info`, which tells the model card."""
    described = json.dumps(card, ensure_ascii=False)

    @tf.function(input_signature=[TEXT], autograph=False)
    def info(text: Any) -> dict[str, Any]:
        """card [B]: the model card as JSON, which the server hides in assets.extra otherwise."""
        return {"card": tf.fill(tf.shape(text), described)}

    return {**signatures(translator), "info": info}


def publish(
    translator: Translator,
    card: dict[str, Any],
    texts: Sequence[str],
    path: Path,
) -> dict[str, Any]:
    """Writes a version, complete at once, if it answers some texts as the Translator does.

    The server polls for new versions: one is written aside and renamed. Returns the certificate.
    """
    graphs = served_graphs(translator, card)
    traced = {name: graph.get_concrete_function() for name, graph in graphs.items()}
    with (
        # They make their imports while this one saves.
        fresh_process(answer_calls.__file__) as witness,
        fresh_process(replay_warmup.__file__) as server,
        ThreadPoolExecutor() as pool,
        written_aside(path) as aside,
    ):
        calls = pool.submit(calls_of, graphs, texts)
        aside.mkdir()
        _save(translator, traced, aside)
        _describe(card, texts, aside)
        # From another place than it was written to: nothing in it may point to itself.
        moved = aside.rename(aside.with_name(f"{aside.name}.moved"))
        try:
            replayed = pool.submit(check_warmup, moved, server)
            certificate = certify(graphs, calls.result(), moved, witness)
            certificate |= {"texts": len(texts), "warm_up_requests": replayed.result()}
        finally:
            moved.rename(aside)
        _write_json(aside / PARITY, certificate)
    return certificate


def next_version(folder: Path) -> int:
    """The first number above those that are there, whatever has them for a name."""
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return max((int(name) for name in names if name.isdecimal()), default=0) + 1


def check_free(path: Path) -> None:
    """Raises where a version is there already: a server may be reading it."""
    if path.exists():
        raise UsageError(f"--version={path.name}: {path} is there already; choose another number")


def check_kept(path: Path, keep: int) -> None:
    """Refuses a version that `remove_old` would remove again, for it keeps the highest ones."""
    higher = [version for version in versions_in(path.parent) if version > int(path.name)]
    if len(higher) >= keep:
        raise UsageError(
            f"--keep={keep}: would remove version {path.name} itself, for there is {higher[-1]}; "
            "give a higher --version, or none"
        )


def remove_old(folder: Path, keep: int) -> list[int]:
    """Removes all but the highest versions; returns their numbers."""
    old = versions_in(folder)[:-keep]
    for version in old:
        # Out of the server's sight at once, for it must not see half a version.
        aside = (folder / str(version)).rename(folder / f".{version}.removed")
        shutil.rmtree(aside)
    return old


def _save(translator: Translator, traced: dict[str, Any], folder: Path) -> None:
    """Writes the graphs as they were traced here, and what they use.

    The Keras model itself stays out: saving it would trace its `call` with inputs of its own guess.
    """
    module = tf.Module()
    module.weights = [variable.value for variable in translator.transformer.variables]
    module.pieces = translator.codec.pieces
    try:
        tf.saved_model.save(module, str(folder), signatures=traced)
    except tf.errors.OpError as error:
        raise OSError(error.message) from error


def _describe(card: dict[str, Any], texts: Sequence[str], folder: Path) -> None:
    """Writes what lies beside the graphs: the card, and requests of a short and a long text."""
    (folder / CARD).parent.mkdir()
    _write_json(folder / CARD, card)
    by_length = sorted(texts, key=len)
    short, long = (by_length[len(texts) * share // 10] for share in (5, 9))
    write_warmup(folder / replay_warmup.WARMUP, short, long)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
