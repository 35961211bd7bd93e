"""tfnmt: train a Transformer translator on parallel text and serve it with TensorFlow Serving.

The Python API is imported when it is first used:

    translator = tfnmt.load("tatoeba-en-de-fr-es")
    translator.translate(["Where can I buy a ticket?"], target="de")
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfnmt.errors import UserError
    from tfnmt.loading.api import ForcedDecoding, Scored, TextTranslator, Translation, load

__version__ = "0.1.0"

__all__ = [
    "ForcedDecoding",
    "Scored",
    "TextTranslator",
    "Translation",
    "UserError",
    "__version__",
    "load",
]


def __getattr__(name: str) -> Any:
    """Import the API at its first use, because it needs NumPy and more."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module("tfnmt.loading.api"), name)
