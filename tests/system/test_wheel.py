"""The wheel, in an environment without the repository."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from zipfile import ZipFile

from tfnmt.loading.registry import DEFAULT_MODEL

REPOSITORY = Path(__file__).parents[2]
SETTINGS = {
    "data.max_pairs": 400,
    "data.max_length": 40,
    "data.batch_tokens": 256,
    "tokenizer.vocab_size": 500,
    "model.d_model": 16,
    "model.d_ff": 32,
    "training.max_steps": 5,
    "decoding.max_extra_length": 5,
}


def test_wheel_trains_and_translates_from_another_folder(tmp_path: Path) -> None:
    def run(*command: object, cwd: Path = tmp_path, **environment: str) -> str:
        done = subprocess.run(
            list(map(str, command)),
            cwd=cwd,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr
        assert "Warning" not in done.stderr
        return done.stdout

    # Build from a copy, because a build leaves files behind and includes those of earlier builds.
    source = tmp_path / "source"
    ignored = shutil.ignore_patterns(".*", "build", "dist", "runs", "data", "*.egg-info")

    def ignore(folder: str, names: list[str]) -> set[str]:
        return ignored(folder, names) if Path(folder) == REPOSITORY else set()

    shutil.copytree(REPOSITORY, source, ignore=ignore)
    dist = tmp_path / "dist"
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", dist, source)
    (wheel,) = dist.iterdir()
    with ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith(("app/", "tfnmt/"))}
    folders = {"app": "app", "tfnmt": "tfnmt", "configs": "tfnmt/configs"}
    expected = {
        f"{package}/{path.relative_to(source / folder).as_posix()}"
        for folder, package in folders.items()
        for path in (source / folder).rglob("*.*")
        if path.suffix != ".pyc"
    }
    assert packed == expected | {f"tfnmt/models/{DEFAULT_MODEL}.tar.gz"}

    venv.create(tmp_path / "fresh", with_pip=True)
    python = tmp_path / "fresh" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel)

    # Dependencies come from the packages of this environment. Unlike a site folder, PYTHONPATH
    # ignores .pth files, and therefore does not add the editable install of the repository.
    packages = {"PYTHONPATH": sysconfig.get_paths()["purelib"]}
    code = "import app, tfnmt; print(app.__file__, tfnmt.__file__)"
    assert run(python, "-c", code, **packages).count(str(tmp_path / "fresh")) == 2
    settings = [f"--set={key}={value}" for key, value in SETTINGS.items()]
    run(python, "-m", "tfnmt.train", "--dataset=toy", *settings, **packages)
    assert (tmp_path / "runs" / "toy-en-de" / "summary.json").is_file()

    script = tmp_path / "fresh" / "bin" / "tfnmt"
    assert "translate" in run(script, "--help", **packages)
    assert "--backend" in run(script, "serve", "--help", **packages)

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shipped = {**packages, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert run(
        script, "translate", "--target=de", "Good morning!", cwd=elsewhere, **shipped
    ).strip()
    assert not list(elsewhere.iterdir())
    model = tmp_path / "runs" / "toy-en-de"
    translate = (python, "-m", "tfnmt.translate", f"--model={model}")
    output = run(*translate, "The dog sleeps.", "", cwd=elsewhere, **packages)
    assert output.count("\n") == 2
