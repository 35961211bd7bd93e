"""The Transformer, in keras.ops alone."""
