"""A LiteRT export has the outputs of its run, without TensorFlow."""

import io
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from sentencepiece import SentencePieceTrainer

from tfnmt.decoding.lines import Signatures
from tfnmt.decoding.signatures import SIGNATURES
from tfnmt.decoding.translator import signatures
from tfnmt.errors import UserError
from tfnmt.litert.files import CARD, EXTRA_LENGTH, GRAPHS, LIMITS, TOKENIZER, checksum
from tfnmt.litert.model import AXES, LiteRTModel
from tfnmt.loading.models import find_run

pytestmark = pytest.mark.slow  # an export is converted

TEXTS = [
    "She knows that the dog sleeps.",
    "",
    " ",
    "😀🏽‍🚀 日本語の文です。",
    "two  spaces ",
    "The old king sees a small cat. " * 30,  # longer than the model reads
    "She knows that the old king sees a small cat, and that the dog sleeps in the house.",
]


@pytest.fixture(scope="module")
def run_signatures(tiny_run: Path) -> Signatures:
    return signatures(find_run(tiny_run).load_translator())


@pytest.fixture(scope="module")
def model(tiny_litert: Path) -> LiteRTModel:
    return LiteRTModel(tiny_litert, interpreters=2)


@pytest.fixture
def copied(tiny_litert: Path, tmp_path: Path) -> Path:
    return shutil.copytree(tiny_litert, tmp_path / "copy")


def encode(texts: list[str]) -> np.ndarray:
    return np.array([text.encode() for text in texts], object)


def arrays(outputs: Mapping[str, object]) -> dict[str, np.ndarray]:
    return {name: np.asarray(value) for name, value in outputs.items()}


