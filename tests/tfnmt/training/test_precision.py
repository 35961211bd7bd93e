from pathlib import Path

import pytest

from tfnmt.training import precision
from tfnmt.training.precision import automatic_precision


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("fpu avx2", "float32"),
        ("fpu avx512_bf16 avx2", "mixed_bfloat16"),
        ("amx_bf16", "mixed_bfloat16"),
        ("not_avx512_bf16", "float32"),
    ],
)
def test_automatic_precision_follows_the_flags_of_the_processor(
    tmp_path: Path, flags: str, expected: str
) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"model name\t: avx512_bf16\nflags\t\t: {flags}\n")
    found, reason = automatic_precision(cpuinfo)
    assert found == expected
    assert "avx512_bf16" in reason or "amx_bf16" in reason


def test_automatic_precision_without_processor_flags_is_float32(tmp_path: Path) -> None:
    assert automatic_precision(tmp_path / "missing")[0] == "float32"


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [([(8, 0)], "mixed_bfloat16"), ([(9, 0), (7, 5)], "float32"), ([(0, 0)], "float32")],
)
def test_automatic_precision_needs_fast_bfloat16_on_all_gpus(
    monkeypatch: pytest.MonkeyPatch, capabilities: list[tuple[int, int]], expected: str
) -> None:
    monkeypatch.setattr(precision, "_gpu_capabilities", lambda: capabilities)
    found, reason = automatic_precision()
    assert found == expected
    assert ".".join(map(str, min(capabilities))) in reason
