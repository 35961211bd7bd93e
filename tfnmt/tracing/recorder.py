"""The recorder: which functions ran, with their variables, while nothing in them knows of it.

Python itself tells of every call and every return (`sys.setprofile`). So what is seen is what the
very layers that train and serve have computed, under the names that their code gives it.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any


@dataclass
class Call:
    """A call of a function."""

    function: str  # its qualified name: "FeedForward.call"
    arguments: dict[str, Any]  # by their names; `self` too
    names: dict[str, Any] = field(default_factory=dict)  # its variables when it returned
    result: Any = None
    calls: list["Call"] = field(default_factory=list)  # those that it made

    @property
    def owner(self) -> Any:
        """The object whose method it is, or None."""
        return self.arguments.get("self")

    def find(self, *functions: str) -> Iterator["Call"]:
        """The calls of these functions below this one, in the order in which they began."""
        for call in self.calls:
            if call.function in functions:
                yield call
            yield from call.find(*functions)


@contextmanager
def recording(*modules: ModuleType) -> Iterator[Call]:
    """Records calls of functions that are written in these modules or packages.

    Gives a call that stands for the whole; the others are below it. Only what runs in Python is
    seen: inside a `tf.function` that is while it is traced, and not when it is run.
    """
    places = tuple(map(_place, modules))
    whole = Call("", {})
    open_calls = [whole]

    def watch(frame: FrameType, event: str, result: Any) -> None:
        code = frame.f_code
        if not code.co_filename.startswith(places) or code.co_name.startswith("<"):
            return
        if event == "call":
            count = code.co_argcount + code.co_kwonlyargcount
            arguments = {name: frame.f_locals[name] for name in code.co_varnames[:count]}
            call = Call(code.co_qualname, arguments)
            open_calls[-1].calls.append(call)
            open_calls.append(call)
        elif event == "return":
            call = open_calls.pop()
            call.names, call.result = dict(frame.f_locals), result

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        yield whole
    finally:
        sys.setprofile(before)


def _place(module: ModuleType) -> str:
    """The file of a module, or the folder of a package."""
    assert module.__file__ is not None
    path = Path(module.__file__)
    return f"{path.parent}/" if path.name == "__init__.py" else str(path)
