"""The CTranslate2 model against the Transformer that it is made of, in every shape there is."""

import json
import subprocess
import sys
import textwrap
from itertools import islice, product
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfnmt.config import Config, build_config
from tfnmt.data.corpora.toy import grammar
from tfnmt.data.preparation.tokenizer import BOS, EOS, PAD, UNK, Tokenizer, train_tokenizer
from tfnmt.decoding.inspector import shifted, token_log_probs
from tfnmt.decoding.translator import Translator
from tfnmt.errors import UserError
from tfnmt.exporting.ctranslate2 import (
    POSITIONS,
    QUANTIZATIONS,
    check_export,
    export_ctranslate2,
    search_options,
)
from tfnmt.model.transformer import Transformer

ctranslate2 = pytest.importorskip("ctranslate2", reason="not installed: pip install ctranslate2")

CARD = {"source": "en", "target": "de", "step": 7}
TEXTS = [source for source, _ in islice(grammar.pairs("test"), 9)]
TEXTS += ["line\u2028break \r 😀", "a", "</s> <s> <0x0A> \u2581"]
SHAPES = list(product((True, False), ("relu", "gelu"), ("all", "target", "none")))


class Case(NamedTuple):
    """A Transformer, and sentences to try it and its export on."""

    config: Config
    transformer: Transformer
    tokenizer_model: bytes

    def names(self, ids: np.ndarray) -> list[list[str]]:
        """Rows of ids as pieces, without padding and eos."""
        pieces = Tokenizer(self.tokenizer_model).pieces()
        return [[pieces[number] for number in row if number not in (PAD, EOS)] for row in ids]

    def export(self, folder: Path, quantization: str = "float32") -> Any:
        """The export, as CTranslate2 loads it."""
        export_ctranslate2(
            self.transformer, self.config, self.tokenizer_model, CARD, folder, quantization
        )
        return ctranslate2.Translator(str(folder), intra_threads=1)


@pytest.fixture(scope="module")
def tokenizer_model() -> bytes:
    config = build_config({"tokenizer": {"vocab_size": 400}}).tokenizer
    pairs = islice(grammar.pairs("train"), 500)
    return train_tokenizer((side for pair in pairs for side in pair), config)


@pytest.fixture(scope="module")
def sources(tokenizer_model: bytes) -> np.ndarray:
    """Ids of the texts."""
    return padded(Tokenizer(tokenizer_model).encode(TEXTS))


@pytest.fixture(scope="module")
def case(tokenizer_model: bytes) -> Case:
    return make_case(tokenizer_model)


def make_case(tokenizer_model: bytes, scale: float = 0.2, **model: object) -> Case:
    """Random weights, also where a new model has ones and zeros: in norms and biases."""
    shape = {
        "num_encoder_layers": 2, "num_decoder_layers": 1, "d_model": 20, "num_heads": 2,
        "d_ff": 28, "norm_epsilon": 1e-2,
    }  # fmt: skip
    decoding = {"max_source_length": 100, "max_length": 20, "length_penalty": 0.0}
    config = build_config({"model": shape | model, "decoding": decoding})
    keras.utils.set_random_seed(1)
    transformer = Transformer(config.model, 400)
    random = np.random.default_rng(1)
    for variable in transformer.variables:
        variable.assign(variable + scale * random.normal(size=variable.shape))
    return Case(config, transformer, tokenizer_model)


def padded(rows: list[list[int]]) -> np.ndarray:
    """Rows of ids with an eos each, [B, S]."""
    longest = max(map(len, rows)) + 1
    return np.array([[*row, EOS, *[PAD] * (longest - 1 - len(row))] for row in rows], "int32")


def any_targets(sources: np.ndarray) -> np.ndarray:
    """Targets of several lengths, of pieces drawn at random."""
    random = np.random.default_rng(2)
    return padded([random.integers(UNK, 400, 1 + row % 9).tolist() for row in range(len(sources))])


def log_probs(case: Case, theirs: Any, sources: np.ndarray) -> np.ndarray:
    """What CTranslate2 makes of any targets, as `token_log_probs` gives it."""
    targets = any_targets(sources)
    results = theirs.score_batch(case.names(sources), case.names(targets))
    found = np.zeros(targets.shape)
    for row, result in zip(found, results, strict=True):
        row[: len(result.log_probs)] = result.log_probs
    return found


@pytest.mark.parametrize(("norm_first", "activation", "tie_embeddings"), SHAPES)
def test_log_probs_and_greedy_translations_are_ours(
    norm_first: bool, activation: str, tie_embeddings: str,
    tokenizer_model: bytes, sources: np.ndarray, tmp_path: Path,
) -> None:  # fmt: skip
    case = make_case(
        tokenizer_model, norm_first=norm_first, activation=activation, tie_embeddings=tie_embeddings
    )
    theirs = case.export(tmp_path / "model")
    ours = token_log_probs(case.transformer, sources, any_targets(sources))
    np.testing.assert_allclose(log_probs(case, theirs, sources), ours, atol=1e-4)

    options = search_options(case.config.decoding) | {"beam_size": 1}
    results = theirs.translate_batch(case.names(sources), **options)
    number = {name: i for i, name in enumerate(Tokenizer(tokenizer_model).pieces())}
    found = padded([[number[name] for name in result.hypotheses[0]] for result in results])
    # Greedy is what takes our likeliest piece behind all that it took before.
    logits = case.transformer(sources, shifted(found)).numpy()
    logits[..., [PAD, BOS]] = -np.inf  # never part of a translation
    likeliest = logits.argmax(-1)
    cut = np.arange(found.shape[1]) == case.config.decoding.max_length  # where no eos had room
    np.testing.assert_array_equal(found, np.where((found == PAD) | cut, found, likeliest))


