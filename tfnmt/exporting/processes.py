"""A process that has nothing of tfnmt, and has made its imports by the time that it is asked."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tfnmt.errors import UserError

Ask = Callable[..., str]
"""`ask(complaint, *arguments)`: what the process prints of its arguments, once. Where it fails, a
UserError has the complaint and the last line of what it says.
"""


@contextmanager
def fresh_process(script: str, python: str = sys.executable) -> Iterator[Ask]:
    """Starts a script, which makes its imports and then reads its arguments from standard input."""
    with subprocess.Popen(
        [python, "-P", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:

        def ask(complaint: str, *arguments: object) -> str:
            output, errors = process.communicate(json.dumps([*map(str, arguments)]))
            if process.returncode:
                last = (errors.strip() or "no message").splitlines()[-1]
                raise UserError(f"{complaint}: {last}")
            return output

        try:
            yield ask
        finally:
            process.kill()
