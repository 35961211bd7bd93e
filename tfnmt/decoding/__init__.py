"""Decoding: search over a step function, and the Translator, text in and text out."""
