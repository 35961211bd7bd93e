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

TEXT = "Dr. Smith doesn't know 犬."
TRANSLATION = "Smith ne le sait pas."
"""For the alignment; with fewer tokens, so that a transposed one does not match."""
LONG = "A dog and a cat. " * 40
TEXTS = [
    "Where can I buy a ticket?",
    TEXT,
    "  two   spaces ",
    "",
    "no end",
    *(source for source, _ in islice(grammar.pairs("test"), 10)),
]

TOLERANCE = 0.1
"""Rounding differs between processors. It may change an int8 activation by one step."""

SCRIPT = """
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
const messageOf = (call) => {
  try {
    call();
  } catch (error) {
    return error.message;
  }
};
const alternatives = translator.alternatives(data.text, "fr");
const align = translator.align(data.text, data.translation, "fr");
const attention = engine.run("attention", { source: align.source.ids, target: align.target.ids });
result = {
  translations: data.texts.map((text) => translator.translate(text, "de")),
  alternatives,
  align: {
    ...align,
    attention: align.attention.map((row) => [...row]),
    logProbs: [...align.logProbs],
  },
  attention: Object.entries(attention).map(([name, { data, shape }]) => [name, [...data], shape]),
  truncated: translator.encode(data.long, card.limits.max_source_length, "de"),
  errors: [
    () => translator.translate("a", "xx"),
    () => engine.run("greedy", { source: [2] }),
    () => engine.run("other", {}),
  ].map(messageOf),
};
"""


@pytest.fixture(scope="module")
def engine() -> LiteRTModel:
    return LiteRTModel(find_folder(DEFAULT_MODEL), 1)


def run_script(node: Node, export: Path, scratch: Path, build: str) -> dict[str, Any]:
    """Return the result of SCRIPT with a build of LiteRT.js."""
    factory = scratch / "litert.cjs"
    factory.write_bytes((export / f"litert/{build}.js").read_bytes())
    files = {"folder": str(export), "factory": str(factory), "build": build}
    texts = {"texts": TEXTS, "text": TEXT, "translation": TRANSLATION, "long": LONG}
    return node(SCRIPT, files | texts)


@pytest.fixture(scope="module")
def found(node: Node, web_export: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    scratch = tmp_path_factory.mktemp("litertjs")
    return run_script(node, web_export, scratch, "litert_wasm_internal")


def check_translations(found: dict[str, Any], engine: LiteRTModel) -> None:
    texts = [text.encode() for text in TEXTS]
    expected = engine.signatures["serving_default"](text=texts, target=[b"de"] * len(texts))
    translations = [each["text"] for each in found["translations"]]
    assert translations == [text.decode() for text in expected["translation"]]
    scores = [each["score"] for each in found["translations"]]
    np.testing.assert_allclose(scores, expected["score"], atol=TOLERANCE)


def test_translations_are_those_of_the_litert_engine(
    found: dict[str, Any], engine: LiteRTModel
) -> None:
    check_translations(found, engine)


@pytest.mark.slow
def test_build_without_relaxed_simd_gives_the_same_translations(
    node: Node, web_export: Path, tmp_path: Path, engine: LiteRTModel
) -> None:
    found = run_script(node, web_export, tmp_path, "litert_wasm_compat_internal")
    check_translations(found, engine)


def test_alternatives_are_those_of_the_litert_engine(
    found: dict[str, Any], engine: LiteRTModel
) -> None:
    nbest = engine.signatures["nbest"](text=[TEXT.encode()], target=[b"fr"])
    translations = [text.decode() for text in nbest["translations"][0] if text]
    assert [each["text"] for each in found["alternatives"]] == translations


def test_alignment_is_that_of_the_litert_engine(found: dict[str, Any], engine: LiteRTModel) -> None:
    inputs = {"text": [TEXT.encode()], "translation": [TRANSLATION.encode()], "target": [b"fr"]}
    expected = engine.signatures["align"](**inputs)
    align = found["align"]
    for side in "source", "target":
        tokens = [token.decode() for token in expected[f"{side}_tokens"][0]]
        assert align[side]["pieces"] == tokens
    _, rows, columns = expected["attention"].shape
    assert rows != columns
    np.testing.assert_allclose(align["attention"], expected["attention"][0], atol=TOLERANCE)
    np.testing.assert_allclose(align["logProbs"], expected["token_log_probs"][0], atol=TOLERANCE)
    expected = engine.signatures["attention"](**inputs)
    assert len(found["attention"]) == 3
    for name, values, shape in found["attention"]:
        array = np.array(values).reshape(shape)
        np.testing.assert_allclose(array, expected[name], atol=TOLERANCE)


def test_long_text_is_truncated_as_by_the_litert_engine(
    found: dict[str, Any], engine: LiteRTModel
) -> None:
    expected = engine.signatures["tokenize"](text=[LONG.encode()], target=[b"de"])
    assert found["truncated"]["ids"] == expected["tokens"][0].tolist()
    assert found["truncated"]["truncated"]
    assert expected["truncated"][0]


def test_unknown_language_input_and_graph_are_errors(found: dict[str, Any]) -> None:
    language, missing, graph = found["errors"]
    assert language == "xx: unknown; the model translates to de, en, es, fr"
    assert missing == "input room is missing"
    assert graph.startswith("no graph other; there are ")
