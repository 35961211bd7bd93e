"""Writing a SavedModel: text in, text out, for TensorFlow Serving or TensorFlow with text ops."""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import tensorflow as tf

from tfnmt.decoding.text import TEXT
from tfnmt.decoding.translator import Translator, signatures
from tfnmt.exporting import answer_calls, replay_warmup
from tfnmt.exporting.parity import check_parity, clean_process, make_calls
from tfnmt.exporting.warmup import check_warmup, write_warmup
from tfnmt.loading.models import CARD
from tfnmt.runtime.files import atomic_path, format_json

PARITY = Path("assets.extra") / "parity.json"
"""The parity report inside an export."""


def served_graphs(translator: Translator, card: dict[str, Any]) -> dict[str, Any]:
    """Return the graphs of a Translator by signature name, and `info` for the model card."""
    card_json = json.dumps(card, ensure_ascii=False)

    @tf.function(input_signature=[TEXT], autograph=False)
    def info(text: Any) -> dict[str, Any]:
        # TensorFlow Serving does not serve assets.extra, which has the card as well.
        return {"card": tf.fill(tf.shape(text), card_json)}

    return {**signatures(translator), "info": info}


def publish(
    translator: Translator,
    card: dict[str, Any],
    texts: Sequence[str],
    path: Path,
) -> dict[str, Any]:
    """Write a version of an export if it reproduces the output of the Translator.

    TensorFlow Serving polls for new versions, so the folder is renamed into place when it is
    complete.

    Args:
        translator: The model.
        card: The model card.
        texts: The texts of the parity check.
        path: The new folder, `<model base path>/<version>`.

    Returns:
        The parity report, as stored in assets.extra/parity.json.

    Raises:
        UserError: The export differs from the Translator, or TensorFlow Serving cannot run it.
    """
    graphs = served_graphs(translator, card)
    traced = {name: graph.get_concrete_function() for name, graph in graphs.items()}
    with (
        # After an error, its threads end when the processes below have been killed.
        ThreadPoolExecutor() as pool,
        # These processes do their imports while this one saves the graphs.
        clean_process(answer_calls.__file__) as run_answer_calls,
        clean_process(replay_warmup.__file__) as run_replay_warmup,
        atomic_path(path) as temporary,
    ):
        calls = pool.submit(make_calls, graphs, texts, card.get("targets", ()))
        temporary.mkdir()
        _save(translator, traced, temporary)
        _add_extras(card, texts, temporary)
        # Checked in another place, so that the export cannot depend on its own path.
        moved = temporary.with_suffix(".moved.tmp")
        try:
            temporary.rename(moved)
            warmup_count = pool.submit(check_warmup, moved, run_replay_warmup)
            report = check_parity(graphs, calls.result(), moved, run_answer_calls)
            report |= {"texts": len(texts), "warm_up_requests": warmup_count.result()}
        finally:
            if moved.exists():  # not if a signal came before
                moved.rename(temporary)
        (temporary / PARITY).write_bytes(format_json(report))
    return report


def _save(translator: Translator, traced: dict[str, Any], folder: Path) -> None:
    """Write the traced graphs, with their variables and the tokenizer.

    The module does not hold the Keras model: saving it would trace its `call` with float inputs,
    which fails for token ids.
    """
    module = tf.Module()
    module.weights = [variable.value for variable in translator.transformer.variables]
    module.sentencepiece = translator.codec.sentencepiece
    try:
        tf.saved_model.save(module, str(folder), signatures=traced)
    except tf.errors.OpError as error:
        raise OSError(error.message) from error


def _add_extras(card: dict[str, Any], texts: Sequence[str], folder: Path) -> None:
    """Write assets.extra: the card, and warm-up requests of a short and a long text."""
    (folder / CARD).parent.mkdir()
    (folder / CARD).write_bytes(format_json(card))
    by_length = sorted(texts, key=len)
    short, long = (by_length[len(texts) * share // 10] for share in (5, 9))
    write_warmup(folder / replay_warmup.WARMUP, short, long, card.get("targets", ()))
