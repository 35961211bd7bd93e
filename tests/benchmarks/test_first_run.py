"""The benchmark of the sizes that `train` chooses. Training itself has its own tests."""

import copy
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import first_run
from tfnmt import train
from tfnmt.errors import UsageError
from tfnmt.experiment import has_preset, resolve_config


def write_tatoeba(folder: Path) -> None:
    (folder / "tatoeba" / "de-en").mkdir(parents=True)
    for split, lines in (("train", 30), ("val", 3)):
        for language in ("en", "de"):
            text = "".join(f"{language} {split} {number}\n" for number in range(lines))
            (folder / "tatoeba" / "de-en" / f"{split}.{language}").write_text(text)


def test_systems_train_on_the_same_aligned_sample(tmp_path: Path) -> None:
    write_tatoeba(tmp_path)
    values = SimpleNamespace(data_dir=str(tmp_path), pairs=10)
    text = first_run._write_text(values, tmp_path)
    lines = [(tmp_path / f"train.{name}").read_text().splitlines() for name in ("en", "de")]
    assert [line.split()[2] for line in lines[0]] == [line.split()[2] for line in lines[1]]
    assert len({*lines[0]}) == 10
    for system in (first_run.CHOSEN, *first_run.SETTINGS):
        flags = copy.deepcopy(train.FLAGS)
        flags(["train", *text, "--minutes=3", *first_run._settings(system)])
        config = resolve_config(flags)
        assert config.training.max_minutes == 3
        assert has_preset(flags) == (system != first_run.CHOSEN)
        assert (config.training.max_epochs is None) == has_preset(flags)


def test_sample_larger_than_the_corpus_is_refused(tmp_path: Path) -> None:
    write_tatoeba(tmp_path)
    with pytest.raises(UsageError, match=r"^--pairs=31: the corpus has 30;"):
        first_run._write_text(SimpleNamespace(data_dir=str(tmp_path), pairs=31), tmp_path)
