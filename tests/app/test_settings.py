import subprocess
import sys
from pathlib import Path

import pytest

from app.errors import UsageError
from app.settings import key_digest, parse

URL = "http://host:8501/v1/models/en_de"
ROOT = Path(__file__).parents[2]


def test_model_is_named_by_flag_folder_or_bundle() -> None:
    settings = parse(
        [
            "--model=exports/en_de",
            "--model=mine=exports/en_de",
            "--model=exports/de_en/3",
            "--model=bundles/en_fr.tar.gz",
        ]
    )
    assert [name for name, _ in settings.models] == ["en_de", "mine", "de_en", "en_fr"]
    assert settings.models[1][1] == Path("exports/en_de")


def test_model_path_may_contain_an_equals_sign() -> None:
    settings = parse(["--model=runs/rate=0.1/en_de", "--model=mine=runs/rate=0.1/en_de"])
    path = Path("runs/rate=0.1/en_de")
    assert settings.models == (("en_de", path), ("mine", path))


@pytest.mark.parametrize("url", [URL, f"{URL}/", f"{URL}/versions/3", f"{URL}/labels/stable"])
def test_backend_is_named_by_flag_or_model(url: str) -> None:
    assert parse([f"--backend={url}"]).backends == (("en_de", url),)
    assert parse([f"--backend=mine={url}"]).backends == (("mine", url),)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "--model=DIR"),
        (["--backend=http://host:8501"], "/v1/models/NAME"),
        (["--backend=host:8501/v1/models/en_de"], "http://"),
        (["--backend=http://host:port/v1/models/en_de"], "http://host:8501"),
        (["--model=a", f"--explorer={'a' * 300}"], "no web export"),
        (["--model=a", "--nosuch"], "--nosuch"),
        (["--model=a", "--port=x"], "--port"),
        (["--model=a", "--port=--"], "--port: expected one argument"),
        (["--model=a", "--port=-1"], "--port"),
        (["--model=a", "--port=70000"], "--port"),
        (["--model=a", "--deadline=0"], "--deadline"),
        (["--model=a", "--deadline=nan"], "--deadline"),
        (["--model=a", "--deadline=inf"], "--deadline"),
        (["--model=a", "--model=b/a"], "two models are named a; rename one: --model=NAME=DIR"),
        (["--model=a", "--max_chars=0"], "--max_chars"),
        (["--model=a", "--max_sentences=0"], "--max_sentences"),
        (["--model=a", "--max_texts=10001"], "--max_texts"),
        (["--model=a", "--suggestion_days=0"], "--suggestion_days"),
        (["--model=a", "--explorer=/nosuch"], "--format=web --output=/nosuch"),
        (["--model=a", "--trusted_proxies=nobody"], "10.0.0.0/8"),
        (["--model=a", "--allow_origin=*"], "https://example.org"),
        (["--model=a", "--allow_origin=https://example.org/path"], "https://example.org"),
        (["--model=a", "--api_keys=/nosuch"], "--api_keys=/nosuch"),
    ],
)
def test_invalid_arguments_are_named_in_the_error(arguments: list[str], named: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(arguments)
    assert named in str(caught.value)


def test_default_model_is_served_if_none_is_named() -> None:
    def find(name: str) -> Path:
        return Path("models") / name

    assert parse([], find, ["a"]).models == (("a", Path("models/a")),)
    assert parse(["--model=x=b"], find, ["a"]).models == (("x", Path("models/b")),)
    assert parse(["--backend=http://h:1/v1/models/m"], find, ["a"]).models == ()


def test_api_keys_are_read_per_line_and_stored_as_digests(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("one\n\n two \n")
    settings = parse(["--model=a", f"--api_keys={file}"])
    assert settings.key_digests == {key_digest("one"), key_digest("two")}
    file.write_text("\ufeffone\n")
    assert parse(["--model=a", f"--api_keys={file}"]).key_digests == {key_digest("one")}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("\n", "contains no key"),
        ("one\n# the key of Alice\n", "line 2: contains white space"),
        ("one\n\nschlüssel\n", "line 3: contains white space or is not ASCII"),
    ],
)
def test_file_without_one_key_per_line_is_refused(
    tmp_path: Path, content: str, problem: str
) -> None:
    file = tmp_path / "keys"
    file.write_text(content)
    with pytest.raises(UsageError, match=f"^--api_keys={file}: {problem}"):
        parse(["--model=a", f"--api_keys={file}"])


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        (["--help"], 0, "--backend"),
        ([], 2, "app: no model"),
        (["--port=0", "--model=/nosuch"], 1, "app: /nosuch: no such folder"),
        (["--port=0", f"--model=/{'a' * 300}"], 1, "a: no such folder"),
        (["--port=0", "--model=."], 1, "contains no exported model"),
    ],
)
def test_command_reports_user_errors_in_one_line(
    arguments: list[str], code: int, named: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "app", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
    )
    assert done.returncode == code
    assert named in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == (1 if code else 0)


def test_help_does_not_import_tensorflow() -> None:
    code = "import sys; from app.settings import parse; parse(['--model=a']); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=ROOT,
    )
    assert not {"tensorflow", "fastapi", "tfnmt"} & set(done.stdout.split())
