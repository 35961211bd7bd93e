"""Evaluation of translations: metrics, comparison of systems, error reports."""
