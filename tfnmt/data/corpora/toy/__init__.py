"""Built-in synthetic corpora: an English-German grammar, and digits to copy or reverse."""
