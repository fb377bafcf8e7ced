"""Antibody sequences as tokens, ragged ones as one padded array; and what the model's answers are called.

Source: `NumberingTokeniser` and `SequenceProcessor` of anarcii 2.0.8 (BSD-3).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .config import EOS, PAD, SKIP, SOS

SPECIAL = ("<PAD>", "<SOS>", "<EOS>", "<SKIP>")
RESIDUES = (*SPECIAL, *"ACDEFGHIKLMNPQRSTVWXY")
LABELS = (*SPECIAL, *map(str, range(1, 129)), "X", "H", "L", "K")
TCR_LABELS = (*SPECIAL, *map(str, range(1, 129)), "X", "A", "B", "G", "D")
NON_STANDARD = "BOJUZ"  # all read as X
LONGEST = 200
assert (SPECIAL[PAD], SPECIAL[SOS], SPECIAL[EOS], SPECIAL[SKIP]) == ("<PAD>", "<SOS>", "<EOS>", "<SKIP>")

_IDS = {residue: i for i, residue in enumerate(RESIDUES) if i > SKIP} | {c: RESIDUES.index("X") for c in NON_STANDARD}


def tokenise(sequences: Sequence[str], *, length: int | None = None) -> np.ndarray:
    """`[B, length]` int32: each sequence between a start and an end token, then padding.

    Args:
      sequences: of one-letter amino acids, at most 200. Of longer ones the original finds the stretch to number first.
      length: of the array; two more than the longest sequence where it is None. Few different lengths make few graphs.

    Raises:
      ValueError: naming every sequence that is too long or has a letter that is no amino acid.

    Example:
      >>> tokenise(["EV", "D"]).tolist()
      [[1, 7, 21, 2], [1, 6, 2, 0]]
    """
    length = max(map(len, sequences), default=0) + 2 if length is None else length
    problems = []
    for i, sequence in enumerate(sequences):
        if len(sequence) > min(LONGEST, length - 2):
            problems.append(f"sequences[{i}] has {len(sequence)} residues, and at most {min(LONGEST, length - 2)} fit")
        if unknown := sorted(set(sequence) - set(_IDS)):
            problems.append(f"sequences[{i}] has {', '.join(map(repr, unknown))}, which no amino acid is called")
    if problems:
        raise ValueError("; ".join(problems))
    tokens = np.full((len(sequences), length), PAD, np.int32)
    for row, sequence in zip(tokens, sequences, strict=True):
        row[: len(sequence) + 2] = [SOS, *(_IDS[residue] for residue in sequence), EOS]
    return tokens


def labels(tokens: np.ndarray, lengths: np.ndarray, names: Sequence[str] = LABELS) -> list[list[str]]:
    """What each sequence's tokens `[B, L]` are called, without the end: the chain's type, then a label per residue.

    Example:
      >>> labels(np.array([[133, 4, 5, 2, 0]]), np.array([4]))
      [['H', '1', '2']]
    """
    rows = zip(np.asarray(tokens), np.asarray(lengths), strict=True)
    return [[names[token] for token in row[:length] if token != EOS] for row, length in rows]
