from tfnmt.config import DecodingConfig
from tfnmt.model.transformer import Transformer
from tfnmt.tracing.parameters import list_blocks
from tfnmt.tracing.subject import tiny


def test_the_tiny_feed_forward_has_552() -> None:
    blocks = {block.name: block for block in list_blocks(tiny(DecodingConfig()).transformer)}
    for side in ("encoder", "decoder"):
        block = blocks[f"{side}/layer_0/feed_forward"]
        assert block.formula == "8*32 + 32 + 32*8 + 8"
        assert block.count == 552


def test_blocks_have_all_weights(transformer: Transformer) -> None:
    blocks = list_blocks(transformer)
    assert sum(block.count for block in blocks) == transformer.count_params()
    assert len({block.name for block in blocks}) == len(blocks)
