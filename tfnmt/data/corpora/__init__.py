"""Parallel corpora: file formats, the catalog, downloads, and the built-in toy corpora."""
