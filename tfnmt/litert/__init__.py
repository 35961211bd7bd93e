"""The LiteRT engine: translates with a LiteRT export, without TensorFlow."""
