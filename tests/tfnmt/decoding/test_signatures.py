"""The graphs of a model have the inputs and outputs of the table SIGNATURES."""

from typing import Any

import keras
import pytest

from tfnmt.config import DecodingConfig, ModelConfig, TokenizerConfig
from tfnmt.data.preparation.tokenizer import Tokenizer, train_tokenizer
from tfnmt.decoding.signatures import SIGNATURES
from tfnmt.decoding.translator import Translator, signatures
from tfnmt.exporting.saved_model import served_graphs
from tfnmt.model.transformer import Transformer

TOKENIZER = train_tokenizer(["the dog runs home"] * 5, TokenizerConfig(vocab_size=280))


@pytest.fixture(scope="module")
def translator() -> Translator:
    keras.utils.set_random_seed(1)
    config = ModelConfig(num_encoder_layers=1, num_decoder_layers=1, d_model=8, num_heads=2, d_ff=8)
    transformer = Transformer(config, Tokenizer(TOKENIZER).vocab_size)
    return Translator(transformer, TOKENIZER, DecodingConfig(beam_size=2))


@pytest.fixture(scope="module")
def graphs(translator: Translator) -> dict[str, Any]:
    """The graphs of an export, which include those of the run."""
    graphs = served_graphs(translator, {"name": "a card"})
    return {name: graph.get_concrete_function() for name, graph in graphs.items()}


def test_table_lists_all_graphs_of_a_run_and_info(translator: Translator) -> None:
    assert list(SIGNATURES) == [*signatures(translator), "info"]


def test_table_lists_all_graphs_of_an_export(graphs: dict[str, Any]) -> None:
    assert list(SIGNATURES) == list(graphs)


@pytest.mark.parametrize("name", SIGNATURES)
def test_graph_has_the_inputs_and_outputs_of_the_table(graphs: dict[str, Any], name: str) -> None:
    positional, keywords = graphs[name].structured_input_signature
    assert not keywords
    assert tuple(spec.name for spec in positional) == SIGNATURES[name].inputs
    outputs = graphs[name].structured_outputs
    assert sorted(outputs) == sorted(SIGNATURES[name].outputs)
    for tensor in (*positional, *outputs.values()):
        assert tensor.shape[0] is None  # the batch
    is_text = all(spec.dtype == "string" for spec in positional)
    assert SIGNATURES[name].takes_text == is_text
