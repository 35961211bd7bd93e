"""Damaged run folders, tokenizers, prepared corpora and bundles are refused, or load as before."""

import contextlib
import gzip
import io
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.fuzz.damage import EDITS, KINDS, Edit, damage, edited
from tfnmt.config import Config, TokenizerConfig, build_config, dump_config
from tfnmt.data.corpora.catalog import open_corpus
from tfnmt.data.preparation.prepared import Prepared, prepare
from tfnmt.data.preparation.tokenizer import Tokenizer, train_tokenizer
from tfnmt.errors import UserError
from tfnmt.loading.bundles import license_title, unpack_bundle
from tfnmt.runs.checkpoints import WEIGHTS, check_weights, is_complete
from tfnmt.runs.run import Run, newest_finished_run

WORDS = ["rest sets", "test trees", "the dog sees every cat", "der Hund sieht jede Katze"]


@pytest.fixture(scope="module")
def tokenizer_model() -> bytes:
    return train_tokenizer(WORDS * 20, TokenizerConfig(vocab_size=300))


@pytest.fixture(scope="module")
def run(tokenizer_model: bytes, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A complete run folder whose weights are only some bytes."""

    def fill(folder: Path) -> None:
        (folder / WEIGHTS).write_bytes(b"weights" * 100)

    run = Run(tmp_path_factory.mktemp("runs") / "run")
    run.create(Config(), tokenizer_model, "name checksum", ["val"])
    for checkpoints in (run.checkpoints(2), run.best, run.averaged):
        checkpoints.write(100, fill)
    run.checkpoints(2).write(200, fill)
    run.append_validation(100, 1.5)
    run.append_evaluation({"split": "test", "bleu": 2.5})
    run.summary_path.write_text("{}")
    return run


# --- Run folders ----------------------------------------------------------------------------------

FILES = (
    "config.yaml",
    "tokenizer.model",
    "prepared",
    "summary.json",
    "validations.jsonl",
    "evaluations.jsonl",
    "averaged",
    "averaged/00000100",
    f"averaged/00000100/{WEIGHTS}",
    "averaged/00000100/checksums.json",
    "averaged/00000100/tokenizer.sha256",
    "checkpoints/00000200/checksums.json",
    "checkpoints",
)


def use(run: Run) -> None:
    """Read everything in a run folder, as the commands do. Only UserErrors are accepted."""

    def lock() -> None:
        with run.locked():
            pass

    def load() -> None:
        weights = run.weights()
        model = run.tokenizer_model()
        check_weights(weights)
        if weights.is_file():
            Tokenizer(model)

    reads: list[Callable[[], object]] = [
        load,
        run.config,
        run.held_out,
        run.validations,
        run.evaluations,
        run.check_free,
        run.check_resumable,
        lambda: run.check_data("name checksum", b""),
        lambda: [is_complete(path) for path in run.checkpoints().all()],
        lambda: run.append_evaluation({}),
        lambda: newest_finished_run(run.path.parent),
        lambda: run.accept_changes(build_config({"training": {"max_steps": 7}})),
        lock,
    ]
    for read in reads:
        with contextlib.suppress(UserError):
            read()


@given(st.sampled_from(FILES), KINDS, EDITS)
@example("averaged", "file", [(0, 0, b"")])
@example("averaged/00000100", "file", [(0, 0, b"")])
@example(f"averaged/00000100/{WEIGHTS}", "folder", [(0, 0, b"")])
@example("averaged/00000100/checksums.json", "file", [(0, 0, b"[1]")])
@example("averaged/00000100/checksums.json", "file", [(0, 0, b'{"../x": 1}')])
@example("config.yaml", "file", [(0, 0, b"!!timestamp x")])
@example("prepared", "file", [(0, 0, b"")])
@example("prepared", "file", [(0, 0, b"\xff")])
@example("summary.json", "folder", [(0, 0, b"")])
@example("validations.jsonl", "file", [(0, 0, b"[1]")])
@example("validations.jsonl", "folder", [(0, 0, b"")])
def test_damaged_run_folder_raises_only_user_errors(
    run: Run, tmp_path: Path, name: str, kind: str, edits: list[Edit]
) -> None:
    copy = Run(tmp_path / "copy")
    shutil.rmtree(copy.path, ignore_errors=True)
    shutil.copytree(run.path, copy.path)
    damage(copy.path / name, kind, edits)
    use(copy)


@given(st.sampled_from(["tokenizer.model", f"averaged/00000100/{WEIGHTS}"]), EDITS)
def test_changed_tokenizer_or_weights_are_refused(
    run: Run, tmp_path: Path, name: str, edits: list[Edit]
) -> None:
    copy = Run(tmp_path / "copy")
    shutil.rmtree(copy.path, ignore_errors=True)
    shutil.copytree(run.path, copy.path)
    damage(copy.path / name, "edit", edits)
    if (copy.path / name).read_bytes() == (run.path / name).read_bytes():
        check_weights(copy.weights())
        return
    with pytest.raises(UserError, match=str(copy.path / name)):
        check_weights(copy.weights())


# --- Tokenizers -----------------------------------------------------------------------------------


@given(EDITS)
@example([(0, 2**20, b"")])
def test_damaged_tokenizer_is_refused_or_encodes(tokenizer_model: bytes, edits: list[Edit]) -> None:
    with contextlib.suppress(UserError):
        tokenizer = Tokenizer(edited(tokenizer_model, edits))
        ids, _ = tokenizer.encode_flat(WORDS)
        assert 0 <= ids.min() <= ids.max() < tokenizer.vocab_size


# --- Prepared corpora -----------------------------------------------------------------------------


def prepared_copy(cache: Path) -> Prepared:
    config = build_config(
        {
            "data": {
                "corpus": "copy",
                "source": "digits",
                "target": "copied",
                "max_pairs": 50,
                "bpe_dropout": 0.1,
            },
            "tokenizer": {"vocab_size": 280},
        }
    )
    return prepare(config, open_corpus(config.data, 1, cache), cache)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache of a prepared corpus."""
    cache = tmp_path_factory.mktemp("cache")
    prepared_copy(cache)
    return cache


PREPARED = (
    "tokenizer.model",
    "train.source.ids",
    "train.target.ids.splits.npy",
    "train.source.txt",
    "train.target.txt.splits.npy",
    "checksums.json",
)


@given(
    st.sampled_from(PREPARED),
    KINDS,
    EDITS,
    st.booleans(),
)
@example("train.source.ids", "file", [(0, 0, b"")], False)
@example("train.source.ids", "file", [(0, 0, b"")], True)
@example("checksums.json", "file", [(0, 0, b"[]")], False)
def test_damaged_corpus_is_prepared_again(
    corpus: Path,
    tmp_path: Path,
    name: str,
    kind: str,
    edits: list[Edit],
    earlier_version: bool,
) -> None:
    """The corpus of an earlier version has no checksums, so that some damage remains unnoticed."""
    expected = prepared_copy(corpus)
    cache = tmp_path / "cache"
    shutil.rmtree(cache, ignore_errors=True)
    shutil.copytree(corpus, cache)
    folder = cache / "prepared" / expected.folder.name
    if earlier_version:
        (folder / "checksums.json").unlink()
    damage(folder / name, kind, edits)
    found = prepared_copy(cache)
    if not earlier_version:
        assert found.identity == expected.identity


# --- Bundles --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bundle(run: Run) -> bytes:
    """An uncompressed bundle."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for path in sorted(run.path.rglob("*")):
            if "averaged" in path.parts or path.name in ("config.yaml", "tokenizer.model"):
                tar.add(path, f"bundle/{path.relative_to(run.path)}", recursive=False)
        member = tarfile.TarInfo("bundle/LICENSE.txt")
        member.size = 5
        tar.addfile(member, io.BytesIO(b"terms"))
    return archive.getvalue()


def unpack(content: bytes, folder: Path) -> Path:
    """Unpack a bundle, or raise a UserError and leave nothing."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    archive = folder / "x.tar.gz"
    archive.write_bytes(content)
    try:
        unpack_bundle(archive, folder / "x")
    except UserError:
        assert [path.name for path in folder.iterdir()] == ["x.tar.gz"]
        raise
    return folder / "x"


@given(EDITS)
def test_damaged_archive_is_refused(bundle: bytes, tmp_path: Path, edits: list[Edit]) -> None:
    """The header of gzip has bytes without a meaning, such as the time."""
    content = gzip.compress(bundle, mtime=0)
    changed = edited(content, edits)
    if changed[10:] == content[10:]:
        return
    with pytest.raises(UserError):
        unpack(changed, tmp_path / "bundles")


@given(EDITS)
def test_changed_members_are_refused_or_load(
    bundle: bytes, run: Run, tmp_path: Path, edits: list[Edit]
) -> None:
    with contextlib.suppress(UserError):
        folder = unpack(gzip.compress(edited(bundle, edits), 1), tmp_path / "bundles")
        license_title(folder)
        use(Run(folder))


# --- Configurations -------------------------------------------------------------------------------


def test_config_of_a_run_is_restored(run: Run) -> None:
    assert dump_config(run.config()) == dump_config(Config())
