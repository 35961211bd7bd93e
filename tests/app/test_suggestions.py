"""Corrections: the database, both routes and the export."""

import asyncio
import logging
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from app import suggestions
from app.errors import ApiError, UserError
from app.server.application import create
from app.server.suggestions import Suggestions
from app.settings import Settings, key_digest
from app.suggestions import DAY, Suggestion, SuggestionStore, export
from tests.app.fake_engine import TWO_WAYS
from tests.app.fake_server import make_guard
from tfnmt.data.corpora.formats import TSV

ROOT = Path(__file__).parents[2]
SECRET = "Xylophonquark"
PATH = "/api/v1/suggestions"
CORRECTION = {"text": "A man sleeps.", "translation": "Ein Man.", "correction": "Ein Mann schläft."}
FORM = {"q": "A man sleeps.", "s": "Ein Mann schläft.", "source": "en", "target": "de"}

Scenario = Callable[[httpx.AsyncClient], Awaitable[None]]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "suggestions.db"


def suggestion(correction: str = "c", source: str = "en", target: str = "de") -> Suggestion:
    return Suggestion(source, target, "a", "b", correction, "toy", "1")


def rows(file: Path) -> list[Any]:
    columns = ", ".join(Suggestion._fields)
    with closing(sqlite3.connect(file)) as database:
        return database.execute(f"SELECT {columns} FROM suggestion ORDER BY id").fetchall()


# The database.


def test_database_keeps_suggestions_for_its_owner_only(file: Path) -> None:
    store = SuggestionStore(file, 1)
    assert file.stat().st_mode & 0o777 == 0o600
    attack = "'); DROP TABLE suggestion; --"
    store.add(suggestion(attack))
    SuggestionStore(file, 1).add(suggestion("x\x00y"))
    assert rows(file) == [suggestion(attack), suggestion("x\x00y")]


def test_existing_database_is_closed_to_others(file: Path) -> None:
    file.touch(0o644)
    SuggestionStore(file, 1)
    assert file.stat().st_mode & 0o777 == 0o600


def test_expired_suggestions_are_overwritten(file: Path) -> None:
    now = 1000.0
    store = SuggestionStore(file, 2, lambda: now)
    store.add(suggestion(SECRET))
    now += DAY
    store.add(suggestion("new"))
    assert SECRET.encode() in file.read_bytes()
    now += 1.5 * DAY
    store.delete_expired()
    assert rows(file) == [suggestion("new")]
    assert SECRET.encode() not in b"".join(path.read_bytes() for path in file.parent.iterdir())


def test_number_of_suggestions_is_limited(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suggestions, "MAX_SUGGESTIONS", 1)
    store = SuggestionStore(file, 1)
    store.add(suggestion())
    with pytest.raises(ApiError) as refused:
        store.add(suggestion())
    assert refused.value.status == 507
    assert len(rows(file)) == 1


def test_missing_database_is_not_created_again(file: Path) -> None:
    store = SuggestionStore(file, 1)
    file.unlink()
    with pytest.raises(ApiError) as refused:
        store.add(suggestion(SECRET))
    assert refused.value.status == 503
    assert SECRET not in refused.value.message
    assert not file.exists()


def test_unusable_file_is_named(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("not a database" * 100)
    for path in (tmp_path, tmp_path / "nosuch" / "file", text):
        with pytest.raises(UserError, match=f"--suggestions={path}: "):
            SuggestionStore(path, 1)
    assert text.read_text() == "not a database" * 100


# The routes.


def run(file: Path | None, scenario: Scenario, **changes: Any) -> None:
    """Run a scenario with a server that keeps suggestions in a file."""

    async def start() -> None:
        settings = Settings(models=(), backends=(), suggestions=file, **changes)
        guard, metrics = make_guard(settings, **TWO_WAYS)
        await guard.models.start()
        transport = httpx.ASGITransport(create(guard, metrics))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            await scenario(client)
        await guard.models.close()

    asyncio.run(asyncio.wait_for(start(), 60))


def test_both_routes_keep_suggestions_and_log_no_text(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        body = CORRECTION | {"correction": SECRET}
        backward = CORRECTION | {"source": "de", "target": "en"}
        for response in (
            await client.post(PATH, json=body),
            await client.post(PATH, json=backward),
            await client.post("/suggest", data=FORM),
            await client.post("/suggest", json=FORM | {"s": "another"}),
        ):
            assert (response.status_code, response.json()) == (200, {"success": True})
        settings = (await client.get("/frontend/settings")).json()
        limits = (await client.get("/api/v1/models")).json()["limits"]
        assert (settings["suggestions"], limits["suggestion_days"]) == (True, 90)

    with caplog.at_level(logging.DEBUG):
        run(file, scenario)
    shown = tuple(CORRECTION.values())
    assert rows(file) == [
        ("en", "de", *shown[:2], SECRET, "fake", "1"),
        ("de", "en", *shown, "fake", "1"),
        ("en", "de", FORM["q"], "", FORM["s"], "fake", "1"),
        ("en", "de", FORM["q"], "", "another", "fake", "1"),
    ]
    assert all(SECRET not in str(record.__dict__) for record in caplog.records)


def test_server_without_a_database_refuses_suggestions() -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        assert (await client.post(PATH, json=CORRECTION)).status_code == 403
        assert (await client.post("/suggest", data=FORM)).status_code == 403
        settings = (await client.get("/frontend/settings")).json()
        limits = (await client.get("/api/v1/models")).json()["limits"]
        assert not settings["suggestions"]
        assert "suggestion_days" not in limits

    run(None, scenario)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"s": "a" * 41}, "41 characters"),
        ({"q": "a" * 21}, "21 characters"),
        ({"s": " \n"}, "must not be empty"),
        ({"s": "\x00\u2028 "}, "must not be empty"),
        ({"q": "\x1b"}, "must not be empty"),
        ({"target": "fr"}, "not supported"),
        ({"q": ["a", "b"]}, "q: "),
    ],
)
def test_invalid_suggestion_is_refused_by_both_routes(
    file: Path, changes: dict[str, Any], problem: str
) -> None:
    names = {"q": "text", "s": "correction"}

    async def scenario(client: httpx.AsyncClient) -> None:
        body = {names.get(name, name): value for name, value in (FORM | changes).items()}
        response = await client.post(PATH, json={**body, "translation": ""})
        assert response.status_code == 422
        plain = await client.post("/suggest", json=FORM | changes)
        assert plain.status_code == 400
        assert problem in plain.json()["error"]

    run(file, scenario, max_chars=20)
    assert rows(file) == []


