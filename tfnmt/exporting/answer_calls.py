"""What a SavedModel answers to a process that has TensorFlow and its text operations alone.

    echo '["FOLDER", "CALLS", "ANSWERS"]' | python -P fresh.py

Takes the path that TensorFlow Serving takes: a graph, its initializers and a session. CALLS holds
[(signature, {input: array})], ANSWERS becomes a dictionary: the outputs of each call, the
operations, those that only the text operations bring, and what would not run everywhere.
"""

import json
import os
import pickle
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.framework import op_def_registry

PINNED = ("_XlaMustCompile", "_jit_compile")


def main(folder: str, calls_path: str, answers_path: str) -> None:
    """Answers the calls."""
    saved = saved_model_pb2.SavedModel.FromString((Path(folder) / "saved_model.pb").read_bytes())
    (meta,) = saved.meta_graphs
    operations = sorted(op.name for op in meta.meta_info_def.stripped_op_list.op)
    text = [name for name in operations if op_def_registry.get(name) is None]

    import tensorflow_text  # noqa: F401

    calls = pickle.loads(Path(calls_path).read_bytes())
    report = {
        "outputs": _answer(folder, calls),
        "operations": operations,
        "text_operations": text,
        "bound": sorted(set(_bound(meta))),
        "ours": sorted({"tfnmt", "keras_nlp"} & set(sys.modules)),
    }
    Path(answers_path).write_bytes(pickle.dumps(report))


def _answer(folder: str, calls: list[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        meta = tf.compat.v1.saved_model.load(session, ["serve"], folder)

        def run(call: tuple[str, dict[str, Any]]) -> dict[str, Any]:
            name, inputs = call
            signature = meta.signature_def[name]
            feeds = {signature.inputs[key].name: value for key, value in inputs.items()}
            return session.run({key: info.name for key, info in signature.outputs.items()}, feeds)

        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            return list(pool.map(run, calls))


def _bound(meta: Any) -> Iterator[str]:
    """What asks for an accelerator, or for XLA."""
    nodes = [*meta.graph_def.node]
    for function in meta.graph_def.library.function:
        nodes += function.node_def
        if any(function.attr[name].b for name in PINNED):
            yield f"{function.signature.name} is compiled by XLA"
    for node in nodes:
        if node.device and "CPU" not in node.device:  # which every server has
            yield f"{node.name} is bound to {node.device}"
        if any(node.attr[name].b for name in PINNED if name in node.attr):
            yield f"{node.name} is compiled by XLA"


if __name__ == "__main__":
    main(*json.load(sys.stdin))
