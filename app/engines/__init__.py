"""Engines run the signatures of an exported model: in this process or in TensorFlow Serving."""
