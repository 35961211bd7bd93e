"""Run a baseline: any command that prints its measurements as JSON lines."""

import json
import os
import shlex
import subprocess
from collections.abc import Iterator
from typing import Any

from tfnmt.errors import UserError

ENVIRONMENT = dict(os.environ)
"""Environment of the user's shell, without the settings that tfnmt makes for its TensorFlow."""


def run_baseline(command: str, *keys: str) -> list[dict[str, Any]]:
    """Run a command and return its measurements.

    Args:
        command: Command line, without a shell.
        keys: Keys that a measurement must have, besides "system".

    Returns:
        The JSON lines that have all keys; at least one.

    Raises:
        UserError: The command printed no measurement.
    """
    done = subprocess.run(
        shlex.split(command), capture_output=True, text=True, check=False, env=ENVIRONMENT
    )
    found = [line for line in _json_lines(done.stdout) if {"system", *keys} <= line.keys()]
    if not found:
        raise UserError(
            f"--baseline={command}: no JSON line with system, {', '.join(keys)}; "
            f"stderr ends with: {done.stderr[-500:]}"
        )
    return found


def _json_lines(output: str) -> Iterator[dict[str, Any]]:
    for text in output.splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict):
            yield line
