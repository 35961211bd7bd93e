"""Check the installation: versions, processor, GPUs, memory, disk, and a tiny training run.

    python -m tfnmt.doctor

Prints one line per check. The tiny run trains for two steps on the built-in toy corpus, exports the
model and translates with the export, in a temporary folder. It needs the extra `train`. The exit
status is 1 if a check fails.
"""

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from absl import flags

from tfnmt.cli import run_command
from tfnmt.errors import UsageError
from tfnmt.runtime.packages import EXTRAS, is_installed, requirements, supported_python
from tfnmt.runtime.startup import CPU_COUNT, import_tensorflow

if TYPE_CHECKING:
    from packaging.requirements import Requirement

FLAGS = flags.FlagValues()
flags.DEFINE_bool("run", True, "try a tiny training run, export and translation", flag_values=FLAGS)

GIGABYTE = 10**9

MIN_MEMORY = 2 * GIGABYTE
"""Memory for a small model: TensorFlow alone takes 0.7 GB."""

MIN_DISK = 1 * GIGABYTE
"""Space for the checkpoints of a small run."""

INSTRUCTIONS = {
    "avx2": "AVX2",
    "avx512f": "AVX-512",
    "avx512_bf16": "bfloat16 (AVX-512)",
    "amx_bf16": "bfloat16 (AMX)",
}
"""Instruction sets that speed up products, by their names in /proc/cpuinfo."""

TINY_RUN = {
    "data.max_length": 32,
    "data.batch_tokens": 256,
    "tokenizer.vocab_size": 400,
    "model.num_encoder_layers": 1,
    "model.num_decoder_layers": 1,
    "model.d_model": 16,
    "model.num_heads": 2,
    "model.d_ff": 32,
    "training.max_steps": 2,
    "training.checkpoint_steps": 2,
    "training.validation_steps": 2,
    "decoding.beam_size": 2,
    "decoding.max_source_length": 32,
    "decoding.max_extra_length": 8,
}

TINY_PAIRS = 300
"""Pairs of the toy corpus for the tiny run: enough for a vocabulary of its size."""


class Check(NamedTuple):
    """The result of a check."""

    name: str
    passed: bool
    text: str

    def __str__(self) -> str:
        return f"{'ok  ' if self.passed else 'FAIL'} {self.name}: {self.text}"


def main(values: Any, positional: list[str]) -> None:
    """Print the checks."""
    if positional:
        raise UsageError(f"{positional[0]}: unexpected argument; see --help")
    passed = True
    for check in _checks(values.run):
        print(check, flush=True)
        passed &= check.passed
    if not passed:
        sys.exit(1)


def _checks(tiny_run: bool) -> Iterator[Check]:
    yield _python()
    packages = list(_packages())
    yield from packages
    yield _processor()
    yield _memory()
    yield _disk()
    if is_installed(EXTRAS["train"]) and all(check.passed for check in packages):
        yield _gpus()
        if tiny_run:
            yield from _tiny_run()


# --- Versions -------------------------------------------------------------------------------------


def _python() -> Check:
    version = platform.python_version()
    return Check("Python", supported_python().contains(version), version)


def _packages() -> Iterator[Check]:
    """Yield a check per package that this installation needs, and one per extra that it lacks."""
    installed = [extra for extra, package in EXTRAS.items() if is_installed(package)]
    found = {each.name: each for extra in ("", *installed) for each in requirements(extra)}
    yield from map(_package, found.values())
    for extra in EXTRAS:
        if extra not in installed:
            yield Check(extra, True, f"not installed; pip install 'tfnmt[{extra}]' adds it")


def _package(requirement: "Requirement") -> Check:
    name, supported = requirement.name, str(requirement.specifier)
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Check(name, False, f"not installed; run pip install '{name}{supported}'")
    if requirement.specifier.contains(version, prereleases=True):
        return Check(name, True, version)
    return Check(name, False, f"{version}; run pip install '{name}{supported}'")


# --- Hardware -------------------------------------------------------------------------------------


def _processor() -> Check:
    """Name the instruction sets that matter. Every processor that runs TensorFlow passes."""
    try:
        words = set(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        words = set()
    found = [text for name, text in INSTRUCTIONS.items() if name in words]
    return Check("processor", True, f"{CPU_COUNT} cores; {', '.join(found) or 'no AVX2: slow'}")


def _memory() -> Check:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    return _space("memory", total, free, total >= MIN_MEMORY, MIN_MEMORY)


def _disk() -> Check:
    usage = shutil.disk_usage(Path.cwd())
    return _space("disk", usage.total, usage.free, usage.free >= MIN_DISK, MIN_DISK)


def _space(name: str, total: int, free: int, passed: bool, least: int) -> Check:
    text = f"{free / GIGABYTE:.1f} GB free of {total / GIGABYTE:.1f} GB"
    return Check(name, passed, text if passed else f"{text}; tfnmt needs {least / GIGABYTE:.0f} GB")


def _gpus() -> Check:
    """Name the GPUs of TensorFlow, or the reason why it has none. Training works without."""
    import_tensorflow()
    import tensorflow as tf

    names = [
        tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name)
        for gpu in tf.config.list_physical_devices("GPU")
    ]
    if names:
        return Check("GPUs", True, ", ".join(names))
    if not tf.test.is_built_with_cuda():
        return Check("GPUs", True, "none; this TensorFlow was built without CUDA")
    if shutil.which("nvidia-smi") is None:
        return Check("GPUs", True, "none; no NVIDIA driver (nvidia-smi was not found)")
    return Check("GPUs", False, "not usable; run pip install 'tensorflow[and-cuda]'")


# --- A tiny run -----------------------------------------------------------------------------------


def _tiny_run() -> Iterator[Check]:
    """Train, export and translate in new processes, until one of them fails."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name, command in _commands(folder).items():
            check = _try(name, [sys.executable, "-m", *command], folder)
            yield check
            if not check.passed:
                return


def _commands(folder: Path) -> dict[str, list[str]]:
    """Return the commands of the tiny run by the name of their check."""
    from tfnmt.data.corpora.toy import grammar

    files = []
    pairs = list(islice(grammar.pairs("train"), TINY_PAIRS))
    for language, lines in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
        files.append(folder / f"text.{language}")
        files[-1].write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    run, export = folder / "run", folder / "export"
    settings = [f"--set={key}={value}" for key, value in TINY_RUN.items()]
    text = f"--train={files[0]},{files[1]}"
    return {
        "training": ["tfnmt.train", text, f"--run_dir={run}", f"--cache_dir={folder}", *settings],
        "export": ["tfnmt.export", f"--model={run}", f"--output={export}"],
        "translation": ["tfnmt.translate", f"--model={export}", pairs[0][0]],
    }


def _try(name: str, command: list[str], folder: Path) -> Check:
    """Run a command; a failed one is described by its last line."""
    found = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    if found.returncode == 0:
        return Check(name, True, f"{command[2]} works")
    last = (found.stderr.strip().splitlines() or [f"exit status {found.returncode}"])[-1]
    return Check(name, False, f"{command[2]}: {last.removeprefix('tfnmt: ')}")


if __name__ == "__main__":
    run_command(main, FLAGS, __doc__)