def test_suggestions_of_other_sites_wrong_keys_and_over_the_rate_are_refused(file: Path) -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        stranger = {"Origin": "https://stranger.example"}
        keyed = FORM | {"api_key": "one"}
        assert (await client.post("/suggest", data=keyed, headers=stranger)).status_code == 403
        assert (await client.post("/suggest", data=FORM)).status_code == 400
        assert (await client.post(PATH, json=CORRECTION)).status_code == 401
        accepted = [(await client.post("/suggest", data=keyed)).status_code for _ in range(4)]
        assert accepted == [200, 200, 200, 429]

    run(file, scenario, rate=100, key_digests=frozenset({key_digest("one")}))
    assert len(rows(file)) == 3


def test_server_deletes_expired_suggestions_without_a_request(file: Path) -> None:
    SuggestionStore(file, 1, lambda: 0).add(suggestion())
    settings = Settings(models=(), backends=(), suggestions=file)

    async def scenario() -> None:
        cleanup = asyncio.create_task(Suggestions(make_guard(settings)[0]).clean_up())
        while rows(file):
            await asyncio.sleep(0.01)
        cleanup.cancel()

    asyncio.run(asyncio.wait_for(scenario(), 60))


# The export.


def test_export_is_a_corpus_of_one_line_per_pair(file: Path) -> None:
    store = SuggestionStore(file, 1)
    for correction in ("one\ttwo\r\nthree\u2028four", "same", "same", "a\u00a0!", "Ä"):
        store.add(suggestion(correction))
    store.add(suggestion("other", "de", "en"))
    lines = list(export(file, "en", "de"))
    path = file.with_suffix(".tsv")
    path.write_text("".join(lines), encoding="utf-8")
    corrections = ["one two three four", "same", "a\u00a0!", "Ä"]
    assert list(TSV(path, "en", "de").pairs()) == [("a", text) for text in corrections]
    assert list(export(file, "de", None)) == ["de\ten\n", "a\tother\n"]
    assert {*file.parent.iterdir()} == {file, path}


def test_first_correction_is_not_read_as_a_header(file: Path) -> None:
    SuggestionStore(file, 1).add(suggestion()._replace(text="English", correction="Deutsch"))
    path = file.with_suffix(".tsv")
    path.write_text("".join(export(file, None, None)))
    assert list(TSV(path, "en", "de").pairs()) == [("English", "Deutsch")]


def command(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "app.suggestions", *arguments],
        **{"stdout": subprocess.PIPE, **options},
        stderr=subprocess.PIPE,
        cwd=ROOT,
        text=True,
        timeout=60,
    )


def test_command_exports_while_the_application_writes(file: Path) -> None:
    store = SuggestionStore(file, 1)
    store.add(suggestion("Ä"))
    with closing(sqlite3.connect(file)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        done = command("export", f"--database={file}")
    assert (done.stdout, done.stderr, done.returncode) == ("en\tde\na\tÄ\n", "", 0)
    assert file.stat().st_mode & 0o777 == 0o600


def test_command_names_problems(file: Path) -> None:
    database = f"--database={file}"

    def check(code: int, problem: str, *arguments: str, **options: Any) -> None:
        done = command(*arguments, **options)
        assert (done.returncode, done.stderr) == (code, f"app: {problem}\n")

    check(2, "the following arguments are required: --database; see --help", "export")
    check(
        1,
        f"{database}: unable to open database file; name the file of --suggestions",
        *("export", database),
    )
    store = SuggestionStore(file, 1)
    check(
        1,
        f"{database}: contains no such correction; check --source and --target",
        *("export", database, "--source=en"),
    )
    for _ in range(2):
        store.add(suggestion())
    with open("/dev/full", "w") as full:
        problem = "stdout: No space left on device; check the disk"
        check(1, problem, "export", database, stdout=full)
    store.add(suggestion("c", "de", "en"))
    check(
        1,
        f"{database}: contains de to en, en to de; add --source and --target",
        *("export", database),
    )


def test_command_ends_when_its_reader_does(file: Path) -> None:
    store = SuggestionStore(file, 1)
    store.add(suggestion("c" * 100_000))
    with subprocess.Popen(["true"], stdin=subprocess.PIPE) as reader:
        reader.wait()
        done = command("export", f"--database={file}", stdout=reader.stdin)
    assert (done.returncode, done.stderr) == (-signal.SIGPIPE, "")
