"""Measure the GPUs of this machine, and print a Markdown table.

    benchmarks/gpu.sh [--size=base --size=big] [--batch_tokens=8192] [--output=gpu.jsonl]

Each measurement is a process:

    doctor    the installation
    losses    the first steps with the shape `reference`, on one GPU and on all, compared with those
              on the CPU
    train     training speed and memory of each size, in float32 and in bfloat16, with XLA and
              without, on one GPU and on all
    decode    the speed of beam search of each size on one GPU

A measurement that fails is a row of the table, too. --output has the results as JSON lines. Without
a GPU, everything runs on the CPU.
"""

import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from importlib import metadata
from itertools import chain, product
from pathlib import Path
from typing import Any, NamedTuple

from absl import flags

from benchmarks.report import table
from tfnmt.cli import define_data_dir, run_command
from tfnmt.errors import UsageError, graph_error_reason
from tfnmt.progress import log

Line = dict[str, Any]

TITLES = {
    "task": "task",
    "size": "size",
    "precision": "precision",
    "xla": "XLA",
    "devices": "devices",
    "batch_size": "batch size",
    "target_tokens_per_s": "target tokens/s",
    "ms_per_step": "ms per step",
    "tokens_per_s": "decoded tokens/s",
    "ms": "ms per batch",
    "peak_mb": "peak memory, MB",
    "loss_difference": "largest difference of losses",
    "result": "result",
}
"""The keys of a result that the table shows, in this order, with their column titles."""

TOLERANCES = {"float32 without TF32": 1e-3, "float32": 1e-2, "mixed_bfloat16": 3e-2}
"""The largest relative difference of a loss from that on the CPU in float32, by precision."""

WITHOUT_TF32 = {"NVIDIA_TF32_OVERRIDE": "0"}
"""By default, TensorFlow rounds the factors of float32 products on GPUs to TF32, 10 bits."""

XLA = {"TF_XLA_FLAGS": "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit"}
"""Compiles parts of every graph."""

CPU = {"CUDA_VISIBLE_DEVICES": "-1"}

WARM_UP = 100
"""Training steps before the first turn on a GPU, so that most shapes are compiled by then."""

MAX_SECONDS = 1800
"""The time limit of a measurement."""

FLAGS = flags.FlagValues()
define_data_dir(FLAGS)
flags.DEFINE_multi_enum(
    "task",
    ["doctor", "losses", "train", "decode"],
    ["doctor", "losses", "train", "decode"],
    "measurements to run",
    flag_values=FLAGS,
)
flags.DEFINE_multi_enum(
    "size", ["base", "big"], ["tiny", "reference", "base", "big"], "models", flag_values=FLAGS
)
flags.DEFINE_integer("batch_tokens", 8192, "padded tokens per device", 1, flag_values=FLAGS)
flags.DEFINE_integer("steps", 40, "training steps per turn", 2, flag_values=FLAGS)
flags.DEFINE_multi_string(
    "set", [], "configuration key and value, as in tfnmt.train", flag_values=FLAGS
)
flags.DEFINE_string("output", "gpu.jsonl", "file for the results", flag_values=FLAGS)


class Machine(NamedTuple):
    """The GPUs that this process may use."""

    ids: list[str]  # as in CUDA_VISIBLE_DEVICES
    description: str

    @property
    def counts(self) -> list[int]:
        """The numbers of devices to measure: one, and all. Without a GPU, the CPU is one."""
        return sorted({1, max(1, len(self.ids))})

    def named(self, count: int) -> str:
        """Return number and kind of devices, such as `2 GPU`."""
        return f"{count} GPU" if self.ids else "1 CPU"

    def environment(self, count: int) -> dict[str, str]:
        """Return the environment variables for a number of GPUs."""
        return {"CUDA_VISIBLE_DEVICES": ",".join(self.ids[:count])} if self.ids else CPU


class Measurement(NamedTuple):
    """A command, and the columns of its rows that are known before it runs."""

    columns: Line
    command: list[str]  # a module and its flags
    environment: dict[str, str]


def main(values: Any, positional: list[str]) -> None:
    """Run all measurements, write each result at once, and print the table."""
    if positional:
        raise UsageError(f"{positional[0]}: not expected; see --help")
    machine = find_machine()
    output = Path(values.output)
    with output.open("w", encoding="utf-8") as file:
        for line in chain([_about(machine)], _results(values, machine)):
            file.write(json.dumps(line) + "\n")
            file.flush()
            log(json.dumps(line))
    print(table(output, TITLES).strip())


def find_machine() -> Machine:
    """Return the GPUs that nvidia-smi lists; with CUDA_VISIBLE_DEVICES, only those."""
    packages = f"TensorFlow {metadata.version('tensorflow')}, Python {platform.python_version()}"
    names = _nvidia_smi()
    everything = ",".join(map(str, range(len(names))))
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES", everything).split(",")
    ids = [each for each in chosen if each not in ("", "-1")] if names else []
    return Machine(ids, f"{'; '.join(names) or 'no NVIDIA GPU'}, {packages}")


def _nvidia_smi() -> list[str]:
    """Return the name of each GPU and the version of the driver."""
    if shutil.which("nvidia-smi") is None:
        return []
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    found = subprocess.run(query, capture_output=True, text=True, check=False)
    return found.stdout.splitlines() if found.returncode == 0 else []


