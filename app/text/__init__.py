"""Whole texts from their sentences."""
