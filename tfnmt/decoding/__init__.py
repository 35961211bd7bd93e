"""Search, and the Translator: text in, text out."""