def _about(machine: Machine) -> Line:
    command = f"benchmarks/gpu.sh {shlex.join(sys.argv[1:])}".strip()
    return {"command": command, "date": str(date.today()), "machine": machine.description}


def _results(values: Any, machine: Machine) -> Iterator[Line]:
    if "doctor" in values.task:
        yield _doctor()
    if "losses" in values.task:
        yield from _losses(values, machine)
    if "train" in values.task:
        for measurement in training(values, machine):
            yield from run(measurement)
    if "decode" in values.task:
        for size in values.size:
            yield from run(decoding(size, machine))


# --- The measurements -----------------------------------------------------------------------------


def training(values: Any, machine: Machine) -> Iterator[Measurement]:
    """Yield the measurements of training."""
    warm_up = [f"--warm_up={WARM_UP}"] if machine.ids else []
    choices = product(values.size, machine.counts, ("float32", "mixed_bfloat16"), ("no", "yes"))
    for size, count, precision, xla in choices:
        yield Measurement(
            {
                "task": "train",
                "size": size,
                "precision": precision,
                "xla": xla,
                "devices": machine.named(count),
            },
            [
                "benchmarks.training",
                f"--size={size}",
                f"--steps={values.steps}",
                *warm_up,
                *_settings(values, precision),
                f"--set=data.batch_tokens={values.batch_tokens * count}",
            ],
            machine.environment(count) | (XLA if xla == "yes" else {}),
        )


def decoding(size: str, machine: Machine) -> Measurement:
    """Return the measurement of decoding with a model size."""
    return Measurement(
        {"task": "decode", "size": size, "devices": machine.named(1)},
        ["benchmarks.decoding", f"--size={size}", "--system=tfnmt"],
        machine.environment(1),
    )


def losses(values: Any, precision: str, environment: dict[str, str]) -> Measurement:
    """Return the measurement of the losses in a precision."""
    tf32 = WITHOUT_TF32 if precision.endswith("without TF32") else {}
    return Measurement(
        {"task": "losses", "size": "reference", "precision": precision},
        ["benchmarks.losses", *_settings(values, precision.split()[0])],
        environment | tf32,
    )


def _settings(values: Any, precision: str) -> list[str]:
    settings = [f"--set={setting}" for setting in values.set]
    data_dir = [] if values.data_dir is None else [f"--data_dir={values.data_dir}"]
    return [*data_dir, *settings, f"--set=training.precision={precision}"]


# --- Running them ---------------------------------------------------------------------------------


def run(measurement: Measurement) -> Iterator[Line]:
    """Yield the results of a command; of one that fails, the last line of its error."""
    log(shlex.join(measurement.command))
    try:
        found = subprocess.run(
            [sys.executable, "-m", *measurement.command],
            env=os.environ | measurement.environment,
            capture_output=True,
            text=True,
            timeout=MAX_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        yield measurement.columns | {"result": f"failed: more than {MAX_SECONDS} s"}
        return
    if found.returncode:
        problem = _reason(found.stderr) or f"exit status {found.returncode}"
        yield measurement.columns | {"result": f"failed: {problem}"}
        return
    for text in found.stdout.splitlines():
        if text.startswith("{"):  # NCCL may print its version
            yield measurement.columns | json.loads(text) | {"result": "ok"}


def _reason(stderr: str) -> str:
    """Return the reason of an error: TensorFlow's, otherwise the last line without indent."""
    lines = [line for line in stderr.splitlines() if line[:1].strip()]
    reason = graph_error_reason(stderr) or "".join(lines[-1:])
    return reason[:200].replace("|", "/")


def _doctor() -> Line:
    """Check the installation."""
    command = [sys.executable, "-m", "tfnmt.doctor"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    checks = found.stdout.splitlines()
    failed = [check for check in checks if check.startswith("FAIL")]
    gpus = [check.split(None, 1)[1] for check in checks if check.split()[1:2] == ["GPUs:"]]
    passed = not found.returncode
    return {"task": "doctor", "result": "; ".join(["ok", *gpus] if passed else failed)}


def _losses(values: Any, machine: Machine) -> Iterator[Line]:
    """Compare the losses on each number of devices with those on the CPU."""
    (expected,) = run(losses(values, "float32", CPU))
    yield expected
    for count in machine.counts:
        for precision in TOLERANCES:
            (line,) = run(losses(values, precision, machine.environment(count)))
            yield compare(line, expected)


def compare(line: Line, expected: Line) -> Line:
    """Add the largest relative difference of two runs' losses, and whether it is tolerated."""
    if "losses" not in line or "losses" not in expected:
        return line
    pairs = zip(line["losses"], expected["losses"], strict=True)
    difference = max(abs(one / other - 1) for one, other in pairs)
    tolerance = TOLERANCES[line["precision"]]
    result = "ok" if difference <= tolerance else "failed"
    return line | {
        "loss_difference": float(f"{difference:.1g}"),
        "result": f"{result}: tolerance {tolerance:g}",
    }


if __name__ == "__main__":
    run_command(main, FLAGS, __doc__)
