"""Parallel text: corpora, tokenizer, ids on disk and the plan of batches."""
