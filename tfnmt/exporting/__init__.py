"""Exports: SavedModels for TensorFlow Serving, and CTranslate2 models."""
