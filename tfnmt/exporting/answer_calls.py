"""Call the signatures of a SavedModel in a clean process: TensorFlow and its text operations only.

    echo '["FOLDER", "CALLS", "ANSWERS"]' | python -P answer_calls.py

Loads the SavedModel as TensorFlow Serving does: a graph, its initializers and a session. CALLS is a
pickle of [(signature, {input: array})]. ANSWERS becomes a pickle of a dictionary:

    outputs            the outputs of each call
    operations         the operations of the graph
    text_operations    the operations that need tensorflow_text
    device_specific    parts of the graph that need an accelerator or XLA
    forbidden_imports  modules that a clean process must not have imported
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

XLA_ATTRIBUTES = ("_XlaMustCompile", "_jit_compile")


def main(folder: str, calls_path: str, answers_path: str) -> None:
    """Write the answers to the calls."""
    saved = saved_model_pb2.SavedModel.FromString((Path(folder) / "saved_model.pb").read_bytes())
    (meta,) = saved.meta_graphs
    operations = sorted(op.name for op in meta.meta_info_def.stripped_op_list.op)
    # Before the import of tensorflow_text, which registers its operations.
    text_operations = [name for name in operations if op_def_registry.get(name) is None]

    import tensorflow_text  # noqa: F401

    calls = pickle.loads(Path(calls_path).read_bytes())
    answers = {
        "outputs": _run(folder, calls),
        "operations": operations,
        "text_operations": text_operations,
        "device_specific": sorted(set(_device_specific(meta))),
        "forbidden_imports": sorted({"tfnmt", "keras_nlp"} & set(sys.modules)),
    }
    Path(answers_path).write_bytes(pickle.dumps(answers))


def _run(folder: str, calls: list[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the outputs of the calls, which run in parallel."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        meta = tf.compat.v1.saved_model.load(session, ["serve"], folder)

        def run(call: tuple[str, dict[str, Any]]) -> dict[str, Any]:
            name, inputs = call
            signature = meta.signature_def[name]
            feeds = {signature.inputs[key].name: value for key, value in inputs.items()}
            return session.run({key: info.name for key, info in signature.outputs.items()}, feeds)

        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            return list(pool.map(run, calls))


def _device_specific(meta: Any) -> Iterator[str]:
    """Yield a description of each part of the graph that needs an accelerator or XLA."""
    nodes = [*meta.graph_def.node]
    for function in meta.graph_def.library.function:
        nodes += function.node_def
        if any(function.attr[name].b for name in XLA_ATTRIBUTES):
            yield f"{function.signature.name} is compiled with XLA"
    for node in nodes:
        if node.device and "CPU" not in node.device:  # every server has a CPU
            yield f"{node.name} is placed on {node.device}"
        if any(node.attr[name].b for name in XLA_ATTRIBUTES if name in node.attr):
            yield f"{node.name} is compiled with XLA"


if __name__ == "__main__":
    main(*json.load(sys.stdin))