def test_beams_find_what_ours_find(
    tokenizer_model: bytes, sources: np.ndarray, tmp_path: Path
) -> None:
    case = make_case(tokenizer_model, scale=0.05)
    make_ends_likely(case.transformer)
    decoding = case.config.decoding
    translator = Translator(case.transformer, case.tokenizer_model, decoding)
    tokens = translator.search(tf.constant(sources))["tokens"].numpy()
    assert len(set(np.count_nonzero(tokens, axis=1))) > 2  # they end here and there
    theirs = case.export(tmp_path / "model")
    results = theirs.translate_batch(case.names(sources), **search_options(decoding))
    assert [result.hypotheses[0] for result in results] == case.names(tokens)


def make_ends_likely(transformer: Transformer) -> None:
    """Draws the eos towards what the last norm adds to everything."""
    direction = transformer.decoder.norm.beta.numpy()
    table = transformer.output_embedding.table
    drawn = table.numpy()
    drawn[EOS] += 3 * direction / np.linalg.norm(direction)
    table.assign(drawn)


@pytest.mark.parametrize(("quantization", "tolerance"), [("float16", 0.01), ("int8", 0.2)])
def test_quantizing_changes_little_there_and_nothing_here(
    case: Case, sources: np.ndarray, tmp_path: Path, quantization: str, tolerance: float
) -> None:
    before = [variable.numpy() for variable in case.transformer.variables]
    exact = log_probs(case, case.export(tmp_path / "float32"), sources)
    found = log_probs(case, case.export(tmp_path / quantization, quantization), sources)
    assert 0 < np.abs(found - exact).mean() < tolerance
    sizes = [(tmp_path / name / "model.bin").stat().st_size for name in ("float32", quantization)]
    assert sizes[1] < 0.8 * sizes[0]
    for variable, value in zip(case.transformer.variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)


def test_pieces_keep_their_ids(case: Case, tmp_path: Path) -> None:
    case.export(tmp_path / "model")
    pieces = json.loads((tmp_path / "model" / "shared_vocabulary.json").read_text())
    assert pieces == Tokenizer(case.tokenizer_model).pieces()
    assert len(set(pieces)) == 400
    assert "<0x0A>" in pieces
    assert [pieces[BOS], pieces[EOS], pieces[UNK]] == ["<s>", "</s>", "<unk>"]


def test_what_is_never_a_translation_needs_no_option(case: Case, tmp_path: Path) -> None:
    theirs = case.export(tmp_path / "model")
    for mark in ("<pad>", "<s>"):
        scored = theirs.score_batch([["a"]], [[mark]])[0]
        assert scored.log_probs[0] < -1e4


def test_a_long_source_is_cut_as_ours_is(case: Case, tmp_path: Path) -> None:
    theirs = case.export(tmp_path / "model")
    options = {"return_scores": True, **search_options(case.config.decoding)}
    long, cut = theirs.translate_batch([["a"] * 150, ["a"] * 99], **options)
    assert long.hypotheses == cut.hypotheses
    assert long.scores == pytest.approx(cut.scores, abs=1e-4)
    theirs.translate_batch([["a"] * 2 * POSITIONS], max_decoding_length=2)  # their own limit


def test_the_readme_translates_without_tfnmt(case: Case, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    theirs = case.export(folder)
    lines = (folder / "README.txt").read_text().splitlines()
    start = lines.index("    import ctranslate2")
    code = "\n".join(line for line in lines[start:] if line.startswith("    "))
    code = textwrap.dedent(code).replace('["..."]', repr(TEXTS[:3]))
    check = '\nimport sys; assert not {"tfnmt", "tensorflow"} & set(sys.modules)'
    process = subprocess.run(
        [sys.executable, "-c", code + check], capture_output=True, text=True, check=True, cwd=folder
    )
    tokenizer = Tokenizer(case.tokenizer_model)
    pieces = case.names(padded(tokenizer.encode(TEXTS[:3])))
    results = theirs.translate_batch(pieces, **search_options(case.config.decoding))
    expected = [tokenizer._processor.decode(result.hypotheses[0]) for result in results]
    assert process.stdout.splitlines() == "\n".join(expected).splitlines()


def test_the_folder_is_whole_and_new(case: Case, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "model"
    folder.mkdir(parents=True)  # an empty one is no hindrance
    case.export(folder, "int8")
    assert [path.name for path in tmp_path.joinpath("deep").iterdir()] == ["model"]
    assert sorted(path.name for path in folder.iterdir()) == [
        "README.txt", "config.json", "model.bin", "model_card.json", "shared_vocabulary.json",
        "tokenizer.model",
    ]  # fmt: skip
    assert (folder / "tokenizer.model").read_bytes() == case.tokenizer_model
    assert json.loads((folder / "model_card.json").read_text()) == CARD | {"quantization": "int8"}
    with pytest.raises(UserError, match="holds something already"):
        case.export(folder)


def test_a_missing_package_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(UserError, match="pip install ctranslate2"):
        check_export(tmp_path / "model")


def test_every_quantization_is_known_to_ctranslate2() -> None:
    from ctranslate2.specs.model_spec import ACCEPTED_MODEL_TYPES

    assert set(QUANTIZATIONS) <= set(ACCEPTED_MODEL_TYPES)
