import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gpu
from benchmarks.gpu import CPU, Machine, Measurement

ROOT = Path(__file__).parents[2]
TWO = Machine(["3", "5"], "two GPUs")


def flags(*arguments: str) -> Any:
    values = copy.deepcopy(gpu.FLAGS)
    values(["gpu", *arguments])
    return values


def test_training_is_measured_on_one_gpu_and_on_all() -> None:
    found = list(gpu.training(flags("--size=base", "--batch_tokens=100"), TWO))
    choices = [
        (
            each.columns["devices"],
            each.columns["precision"],
            each.columns["xla"],
            each.environment["CUDA_VISIBLE_DEVICES"],
            each.command[-1],
        )
        for each in found
    ]
    expected = [
        (name, precision, xla, ids, f"--set=data.batch_tokens={tokens}")
        for name, ids, tokens in (("1 GPU", "3", 100), ("2 GPU", "3,5", 200))
        for precision in ("float32", "mixed_bfloat16")
        for xla in ("no", "yes")
    ]
    assert choices == expected
    assert ["TF_XLA_FLAGS" in each.environment for each in found] == [False, True] * 4


def test_machine_without_a_gpu_measures_its_cpu() -> None:
    machine = Machine([], "no GPU")
    found = list(gpu.training(flags("--size=tiny"), machine))
    assert {each.columns["devices"] for each in found} == {"1 CPU"}
    assert all(each.environment.items() >= CPU.items() for each in found)


def test_machine_has_the_gpus_that_the_user_chose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'A100, 550.54'\necho 'A100, 550.54'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert gpu.find_machine().counts == [1, 2]
    assert gpu.find_machine().description.startswith("A100, 550.54; A100, 550.54, TensorFlow ")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert gpu.find_machine().ids == ["1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert gpu.find_machine().ids == []


@pytest.mark.parametrize(("loss", "result"), [(4.003, "ok"), (4.005, "failed"), (3.99, "failed")])
def test_losses_are_compared_with_a_tolerance(loss: float, result: str) -> None:
    precision = "float32 without TF32"
    line = {"precision": precision, "losses": [8.0, loss]}
    found = gpu.compare(line, {"losses": [8.0, 4.0]})
    assert found["result"] == f"{result}: tolerance 0.001"


def test_failed_measurement_is_a_row_with_the_reason() -> None:
    (line,) = gpu.run(Measurement({"task": "train"}, ["benchmarks.training", "--steps=0"], {}))
    assert line["task"] == "train"
    assert line["result"].startswith("failed: ")
    assert "--steps" in line["result"]
    assert gpu.compare(line, {"losses": [1.0]}) == line


def test_output_of_libraries_is_no_result(tmp_path: Path) -> None:
    program = """print('NCCL version 2.21.5+cuda12.5\\n{"devices": "2 GPU"}')"""
    (tmp_path / "prints.py").write_text(program)
    found = gpu.run(Measurement({"task": "losses"}, ["prints"], {"PYTHONPATH": str(tmp_path)}))
    assert list(found) == [{"task": "losses", "devices": "2 GPU", "result": "ok"}]


def test_reason_of_tensorflow_follows_the_place_of_the_node() -> None:
    stderr = "InvalidArgumentError: Graph execution error:\n\nDetected at node Pad\n  File x\n"
    assert gpu._reason(f"{stderr}\nInput 1 must be constant.\n\n\t [[cluster]]\n") == (
        "Input 1 must be constant."
    )
    assert gpu._reason("Traceback\n  File x\nValueError: wrong\n") == "ValueError: wrong"
    assert gpu._reason("") == ""


@pytest.mark.slow
def test_script_prints_a_table(tmp_path: Path) -> None:
    output = tmp_path / "gpu.jsonl"
    toy = ["--set=data.corpus=toy", "--set=data.max_pairs=2000", "--set=tokenizer.vocab_size=400"]
    done = subprocess.run(
        [ROOT / "benchmarks" / "gpu.sh", "--task=losses", *toy, f"--output={output}"],
        env=os.environ | {"TFNMT_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=True,
    )
    about, expected, *lines = map(json.loads, output.read_text().splitlines())
    assert about["command"].startswith("benchmarks/gpu.sh --task=losses")
    assert len(expected["losses"]) == 20
    assert [line["precision"] for line in lines] == [*gpu.TOLERANCES]
    assert [line["result"].split(":")[0] for line in lines] == ["ok"] * 3
    rows = [row.split(" | ")[0] for row in done.stdout.splitlines()]
    assert rows[0] == "| task"
    assert rows.count("| losses") == 4
