"""Benchmarks of speed, cost and quality: `python -m benchmarks.NAME` prints JSON lines."""
