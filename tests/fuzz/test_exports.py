"""Damaged exports are refused, or translate."""

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import tfnmt
from app.engines import litert
from app.errors import UserError as AppError
from tests.fuzz.damage import EDITS, KINDS, Edit, damage
from tfnmt.errors import UserError
from tfnmt.litert.files import CARD, GRAPHS, TOKENIZER
from tfnmt.loading.directions import bound_language, find_target
from tfnmt.loading.models import CARD as SAVED_MODEL_CARD
from tfnmt.loading.models import ExportModel, find_model

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([-1, 0, 2**31, 2**64])
    | st.floats()
    | st.text(max_size=5)
    | st.just("../x")
)
VALUES = SCALARS | st.recursive(
    SCALARS,
    lambda each: (
        st.lists(each, max_size=2) | st.dictionaries(st.text(max_size=3), each, max_size=2)
    ),
    max_leaves=4,
)
PLACES = st.lists(st.integers(0, 30), min_size=1, max_size=4)
"""A place in a tree: the number of a key at each level, modulo the keys there."""


def use(folder: Path) -> None:
    """Load a LiteRT export and translate. Only UserErrors are accepted."""
    with contextlib.suppress(UserError):
        model = tfnmt.load(folder)
        (translation,) = model.translate(["the dog sees every cat"], target="de")
        assert translation.hypotheses
    with contextlib.suppress(AppError):
        litert.load(folder, 1)


def read_card(folder: Path) -> None:
    """Read the card of a SavedModel as the commands do before they load it."""
    with contextlib.suppress(UserError):
        model = find_model(str(folder), {})
        assert isinstance(model, ExportModel)
        bound_language(model, find_target(model, "en", "de"))
        assert json.dumps([model.step, model.weights_id, model.origin])


def copied(export: Path, folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    return Path(shutil.copytree(export, folder))


def replaced(tree: Any, place: list[int], value: Any) -> Any:
    """Return a tree with a value at a place."""
    if not place or not isinstance(tree, dict | list) or not tree:
        return value
    keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
    key = keys[place[0] % len(keys)]
    tree[key] = replaced(tree[key], place[1:], value)
    return tree


def change_card(card: Path, place: list[int], value: Any) -> None:
    """Replace a value of a model card."""
    card.write_text(json.dumps(replaced(json.loads(card.read_text()), place, value)))


@given(st.sampled_from([CARD, GRAPHS, TOKENIZER]), KINDS, EDITS)
def test_damaged_litert_export_is_refused_or_translates(
    two_way_litert: Path, tmp_path: Path, name: str, kind: str, edits: list[Edit]
) -> None:
    copy = copied(two_way_litert, tmp_path / "1")
    damage(copy / name, kind, edits)
    use(copy)


@given(PLACES, VALUES)
def test_changed_card_of_a_litert_export_is_refused_or_translates(
    two_way_litert: Path, tmp_path: Path, place: list[int], value: Any
) -> None:
    copy = copied(two_way_litert, tmp_path / "1")
    change_card(copy / CARD, place, value)
    use(copy)


@given(PLACES, VALUES)
def test_changed_card_of_a_saved_model_is_refused_or_read(
    two_way_export: Path, tmp_path: Path, place: list[int], value: Any
) -> None:
    copy = copied(two_way_export / "1", tmp_path / "1")
    change_card(copy / SAVED_MODEL_CARD, place, value)
    read_card(copy)
