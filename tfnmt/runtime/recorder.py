"""Records function calls with their variables, without any change to the recorded functions.

Python reports each call and each return to a profile function (`sys.setprofile`). A recording
therefore shows what the layers that train and serve compute, under the names in their code.
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
    """A recorded call of a function."""

    function: str  # qualified name: "FeedForward.call"
    arguments: dict[str, Any]  # by name, `self` included
    variables: dict[str, Any] = field(default_factory=dict)  # local variables at the return
    result: Any = None
    calls: list["Call"] = field(default_factory=list)  # calls made by this one

    @property
    def owner(self) -> Any:
        """The object whose method was called, or None."""
        return self.arguments.get("self")

    def find(self, *functions: str) -> Iterator["Call"]:
        """Yield all calls of these functions below this call, in the order of their starts."""
        for call in self.calls:
            if call.function in functions:
                yield call
            yield from call.find(*functions)


@contextmanager
def recording(*modules: ModuleType) -> Iterator[Call]:
    """Record calls of functions that are defined in the given modules or packages.

    Only code that runs in Python is recorded. The body of a `tf.function` is recorded while it is
    traced, and not when its graph runs.

    Args:
        *modules: The modules or packages.

    Yields:
        A root call, which contains all recorded calls.
    """
    paths = tuple(map(_module_path, modules))
    root = Call("", {})
    open_calls = [root]

    def profile(frame: FrameType, event: str, result: Any) -> None:
        code = frame.f_code
        if not code.co_filename.startswith(paths) or code.co_name.startswith("<"):
            return
        if event == "call":
            count = code.co_argcount + code.co_kwonlyargcount
            arguments = {name: frame.f_locals[name] for name in code.co_varnames[:count]}
            call = Call(code.co_qualname, arguments)
            open_calls[-1].calls.append(call)
            open_calls.append(call)
        elif event == "return":
            call = open_calls.pop()
            call.variables, call.result = dict(frame.f_locals), result

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield root
    finally:
        sys.setprofile(before)


def _module_path(module: ModuleType) -> str:
    """Return the file of a module, or the folder of a package."""
    assert module.__file__ is not None
    path = Path(module.__file__)
    return f"{path.parent}/" if path.name == "__init__.py" else str(path)
