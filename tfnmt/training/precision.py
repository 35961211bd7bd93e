"""The choice of training.precision=auto: bfloat16 on devices that compute it faster than float32.

Nothing here imports TensorFlow at the top, because training imports it only after all checks.
"""

from pathlib import Path

from tfnmt.runtime.startup import set_environment, silence_stderr

FAST_INSTRUCTIONS = ("amx_bf16", "avx512_bf16")
"""Processor flags of Linux for products of bfloat16 matrices."""

FAST_CAPABILITY = (8, 0)
"""The first compute capability of NVIDIA GPUs with bfloat16: Ampere, of the year 2020."""


def automatic_precision(cpuinfo: Path = Path("/proc/cpuinfo")) -> tuple[str, str]:
    """Return the precision for this machine, and the reason.

    Args:
        cpuinfo: The file in which Linux lists the flags of the processor.
    """
    if capabilities := _gpu_capabilities():
        lowest = min(capabilities)
        name = f"a GPU has compute capability {'.'.join(map(str, lowest))}"
        return _precision(lowest >= FAST_CAPABILITY), name
    text = cpuinfo.read_text() if cpuinfo.is_file() else ""
    flags = {
        flag for line in text.splitlines() if line.startswith("flags") for flag in line.split()
    }
    found = [name for name in FAST_INSTRUCTIONS if name in flags]
    instructions = " and ".join(found) or "no " + " or ".join(FAST_INSTRUCTIONS)
    return _precision(bool(found)), f"the processor has {instructions}"


def _precision(fast: bool) -> str:
    return "mixed_bfloat16" if fast else "float32"


def _gpu_capabilities() -> list[tuple[int, int]]:
    """Return the compute capability of each GPU. It takes no memory of the GPU."""
    set_environment()
    with silence_stderr():
        import tensorflow as tf

        details = map(
            tf.config.experimental.get_device_details, tf.config.list_physical_devices("GPU")
        )
        # Without a capability, the GPU is not one of NVIDIA's, and its speed is unknown.
        return [each.get("compute_capability", (0, 0)) for each in details]
