"""Models under load: readiness, request queue, batching and cache."""
