"""Measurements: `python -m benchmarks.<what>` prints JSON lines."""
