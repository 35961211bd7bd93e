"""Text in parts: sentences in a text, pieces in a sentence."""
