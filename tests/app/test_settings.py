import subprocess
import sys
from pathlib import Path

import pytest

from app.errors import UsageError
from app.settings import digest, parse

URL = "http://host:8501/v1/models/en_de"


def test_a_model_is_called_by_its_folder_or_by_the_name_that_it_is_given(tmp_path: Path) -> None:
    found = parse(
        ["--model=exports/en_de", "--model=mine=exports/en_de", "--model=exports/de_en/3"]
    )
    assert [name for name, _ in found.models] == ["en_de", "mine", "de_en"]
    assert found.models[1][1] == Path("exports/en_de")


def test_a_folder_may_have_an_equals_sign_in_its_path() -> None:
    found = parse(["--model=runs/rate=0.1/en_de", "--model=mine=runs/rate=0.1/en_de"])
    assert found.models == tuple((name, Path("runs/rate=0.1/en_de")) for name in ("en_de", "mine"))


@pytest.mark.parametrize("url", [URL, f"{URL}/", f"{URL}/versions/3", f"{URL}/labels/stable"])
def test_a_backend_is_called_by_its_model(url: str) -> None:
    assert parse([f"--backend={url}"]).backends == (("en_de", url),)
    assert parse([f"--backend=mine={url}"]).backends == (("mine", url),)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "--model=DIR"),
        (["--backend=http://host:8501"], "/v1/models/NAME"),
        (["--backend=host:8501/v1/models/en_de"], "http://"),
        (["--model=a", "--nosuch"], "--nosuch"),
        (["--model=a", "--port=x"], "--port"),
        (["--model=a", "--port=-1"], "--port"),
        (["--model=a", "--port=70000"], "--port"),
        (["--model=a", "--deadline=0"], "--deadline"),
        (["--model=a", "--deadline=nan"], "--deadline"),
        (["--model=a", "--deadline=inf"], "--deadline"),
        (["--model=a", "--model=b/a"], "two models are called a; name them: --model=NAME=DIR"),
        (["--model=a", "--max_chars=0"], "--max_chars"),
        (["--model=a", "--trusted_proxies=nobody"], "10.0.0.0/8"),
        (["--model=a", "--allow_origin=*"], "https://example.org"),
        (["--model=a", "--allow_origin=https://example.org/path"], "https://example.org"),
        (["--model=a", "--api_keys=/nosuch"], "--api_keys=/nosuch"),
    ],
)
def test_a_wrong_call_is_told(arguments: list[str], named: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(arguments)
    assert named in str(caught.value)


def test_keys_are_read_a_line_each_and_kept_as_digests(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("one\n\n two \n")
    assert parse(["--model=a", f"--api_keys={file}"]).keys == {digest("one"), digest("two")}
    file.write_text("\n")
    with pytest.raises(UsageError):
        parse(["--model=a", f"--api_keys={file}"])


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        (["--help"], 0, "--backend"),
        ([], 2, "app: no model"),
        (["--port=0", "--model=/nosuch"], 1, "app: /nosuch: no such folder"),
        (["--port=0", "--model=."], 1, "holds no exported model"),
    ],
)
def test_the_command_says_in_a_line_what_is_wrong(
    arguments: list[str], code: int, named: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "app", *arguments], capture_output=True, text=True, timeout=60,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == code
    assert named in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == (1 if code else 0)


def test_help_needs_no_tensorflow() -> None:
    code = "import sys; from app.settings import parse; parse(['--model=a']); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert not {"tensorflow", "fastapi", "tfnmt"} & set(done.stdout.split())
