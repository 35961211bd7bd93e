"""Other systems: any command that prints what it measured as JSON lines."""

import json
import os
import shlex
import subprocess
from collections.abc import Iterator
from typing import Any

from tfnmt.errors import UserError

ENVIRONMENT = dict(os.environ)
"""What a user's shell has: none of the settings that we make for our own TensorFlow."""


def measure(command: str, *keys: str) -> list[dict[str, Any]]:
    """Runs a command; its lines that have a "system" and some keys."""
    done = subprocess.run(
        shlex.split(command), capture_output=True, text=True, check=False, env=ENVIRONMENT
    )
    found = [line for line in _lines(done.stdout) if {"system", *keys} <= line.keys()]
    if not found:
        raise UserError(f"--peer: {command} printed no {', '.join(keys)}; {done.stderr[-500:]}")
    return found


def _lines(output: str) -> Iterator[dict[str, Any]]:
    for text in output.splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict):
            yield line
