"""The JavaScript of the web page in Node."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[3] / "tfnmt/web"

Node = Callable[[str, Any], Any]


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    """Run a script with the modules of the page: `node(script, data)`.

    The script reads the variable `data` and sets `result`, which is returned.
    """
    program = shutil.which("node")
    if program is None:
        pytest.skip("Node is not installed")
    folder = tmp_path_factory.mktemp("js")
    shutil.copytree(PAGE / "js", folder, dirs_exist_ok=True)
    (folder / "package.json").write_text('{"type": "module"}')

    def run(script: str, data: Any) -> Any:
        begin = 'import { readFileSync } from "node:fs"; const data = JSON.parse(readFileSync(0));'
        done = subprocess.run(
            # Without the flag, Node does not support the build that browsers use.
            [
                program,
                "--experimental-wasm-relaxed-simd",
                "--input-type=module",
                f"--eval={begin} let result; {script}; console.log(JSON.stringify(result));",
            ],
            cwd=folder,
            input=json.dumps(data),
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run
