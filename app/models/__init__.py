"""Models under load: readiness, queue, batches, cache."""
