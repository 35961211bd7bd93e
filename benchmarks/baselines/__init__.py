"""Other systems that use the weights of a tfnmt run, as baselines for `benchmarks.job`."""