def without_padding(outputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Remove the columns of `tokens` that are padding in every row."""
    tokens = outputs.get("tokens")
    if tokens is None:
        return outputs
    longest = int(np.count_nonzero(tokens, axis=-1).max())
    return outputs | {"tokens": tokens[..., :longest]}


def check_equal(expected: dict[str, np.ndarray], found: dict[str, np.ndarray]) -> None:
    """Compare outputs; floats only where both have a token."""
    expected, found = without_padding(expected), without_padding(found)
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        assert value.shape == found[name].shape
        for row in range(len(value)):
            real = tuple(slice(int(expected[f"{side}_length"][row])) for side in AXES.get(name, ()))
            part = (slice(row, row + 1), ..., *real)
            ours, theirs = found[name][part], value[part]
            if value.dtype == np.float32:
                np.testing.assert_allclose(ours, theirs, atol=1e-4)
            else:
                np.testing.assert_array_equal(ours, theirs)


def test_model_has_all_signatures_of_an_export(model: LiteRTModel) -> None:
    assert model.signatures.keys() == SIGNATURES.keys()


@pytest.mark.parametrize("name", ["serving_default", "greedy", "nbest", "tokenize"])
def test_outputs_for_texts_are_those_of_the_run(
    model: LiteRTModel, run_signatures: Signatures, name: str
) -> None:
    text = encode(TEXTS)
    check_equal(arrays(run_signatures[name](text=text)), arrays(model.signatures[name](text=text)))


@pytest.mark.parametrize("name", ["align", "attention"])
def test_forced_translations_have_the_numbers_of_the_run(
    model: LiteRTModel, run_signatures: Signatures, name: str
) -> None:
    inputs = {"text": encode(TEXTS), "translation": encode(TEXTS[::-1])}
    check_equal(arrays(run_signatures[name](**inputs)), arrays(model.signatures[name](**inputs)))


def test_outputs_for_ids_are_those_of_the_run(
    model: LiteRTModel, run_signatures: Signatures
) -> None:
    tokens = model.signatures["tokenize"](text=encode(TEXTS))["tokens"]
    for name, inputs in (
        ("search", {"tokens": tokens}),
        ("detokenize", {"tokens": tokens}),
        ("align_tokens", {"tokens": tokens, "target": tokens[::-1].copy()}),
    ):
        check_equal(
            arrays(run_signatures[name](**inputs)), arrays(model.signatures[name](**inputs))
        )


def test_outputs_do_not_depend_on_the_room_of_the_first_search(
    model: LiteRTModel, copied: Path
) -> None:
    card = json.loads((copied / CARD).read_text())
    (copied / CARD).write_text(json.dumps(card | {EXTRA_LENGTH: 1}))
    crowded = LiteRTModel(copied, 1)
    for name in "serving_default", "greedy", "nbest":
        text = encode(TEXTS)
        check_equal(*(arrays(each.signatures[name](text=text)) for each in (model, crowded)))


def test_bytes_that_are_not_utf_8_are_replaced(
    model: LiteRTModel, run_signatures: Signatures
) -> None:
    text = np.array([b"\xff dog \xc3", b"\x00"], object)
    for name in ("tokenize", "serving_default"):
        check_equal(
            arrays(run_signatures[name](text=text)), arrays(model.signatures[name](text=text))
        )


def test_info_is_the_card(model: LiteRTModel) -> None:
    cards = model.signatures["info"](text=encode(["", ""]))["card"]
    assert [json.loads(card) for card in cards] == [model.card] * 2
    assert model.card["quantization"] == "float32"
    assert model.card["parity"]["identical"] == model.card["parity"]["translations"]


SCRIPT = """
import sys
from pathlib import Path
from tfnmt.errors import UserError
from tfnmt.litert.model import LiteRTModel
try:
    LiteRTModel(Path(sys.argv[1]), 1).signatures["serving_default"](text=[b"dog"])
except UserError:
    sys.exit(3)
"""


def test_model_needs_no_tensorflow(tiny_litert: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from tfnmt.litert.model import LiteRTModel\n"
        "model = LiteRTModel(Path(sys.argv[1]), 1)\n"
        "print(model.signatures['serving_default'](text=[b'dog'])['translation'])\n"
        "assert not {'tensorflow', 'keras'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", script, tiny_litert], check=True, capture_output=True)


# --- Damaged exports ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [GRAPHS, TOKENIZER, CARD])
@pytest.mark.parametrize("content", [None, b"", b"garbage", b"[]"])
def test_missing_or_damaged_file_is_a_user_error(
    copied: Path, name: str, content: bytes | None
) -> None:
    (copied / name).unlink()
    if content is not None:
        (copied / name).write_bytes(content)
    with pytest.raises(UserError, match=f"^{copied / name}: .*export the run again"):
        LiteRTModel(copied, 1)


def test_truncated_graphs_are_a_user_error(copied: Path) -> None:
    graphs = copied / GRAPHS
    graphs.write_bytes(graphs.read_bytes()[: graphs.stat().st_size // 2])
    with pytest.raises(UserError, match=f"^{graphs}: "):
        LiteRTModel(copied, 1)


def test_graphs_of_another_version_are_a_user_error(copied: Path) -> None:
    content = (copied / GRAPHS).read_bytes().replace(b"greedy", b"argmax")
    with_checksum(copied, GRAPHS, content)
    with pytest.raises(UserError, match=f"^{copied / GRAPHS}: .*export the run again"):
        LiteRTModel(copied, 1)


@pytest.mark.parametrize("value", [None, "x", 0, -1, 1.5, True, [], {}, 10**30])
@pytest.mark.parametrize("name", ["limits", "checksums", EXTRA_LENGTH, *LIMITS])
def test_card_with_a_wrong_type_is_a_user_error(copied: Path, name: str, value: object) -> None:
    card = json.loads((copied / CARD).read_text())
    place = card["limits"] if name in LIMITS else card
    place[name] = value
    (copied / CARD).write_text(json.dumps(card))
    with pytest.raises(UserError, match=f"^{copied / CARD}: .*export the run again"):
        LiteRTModel(copied, 1)


def with_checksum(folder: Path, name: str, content: bytes) -> None:
    """Replace a file of an export, and its checksum, as an attacker can."""
    (folder / name).write_bytes(content)
    card = json.loads((folder / CARD).read_text())
    card["checksums"][name] = checksum(folder / name)
    (folder / CARD).write_text(json.dumps(card))


def test_foreign_tokenizer_is_a_user_error(copied: Path) -> None:
    foreign = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(["a dog runs"] * 9), model_writer=foreign, vocab_size=13
    )
    for content in foreign.getvalue(), b"", b"garbage":
        with_checksum(copied, TOKENIZER, content)
        with pytest.raises(UserError, match=f"^{copied / TOKENIZER}: .*export the run again"):
            LiteRTModel(copied, 1)


def test_damaged_graphs_with_a_valid_checksum_do_not_end_the_process(copied: Path) -> None:
    content = (copied / GRAPHS).read_bytes()
    generator = random.Random(1)
    for count in (1, 1, 20, 200):
        damaged = bytearray(content)
        for _ in range(count):
            damaged[generator.randrange(len(damaged))] = generator.randrange(256)
        with_checksum(copied, GRAPHS, bytes(damaged))
        done = subprocess.run([sys.executable, "-c", SCRIPT, copied], capture_output=True)
        assert done.returncode in (0, 3)
