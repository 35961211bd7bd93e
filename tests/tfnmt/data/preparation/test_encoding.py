import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from tfnmt.config import TokenizerConfig
from tfnmt.data.preparation import encoding
from tfnmt.data.preparation.encoding import Chunk, encode, encode_chunk, ids_path, text_path
from tfnmt.data.preparation.storage import FlatWriter
from tfnmt.data.preparation.tokenizer import train_tokenizer
from tfnmt.errors import UserError
from tfnmt.runs.checkpoints import TOKENIZER

ROWS = 1000


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """Return a folder with text and a tokenizer, to be encoded in 200 chunks."""
    line = "the dog sees the cat"
    for side in encoding.SIDES:
        with FlatWriter(text_path(tmp_path, side)) as file:
            file.write(f"{line}\n".encode() * ROWS, [len(line) + 1] * ROWS)
    model = train_tokenizer([line] * 20, TokenizerConfig(vocab_size=280))
    (tmp_path / TOKENIZER).write_bytes(model)
    return tmp_path


@pytest.fixture(autouse=True)
def _chunks_of_10_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "CHUNK", 10)


def recorded_chunk(chunk: Chunk) -> tuple[np.ndarray, np.ndarray]:
    """Create a file for the chunk, and encode so much that no buffer delays an error."""
    (Path(os.environ["RECORDS"]) / f"{chunk.side}-{chunk.first}").touch()
    time.sleep(0.05)  # so that few chunks are encoded before the error
    ids, lengths = encode_chunk(chunk)
    return np.tile(ids, 1000), np.tile(lengths, 1000)


def killed_chunk(chunk: Chunk) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_encoding_ends_soon_after_an_error_in_writing(
    text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = text / "records"
    records.mkdir()
    monkeypatch.setenv("RECORDS", str(records))
    monkeypatch.setattr(encoding, "encode_chunk", recorded_chunk)
    ids_path(text, "source").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        encode(text, {"en-de": range(ROWS)})
    assert 0 < len(list(records.iterdir())) < 100


def test_killed_encoding_process_is_a_user_error(
    text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoding, "encode_chunk", killed_chunk)
    with pytest.raises(UserError, match=r"^an encoding process was killed, probably .*; provide"):
        encode(text, {"en-de": range(ROWS)})
