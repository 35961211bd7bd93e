"""What answers: an exported model in this process, or one behind TensorFlow Serving."""
