"""CTranslate2 models against the Transformers that they were converted from, in every shape."""

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
from tfnmt.decoding.inspector import shift_right, token_log_probs
from tfnmt.decoding.translator import Translator
from tfnmt.errors import UserError
from tfnmt.exporting import QUANTIZATIONS
from tfnmt.exporting.ctranslate2 import (
    MIN_POSITIONS,
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
    """A Transformer, its configuration and its tokenizer."""

    config: Config
    transformer: Transformer
    tokenizer_model: bytes

    def names(self, ids: np.ndarray) -> list[list[str]]:
        """Return rows of ids as token strings, without padding and EOS."""
        tokens = Tokenizer(self.tokenizer_model).tokens()
        return [[tokens[number] for number in row if number not in (PAD, EOS)] for row in ids]

    def export(self, folder: Path, quantization: str = "float32") -> Any:
        """Export the Transformer; return the model that CTranslate2 loads."""
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
    """Return the ids of TEXTS, [B, S]."""
    return padded(Tokenizer(tokenizer_model).encode(TEXTS))


@pytest.fixture(scope="module")
def case(tokenizer_model: bytes) -> Case:
    return make_case(tokenizer_model)


def make_case(tokenizer_model: bytes, scale: float = 0.2, **model: object) -> Case:
    """Create a Transformer of random weights, also in norms and biases.

    A new model would have ones and zeros there.
    """
    shape = {
        "num_encoder_layers": 2,
        "num_decoder_layers": 1,
        "d_model": 20,
        "num_heads": 2,
        "d_ff": 28,
        "norm_epsilon": 1e-2,
    }
    decoding = {"max_source_length": 100, "max_length": 20, "length_penalty": 0.0}
    config = build_config({"model": shape | model, "decoding": decoding})
    keras.utils.set_random_seed(1)
    transformer = Transformer(config.model, 400)
    random = np.random.default_rng(1)
    for variable in transformer.variables:
        variable.assign(variable + scale * random.normal(size=variable.shape))
    return Case(config, transformer, tokenizer_model)


def padded(rows: list[list[int]]) -> np.ndarray:
    """Add EOS and padding to rows of ids, [B, S]."""
    longest = max(map(len, rows)) + 1
    return np.array([[*row, EOS, *[PAD] * (longest - 1 - len(row))] for row in rows], "int32")


def random_targets(sources: np.ndarray) -> np.ndarray:
    """Return targets of several lengths, of random tokens, [B, T]."""
    random = np.random.default_rng(2)
    return padded([random.integers(UNK, 400, 1 + row % 9).tolist() for row in range(len(sources))])


def log_probs(case: Case, theirs: Any, sources: np.ndarray) -> np.ndarray:
    """Return the log probabilities of CTranslate2 for random targets, [B, T], 0 at padding."""
    targets = random_targets(sources)
    results = theirs.score_batch(case.names(sources), case.names(targets))
    found = np.zeros(targets.shape)
    for row, result in zip(found, results, strict=True):
        row[: len(result.log_probs)] = result.log_probs
    return found


@pytest.mark.parametrize(("norm_first", "activation", "tie_embeddings"), SHAPES)
def test_ctranslate2_log_probs_and_greedy_translations_equal_ours(
    norm_first: bool,
    activation: str,
    tie_embeddings: str,
    tokenizer_model: bytes,
    sources: np.ndarray,
    tmp_path: Path,
) -> None:
    case = make_case(
        tokenizer_model,
        norm_first=norm_first,
        activation=activation,
        tie_embeddings=tie_embeddings,
    )
    theirs = case.export(tmp_path / "model")
    ours = token_log_probs(case.transformer, sources, random_targets(sources))
    np.testing.assert_allclose(log_probs(case, theirs, sources), ours, atol=1e-4)

    options = search_options(case.config.decoding) | {"beam_size": 1}
    results = theirs.translate_batch(case.names(sources), **options)
    number = {name: i for i, name in enumerate(Tokenizer(tokenizer_model).tokens())}
    found = padded([[number[name] for name in result.hypotheses[0]] for result in results])
    # Greedy search chooses our most probable token after the tokens that it has chosen before.
    logits = case.transformer(sources, shift_right(found)).numpy()
    logits[..., [PAD, BOS]] = -np.inf  # never part of a translation
    best = logits.argmax(-1)
    # `padded` adds an EOS to translations that reached max_length without one.
    at_limit = np.arange(found.shape[1]) == case.config.decoding.max_length
    np.testing.assert_array_equal(found, np.where((found == PAD) | at_limit, found, best))


def test_ctranslate2_beam_search_finds_our_translations(
    tokenizer_model: bytes, sources: np.ndarray, tmp_path: Path
) -> None:
    case = make_case(tokenizer_model, scale=0.05)
    make_eos_probable(case.transformer)
    decoding = case.config.decoding
    translator = Translator(case.transformer, case.tokenizer_model, decoding)
    tokens = translator.search(tf.constant(sources))["tokens"].numpy()
    assert len(set(np.count_nonzero(tokens, axis=1))) > 2  # the translations have several lengths
    theirs = case.export(tmp_path / "model")
    results = theirs.translate_batch(case.names(sources), **search_options(decoding))
    assert [result.hypotheses[0] for result in results] == case.names(tokens)


def make_eos_probable(transformer: Transformer) -> None:
    """Move the embedding of EOS towards the bias of the last norm."""
    direction = transformer.decoder.norm.beta.numpy()
    table = transformer.output_embedding.table
    weights = table.numpy()
    weights[EOS] += 3 * direction / np.linalg.norm(direction)
    table.assign(weights)


@pytest.mark.parametrize(("quantization", "tolerance"), [("float16", 0.01), ("int8", 0.2)])
def test_quantization_changes_the_export_little_and_the_transformer_not(
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


def test_ctranslate2_vocabulary_keeps_the_token_ids(case: Case, tmp_path: Path) -> None:
    case.export(tmp_path / "model")
    tokens = json.loads((tmp_path / "model" / "shared_vocabulary.json").read_text())
    assert tokens == Tokenizer(case.tokenizer_model).tokens()
    assert len(set(tokens)) == 400
    assert "<0x0A>" in tokens
    assert [tokens[BOS], tokens[EOS], tokens[UNK]] == ["<s>", "</s>", "<unk>"]


def test_ctranslate2_gives_padding_and_bos_no_probability(case: Case, tmp_path: Path) -> None:
    theirs = case.export(tmp_path / "model")
    for token in ("<pad>", "<s>"):
        scored = theirs.score_batch([["a"]], [[token]])[0]
        assert scored.log_probs[0] < -1e4


def test_ctranslate2_truncates_a_long_source_as_we_do(case: Case, tmp_path: Path) -> None:
    theirs = case.export(tmp_path / "model")
    options = {"return_scores": True, **search_options(case.config.decoding)}
    long, truncated = theirs.translate_batch([["a"] * 150, ["a"] * 99], **options)
    assert long.hypotheses == truncated.hypotheses
    assert long.scores == pytest.approx(truncated.scores, abs=1e-4)
    theirs.translate_batch(
        [["a"] * 2 * MIN_POSITIONS], max_decoding_length=2
    )  # the default limit of CTranslate2


def test_readme_code_translates_without_tfnmt(case: Case, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    theirs = case.export(folder)
    lines = (folder / "README.txt").read_text().splitlines()
    start = lines.index("    import ctranslate2")
    code = "\n".join(line for line in lines[start:] if line.startswith("    "))
    code = textwrap.dedent(code).replace('["..."]', repr(TEXTS[:3]))
    check = '\nimport sys; assert not {"tfnmt", "tensorflow"} & set(sys.modules)'
    process = subprocess.run(
        [sys.executable, "-c", code + check],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
    )
    tokenizer = Tokenizer(case.tokenizer_model)
    sources = case.names(padded(tokenizer.encode(TEXTS[:3])))
    results = theirs.translate_batch(sources, **search_options(case.config.decoding))
    expected = [tokenizer._processor.decode(result.hypotheses[0]) for result in results]
    assert process.stdout.splitlines() == "\n".join(expected).splitlines()


def test_export_writes_a_complete_folder_and_overwrites_none(case: Case, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "model"
    folder.mkdir(parents=True)  # an empty folder is allowed
    case.export(folder, "int8")
    assert [path.name for path in tmp_path.joinpath("deep").iterdir()] == ["model"]
    assert sorted(path.name for path in folder.iterdir()) == [
        "README.txt",
        "config.json",
        "model.bin",
        "model_card.json",
        "shared_vocabulary.json",
        "tokenizer.model",
    ]
    assert (folder / "tokenizer.model").read_bytes() == case.tokenizer_model
    assert json.loads((folder / "model_card.json").read_text()) == CARD | {"quantization": "int8"}
    with pytest.raises(UserError, match="model: not empty"):
        case.export(folder)


def test_check_export_names_a_missing_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(UserError, match=r"pip install 'tfnmt\[ctranslate2\]'"):
        check_export(tmp_path / "model")


def test_ctranslate2_supports_every_quantization() -> None:
    from ctranslate2.specs.model_spec import ACCEPTED_MODEL_TYPES

    assert set(QUANTIZATIONS) <= set(ACCEPTED_MODEL_TYPES)
