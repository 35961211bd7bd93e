"""Documents and markup around a translator: the text goes out, and its translation comes in."""
