"""The benchmark of growth, and a limit of the memory that a driver needs for its shards."""

from benchmarks.growth import measure_in_process, measure_index, measure_run

BYTES = 150
"""Bytes per shard, so that 10^6 shards and Ray's 132 MB are far below 500 MB."""


def test_memory_of_a_driver_grows_by_few_bytes_per_shard() -> None:
    few, many = (measure_in_process(measure_run, shards, 0) for shards in (1_000, 200_000))
    assert many["peak_mb"] - few["peak_mb"] < 199_000 * BYTES / 1e6
    index = measure_in_process(measure_index, 200_000)
    assert index["shards"] == 200_000
    assert index["peak_mb"] - index["start_mb"] < 200_000 * BYTES / 1e6
