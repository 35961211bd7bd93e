"""Call the signatures of a LiteRT export in a process without TensorFlow and Keras.

    echo '["FOLDER", "CALLS", "ANSWERS"]' | python -P answer_litert.py

CALLS is a pickle of [(signature, {input: array})]. ANSWERS becomes a pickle of a dictionary:

    outputs  the outputs of each call
    modules  the packages that were imported, besides the standard library
"""

import json
import os
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

ABSENT = ("tensorflow", "tensorflow_text", "keras", "keras_nlp")
"""Packages that an export must not need. Here they cannot be imported."""


def main(folder: str, calls_path: str, answers_path: str) -> None:
    """Write the answers to the calls."""
    sys.meta_path.insert(0, _Absent())
    from tfnmt.litert.model import LiteRTModel

    streams = len(os.sched_getaffinity(0))
    signatures = LiteRTModel(Path(folder), streams).signatures

    def answer(call: tuple[str, dict[str, Any]]) -> dict[str, Any]:
        name, inputs = call
        return signatures[name](**inputs)

    calls = pickle.loads(Path(calls_path).read_bytes())
    with ThreadPoolExecutor(streams) as pool:
        answers = {"outputs": list(pool.map(answer, calls)), "modules": _imported_packages()}
    Path(answers_path).write_bytes(pickle.dumps(answers))


class _Absent(MetaPathFinder):
    """Makes the import of some packages fail."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Raise an ImportError for the packages in ABSENT."""
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"{name}: an export must not need it", name=name)


def _imported_packages() -> list[str]:
    packages = {name.partition(".")[0] for name in sys.modules}
    return sorted(name for name in packages - sys.stdlib_module_names if not name.startswith("_"))


if __name__ == "__main__":
    main(*json.load(sys.stdin))
