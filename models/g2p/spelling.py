"""Words as tokens, ragged ones as one padded array; and the phonemes that tokens stand for.

Source: the tables and `encode` of g2p_en 2.1.0 (Apache-2.0); phonemes are those of the CMU dictionary (ARPAbet), vowels
with their stress.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .model import EOS, PAD, SOS

GRAPHEMES = ("<pad>", "<unk>", "</s>", *"abcdefghijklmnopqrstuvwxyz")
PHONEMES = (
    "<pad>", "<unk>", "<s>", "</s>",
    "AA0", "AA1", "AA2", "AE0", "AE1", "AE2", "AH0", "AH1", "AH2", "AO0", "AO1", "AO2", "AW0", "AW1", "AW2", "AY0",
    "AY1", "AY2", "B", "CH", "D", "DH", "EH0", "EH1", "EH2", "ER0", "ER1", "ER2", "EY0", "EY1", "EY2", "F", "G", "HH",
    "IH0", "IH1", "IH2", "IY0", "IY1", "IY2", "JH", "K", "L", "M", "N", "NG", "OW0", "OW1", "OW2", "OY0", "OY1", "OY2",
    "P", "R", "S", "SH", "T", "TH", "UH0", "UH1", "UH2", "UW", "UW0", "UW1", "UW2", "V", "W", "Y", "Z", "ZH",
)  # fmt: skip
assert (PHONEMES[PAD], PHONEMES[SOS], PHONEMES[EOS]) == ("<pad>", "<s>", "</s>")

_IDS = {letter: i for i, letter in enumerate(GRAPHEMES) if len(letter) == 1}
_UNKNOWN, _END = GRAPHEMES.index("<unk>"), GRAPHEMES.index("</s>")


def spelt(words: Sequence[str], *, length: int | None = None) -> np.ndarray:
    """`[B, length]` int32: the letters of each word, an end token, then padding.

    Args:
      words: in small letters; whatever else is in them is unknown to the model.
      length: of the array; one more than the longest word where it is None. Few different lengths make few graphs.

    Raises:
      ValueError: where a word is too long.

    Example:
      >>> spelt(["cab", "a"]).tolist()
      [[5, 3, 4, 2], [3, 2, 0, 0]]
    """
    longest = max(map(len, words), default=0)
    length = longest + 1 if length is None else length
    if longest >= length:
        raise ValueError(f"words has {max(words, key=len)!r}, and length is {length}; give at least {longest + 1}")
    tokens = np.full((len(words), length), PAD, np.int32)
    for row, word in zip(tokens, words, strict=True):
        row[: len(word) + 1] = [*(_IDS.get(letter, _UNKNOWN) for letter in word), _END]
    return tokens


def pronounced(tokens: np.ndarray, lengths: np.ndarray) -> list[list[str]]:
    """The phonemes of each word, from what `G2p.pronounce` gives; without the end.

    Example:
      >>> pronounced(np.array([[45, 9, 22, 3, 0]]), np.array([4]))
      [['K', 'AE2', 'B']]
    """
    rows = zip(np.asarray(tokens), np.asarray(lengths), strict=True)
    return [[PHONEMES[token] for token in row[:length] if token != EOS] for row, length in rows]
