"""Load a model from a run, an export, or a bundle given by its name or URL."""
