"""The translator of the web page, in Node, gives the output of the LiteRT engine."""

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tfnmt.web.conftest import Node
from tfnmt.data.corpora.toy import grammar
from tfnmt.litert.model import LiteRTModel
from tfnmt.loading.models import find_folder
from tfnmt.loading.registry import DEFAULT_MODEL

TEXTS = [
    "Where can I buy a ticket?",
    "Dr. Smith doesn't know 犬.",
    "  two   spaces ",
    "",
    "no end",
    *(source for source, _ in islice(grammar.pairs("test"), 10)),
]

TOLERANCE = 0.1
"""Rounding differs between processors. It may change an int8 activation by one step."""

LOAD = """
import { gunzipSync } from "node:zlib";
import { createRequire } from "node:module";
import { Engine } from "./engine.js";
import { Translator } from "./translator.js";
const bytes = (name) => new Uint8Array(readFileSync(`${data.folder}/${name}`));
const json = (name) => JSON.parse(readFileSync(`${data.folder}/${name}`));
const engine = await Engine.load({
  factory: createRequire(import.meta.url)(data.factory),
  wasm: gunzipSync(bytes(`litert/${data.build}.wasm.gz`)),
  graphs: gunzipSync(bytes("model/model.tflite.gz")),
  shapes: json("model/shapes.json"),
});
const card = json("model/model_card.json");
const translator = new Translator(engine, bytes("model/tokenizer.model"), card);
"""


@pytest.fixture(scope="module")
def engine() -> LiteRTModel:
    return LiteRTModel(find_folder(DEFAULT_MODEL), 1)


@pytest.fixture
def build() -> str:
    """The build of LiteRT.js."""
    return "litert_wasm_internal"


@pytest.fixture
def data(build: str, web_export: Path, tmp_path: Path) -> dict[str, Any]:
    """The variables of LOAD."""
    factory = tmp_path / "litert.cjs"
    factory.write_bytes((web_export / f"litert/{build}.js").read_bytes())
    return {"folder": str(web_export), "factory": str(factory), "build": build}


@pytest.mark.parametrize("build", ["litert_wasm_internal", "litert_wasm_compat_internal"])
def test_translations_are_those_of_the_litert_engine(
    node: Node, engine: LiteRTModel, data: dict[str, Any]
) -> None:
    script = LOAD + "result = data.texts.map((text) => translator.translate(text, data.target));"
    found = node(script, data | {"texts": TEXTS, "target": "de"})
    texts = [text.encode() for text in TEXTS]
    expected = engine.signatures["serving_default"](text=texts, target=[b"de"] * len(texts))
    assert [each["text"] for each in found] == [text.decode() for text in expected["translation"]]
    scores = [each["score"] for each in found]
    np.testing.assert_allclose(scores, expected["score"], atol=TOLERANCE)


def test_alternatives_and_alignment_are_those_of_the_litert_engine(
    node: Node, engine: LiteRTModel, data: dict[str, Any]
) -> None:
    script = LOAD + (
        "const found = translator.alternatives(data.text, data.target);"
        "result = { found, align: translator.align(data.text, found[0].text, data.target) };"
        "for (const row of result.align.attention.keys())"
        " result.align.attention[row] = [...result.align.attention[row]];"
        "result.align.logProbs = [...result.align.logProbs];"
    )
    result = node(script, data | {"text": TEXTS[1], "target": "fr"})
    texts, target = [TEXTS[1].encode()], [b"fr"]
    nbest = engine.signatures["nbest"](text=texts, target=target)
    translations = [text.decode() for text in nbest["translations"][0]]
    assert [each["text"] for each in result["found"]] == list(filter(None, translations))
    align = engine.signatures["align"](
        text=texts, target=target, translation=[translations[0].encode()]
    )
    for side in "source", "target":
        pieces = [token.decode() for token in align[f"{side}_tokens"][0]]
        assert result["align"][side]["pieces"] == pieces
    for name, key in ("attention", "attention"), ("logProbs", "token_log_probs"):
        np.testing.assert_allclose(result["align"][name], align[key][0], atol=TOLERANCE)
    assert align["attention"].shape[1] != align["attention"].shape[2]  # a transposed one would fail


def test_graphs_return_arrays_of_the_length_of_their_inputs(
    node: Node, engine: LiteRTModel, data: dict[str, Any]
) -> None:
    script = LOAD + (
        "const outputs = engine.run('attention', { source: data.source, target: data.output });"
        "result = Object.fromEntries(Object.entries(outputs)"
        ".map(([name, { data, shape }]) => [name, { shape, data: [...data] }]));"
    )
    source, target = b"Where can I buy a ticket?", b"Wo?"
    expected = engine.signatures["attention"](text=[source], translation=[target], target=[b"de"])
    ids = {
        "source": engine.signatures["tokenize"](text=[source], target=[b"de"])["tokens"][0],
        "output": engine._codec.encode(target, 64).ids,
    }
    found = node(script, data | {name: each.tolist() for name, each in ids.items()})
    for name in "encoder", "decoder", "cross":
        array = np.array(found[name]["data"]).reshape(found[name]["shape"])
        np.testing.assert_allclose(array, expected[name], atol=TOLERANCE)


def test_long_text_is_truncated_as_by_the_litert_engine(
    node: Node, engine: LiteRTModel, data: dict[str, Any]
) -> None:
    text = "A dog and a cat. " * 40
    found = node(LOAD + "result = translator.encode(data.text, 128, 'de');", data | {"text": text})
    expected = engine.signatures["tokenize"](text=[text.encode()], target=[b"de"])
    assert found["ids"] == expected["tokens"][0].tolist()
    assert found["truncated"]
    assert expected["truncated"][0]


def test_unknown_language_and_missing_input_are_errors(node: Node, data: dict[str, Any]) -> None:
    script = LOAD + (
        "result = [() => translator.translate('a', 'xx'),"
        " () => engine.run('greedy', { source: [2] }), () => engine.run('other', {})].map("
        "(call) => { try { call(); } catch (error) { return error.message; } });"
    )
    language, missing, graph = node(script, data)
    assert language == "xx: unknown; the model translates to de, en, es, fr"
    assert missing == "input room is missing"
    assert graph.startswith("no graph other; there are ")
