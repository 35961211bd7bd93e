"""Tracing: every tensor that a model computes for a batch, with its name, shape and meaning."""
