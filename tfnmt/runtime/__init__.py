"""The process: TensorFlow start-up, cluster environment, and safe file access."""
