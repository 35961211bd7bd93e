import numpy as np
import pytest

from tfnmt.config import DecodingConfig
from tfnmt.model.transformer import Transformer
from tfnmt.tracing.steps import Variable
from tfnmt.tracing.tensors import (
    Names,
    format_number,
    is_small,
    list_parameter_blocks,
    tensor_lines,
)
from tfnmt.tracing.traced_model import tiny_model

NAMES: Names = {"S": [["dog", "run", "</s>"], ["run", "</s>", "<pad>"]], "V": [["a", "b"]] * 2}


def lines(letters: str, values: np.ndarray) -> list[str]:
    """Return the lines with runs of spaces collapsed."""
    return [" ".join(line.split()) for line in tensor_lines(Variable("x", letters, values), NAMES)]


def test_tensor_lines_label_positions_with_tokens() -> None:
    assert lines("B H S V", np.arange(12.0).reshape(2, 1, 3, 2)) == [
        "x (2, 1, 3, 2) B H S V",
        "row 0 a b",
        "head 0 dog 0.000 1.000",
        "head 0 run 2.000 3.000",
        "head 0 </s> 4.000 5.000",
        "row 1 a b",
        "head 0 run 6.000 7.000",
        "head 0 </s> 8.000 9.000",
        "head 0 <pad> 10.000 11.000",
    ]


def test_tensor_lines_split_a_flat_position_axis_by_sentence() -> None:
    assert lines("N P*D", np.arange(6).reshape(6, 1)) == [
        "x (6, 1) N P*D",
        *("row 0 position 0 0", "position 1 1", "position 2 2"),
        *("row 1 position 0 3", "position 1 4", "position 2 5"),
    ]


def test_tensor_lines_split_a_flat_hypothesis_axis_by_sentence() -> None:
    assert lines("B*K P*D", np.arange(4).reshape(4, 1))[1:] == [
        *("row 0 hypothesis 0 0", "hypothesis 1 1"),
        *("row 1 hypothesis 0 2", "hypothesis 1 3"),
    ]


def test_tensor_lines_wrap_columns() -> None:
    values = np.arange(20).reshape(1, 2, 10)
    assert lines("B K D", values) == [
        "x (1, 2, 10) B K D",
        "row 0 columns 0 to 7",
        "hypothesis 0 0 1 2 3 4 5 6 7",
        "hypothesis 1 10 11 12 13 14 15 16 17",
        "columns 8 to 9",
        "hypothesis 0 8 9",
        "hypothesis 1 18 19",
    ]


@pytest.mark.parametrize("shape", [(1, 128), (200,), (7, 7, 7)])
def test_tensor_lines_show_the_first_values_of_a_large_or_wide_tensor(
    shape: tuple[int, ...],
) -> None:
    values = np.arange(np.prod(shape)).reshape(shape)
    assert not is_small(values)
    (line,) = lines("D", values)
    assert line.endswith("D 0 1 2 3 4 5 ...")


def test_format_number_fits_the_cell() -> None:
    cells = [
        format_number(np.float32(value)) for value in (-3.4e38, 1.23456, -99.5, -100, -123456.7)
    ]
    assert [cell.strip() for cell in cells] == ["-3e+38", "1.235", "-99.500", "-100", "-123457"]
    assert all(len(cell) == 8 and cell.startswith(" ") for cell in cells)
    assert format_number(np.bool_(True)).strip() == "x"


def test_tiny_feed_forward_has_552_parameters() -> None:
    transformer = tiny_model(DecodingConfig()).transformer
    blocks = {block.name: block for block in list_parameter_blocks(transformer)}
    for side in ("encoder", "decoder"):
        block = blocks[f"{side}/layer_0/feed_forward"]
        assert block.formula == "8*32 + 32 + 32*8 + 8"
        assert block.count == 552


def test_parameter_blocks_have_all_weights(transformer: Transformer) -> None:
    blocks = list_parameter_blocks(transformer)
    assert sum(block.count for block in blocks) == transformer.count_params()
    assert len({block.name for block in blocks}) == len(blocks)
