from pathlib import Path

from tfnmt.diversification.stages import Merging, Part


def test_merging_writes_all_parts_in_order_and_tags_synthetic_sources(tmp_path: Path) -> None:
    for name, text in {
        "real.en": "a\nb\n",
        "real.de": "x\ny\n",
        "forward.de": "x2\ny2\n",
        "backward.en": "a2\n\n",
    }.items():
        (tmp_path / name).write_text(text)
    real = {language: tmp_path / f"real.{language}" for language in ("en", "de")}
    parts = (
        Part(real, None),
        Part(real | {"de": tmp_path / "forward.de"}, "de"),
        Part(real | {"en": tmp_path / "backward.en"}, "en"),
    )
    corpus = {language: tmp_path / "corpus" / f"train.{language}" for language in ("en", "de")}
    merging = Merging(corpus, parts, "<bt>")
    assert not merging.finished
    merging.run(lambda module, arguments: None)
    assert merging.finished
    assert corpus["en"].read_text() == "a\nb\na\nb\n<bt> a2\n<bt> \n"
    assert corpus["de"].read_text() == "x\ny\nx2\ny2\nx\ny\n"
