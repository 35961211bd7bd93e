"""Lowercased, tokenized text, on which the Multi30k papers compute BLEU.

The papers score lowercased text that the Moses scripts have normalized and tokenized. The data set
includes its references in this form, for example `test_2016_flickr.lc.norm.tok.de`.
"""

from collections.abc import Sequence
from pathlib import Path

from tfnmt.data.corpora.text_files import read_lines
from tfnmt.errors import UserError
from tfnmt.progress import log


def tokenize(lines: Sequence[str], language: str) -> list[str]:
    """Lowercase, normalize and tokenize lines as the scripts of Multi30k do.

    Args:
        lines: Cased, detokenized text.
        language: Its language code. It selects the rules of normalization and tokenization.

    Returns:
        The lines as tokens separated by spaces.
    """
    # Imported here because it takes 0.4 s and few evaluations use it.
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    normalizer, tokenizer = MosesPunctNormalizer(language), MosesTokenizer(language)
    return [
        tokenizer.tokenize(normalizer.normalize(line.lower()), return_str=True, escape=True)
        for line in lines
    ]


def official_tokens(file: Path | None, language: str) -> Path | None:
    """Return the file of official tokens that belongs to a file of references."""
    return None if file is None else file.with_suffix(f".lc.norm.tok.{language}")


def reference_tokens(references: Sequence[str], language: str, file: Path | None) -> Sequence[str]:
    """Return the tokenized references: the official ones if there are any, else our own.

    With official tokens, a self-test compares them to our tokens and logs the difference.

    Args:
        references: Cased, detokenized text.
        language: Its language code.
        file: Its file, if any.

    Returns:
        The references as tokens separated by spaces.

    Raises:
        UserError: The file of official tokens has another number of lines.
    """
    path = official_tokens(file, language)
    if path is None or not path.is_file():
        log(
            f"{path or 'built-in corpus'}: no official tokens; using our own tokens of the "
            "references, no self-test"
        )
        return tokenize(references, language)
    official = list(read_lines(path))
    if len(official) != len(references):
        raise UserError(
            f"{path}: {len(official):,} lines for {len(references):,} references; "
            "fix or remove the file"
        )
    # Imported here so that `evaluate --help` stays fast.
    import sacrebleu

    tokens = tokenize(references, language)
    differing = sum(ours != theirs for ours, theirs in zip(tokens, official, strict=True))
    lowercased = [line.lower() for line in references]
    cased_bleu = sacrebleu.corpus_bleu(lowercased, [references]).score
    log(
        f"self-test: {differing} of {len(tokens):,} references are tokenized differently in "
        f"{path.name}; the lowercased references have a cased BLEU of {cased_bleu:.2f}"
    )
    return official
