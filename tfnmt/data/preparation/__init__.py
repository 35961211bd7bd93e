"""Preparing a corpus for training: cleaning, tokenizer, and token ids on disk."""
