"""English words with their pronunciations, as the CMU dictionary has them, and some that no dictionary has."""

from __future__ import annotations

import numpy as np

from .model import EOS, PAD, SOS
from .spelling import PHONEMES, spelt

PRONUNCIATIONS = {
    "a": "AH0",
    "graph": "G R AE1 F",
    "mode": "M OW1 D",
    "tensor": "T EH1 N S ER0",
    "eager": "IY1 G ER0",
    "python": "P AY1 TH AA0 N",
    "photograph": "F OW1 T AH0 G R AE2 F",
    "measure": "M EH1 ZH ER0",
    "knight": "N AY1 T",
    "thought": "TH AO1 T",
    "laboratory": "L AE1 B R AH0 T AO2 R IY0",
    "pronunciation": "P R OW0 N AH2 N S IY0 EY1 SH AH0 N",
}
NEW_WORDS = ("activationist", "blorptastic", "qwyx", "zzz", "supercalifragilisticexpialidocious", "don't", "x")


def some(rng: np.random.Generator, batch: int = 8) -> list[str]:
    """Words of the dictionary with a letter exchanged here and there."""
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = []
    for word in rng.choice(list(PRONUNCIATIONS), batch):
        spelling = np.array(list(word))
        words.append("".join(np.where(rng.random(len(word)) < 0.1, rng.choice(letters, len(word)), spelling)))
    return words


def dictionary(rng: np.random.Generator, batch: int = 8, length: int = 16) -> tuple[np.ndarray, np.ndarray]:
    """`[B, length]` twice: letters, and the phonemes after a start token, both padded."""
    words = [str(word) for word in rng.choice(list(PRONUNCIATIONS), batch)]
    rows = [[SOS, *map(PHONEMES.index, PRONUNCIATIONS[word].split()), EOS] for word in words]
    phonemes = np.full((batch, length), PAD, np.int32)
    for row, known in zip(phonemes, rows, strict=True):
        row[: len(known)] = known
    return spelt(words, length=length), phonemes
