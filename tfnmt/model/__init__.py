"""The Transformer and its layers, written with keras.ops only."""
