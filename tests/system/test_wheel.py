"""The wheel, in an environment that has no clone."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

CLONE = Path(__file__).parents[2]
SETTINGS = {
    "data.max_pairs": 400, "data.max_length": 40, "data.batch_tokens": 256,
    "tokenizer.vocab_size": 500, "model.d_model": 16, "model.d_ff": 32, "training.max_steps": 5,
    "decoding.max_extra_length": 5,
}  # fmt: skip


@pytest.mark.slow
def test_a_wheel_trains_on_toy_and_translates_from_another_folder(tmp_path: Path) -> None:
    def run(*command: object, cwd: Path = tmp_path, **environment: str) -> str:
        done = subprocess.run(
            list(map(str, command)), cwd=cwd, env=os.environ | environment, capture_output=True,
            text=True, timeout=600,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    # A copy: a build leaves things behind, and packs what earlier ones left.
    source = tmp_path / "source"
    left_out = shutil.ignore_patterns(".*", "build", "dist", "runs", "data", "*.egg-info")
    shutil.copytree(CLONE, source, ignore=lambda folder, names: (
        left_out(folder, names) if Path(folder) == CLONE else set()
    ))  # fmt: skip
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path / "dist",
        source)  # fmt: skip
    (wheel,) = (tmp_path / "dist").iterdir()
    venv.create(tmp_path / "fresh", with_pip=True)
    python = tmp_path / "fresh" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel)

    # Dependencies come from this environment's folder; a path, unlike a site folder, brings no
    # editable install of the clone with it.
    packages = {"PYTHONPATH": sysconfig.get_paths()["purelib"]}
    where = run(python, "-c", "import tfnmt; print(tfnmt.__file__)", **packages)
    assert str(tmp_path / "fresh") in where
    settings = [f"--set={key}={value}" for key, value in SETTINGS.items()]
    run(python, "-m", "tfnmt.train", "--dataset=toy", *settings, **packages)
    assert (tmp_path / "runs" / "toy-en-de" / "summary.json").is_file()

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    model = tmp_path / "runs" / "toy-en-de"
    output = run(python, "-m", "tfnmt.translate", f"--model={model}", "The dog sleeps.", "",
                 cwd=elsewhere, **packages)  # fmt: skip
    assert output.count("\n") == 2
