"""Exports: SavedModels for TensorFlow Serving, LiteRT files and CTranslate2 models."""

QUANTIZATIONS = ("float32", "float16", "int8")
"""Types of the stored weights. int8 stores only matrices as int8, the rest as float32."""

ENGINES = ("tensorflow", "litert")
"""The engines of a run, the default first. An export has the engine of its format."""
