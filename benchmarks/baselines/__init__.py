"""Other systems with the weights of our runs, for `benchmarks.job` to time beside ours."""
