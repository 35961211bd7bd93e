"""Load a model from a run, an export, or a bundle given by its name, path or URL."""

SUFFIX = ".tar.gz"
"""The end of the file name of a bundle."""
