"""tfnmt: train a Transformer translator on parallel text and serve it with TensorFlow Serving."""

__version__ = "0.1.0"
