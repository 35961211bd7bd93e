"""Positions in a text: the sentences of a text and the tokens of a sentence."""
