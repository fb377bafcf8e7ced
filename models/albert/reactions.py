"""Reaction SMILES as the tokens that rxnmapper's model reads."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from os import PathLike
from pathlib import Path

import numpy as np

from graphmode.ops import PaddedBatch, pad_sequences

from ..installed import installed_weights

TOKEN = re.compile(
    r"(\[[^\]]+]|Br?|Cl?|N|O|S|P|F|I|b|c|n|o|s|p|\(|\)|\.|=|#|-|\+|\\|\/|:|~|@|\?|>>?|\*|\$|\%[0-9]{2}|[0-9])"
)
MASKED = (  # a thioether from a thiol, and the two esters that an acid makes with an alcohol
    "CC(C)S.CN(C)C=O.Fc1cccnc1F>>CC(C)[MASK]c1ncccc1F",
    "CC(=O)O.CCO>>CC(=O)OC[MASK]",
    "CC(=O)O.CCO>>CC(=[MASK])OCC",
)


class ReactionTokenizer:
    """What rxnmapper's `SmilesTokenizer` gives: ids of the atoms, bonds and brackets, between [CLS] and [SEP].

    Args:
      vocabulary: path of a file with one token a line.

    Raises:
      ValueError: where a token that the model cannot do without is not among them.
    """

    def __init__(self, vocabulary: str | PathLike[str]):
        lines = Path(vocabulary).read_text(encoding="utf-8").splitlines()
        self.ids = {token: i for i, token in enumerate(lines)}
        missing = [token for token in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]") if token not in self.ids]
        if missing:
            raise ValueError(f"vocabulary is {vocabulary}, and {', '.join(missing)} is not in it; give a vocab.txt")
        self.tokens = tuple(lines)

    def tokenize(self, reaction: str) -> list[str]:
        """The tokens of a reaction SMILES such as `"CCO>>CC=O"`; `[MASK]` is one.

        Raises:
          ValueError: where a character belongs to none. The original drops it without a word.
        """
        tokens = TOKEN.findall(reaction)
        if "".join(tokens) != reaction:
            raise ValueError(f"reaction is {reaction!r}, and {TOKEN.sub('', reaction)!r} is no SMILES; take it out")
        return tokens

    def encode(self, reaction: str) -> np.ndarray:
        """`[T]` int32 of one reaction; tokens that the vocabulary lacks are [UNK]."""
        unknown = self.ids["[UNK]"]
        tokens = ["[CLS]", *self.tokenize(reaction), "[SEP]"]
        return np.array([self.ids.get(token, unknown) for token in tokens], np.int32)

    def batch(self, reactions: Sequence[str], *, length: int | None = None) -> PaddedBatch:
        """`[B, T]` ids with their mask, padded to a length, or to the longest.

        Raises:
          ValueError: where one is longer than `length`; nothing is cut.
        """
        encoded = [self.encode(reaction) for reaction in reactions]
        return pad_sequences(encoded, length=length, fill_value=self.ids["[PAD]"])


def readings(logits: np.ndarray) -> dict[str, str]:
    """What stands at the `[MASK]` of each of `MASKED`, from `[3, T, V]` logits, by the installed vocabulary.

    Raises:
      ImportError: where it is not installed.
    """
    tokenizer = installed_tokenizer()
    places = tokenizer.batch(MASKED).values == tokenizer.ids["[MASK]"]
    return {
        reaction: tokenizer.tokens[of_reaction[place][0].argmax()]
        for reaction, of_reaction, place in zip(MASKED, np.asarray(logits), places, strict=True)
    }


@cache
def installed_tokenizer() -> ReactionTokenizer:
    """The tokenizer of the weights that are installed.

    Raises:
      ImportError: where they are not.
    """
    return ReactionTokenizer(installed_weights("albert").with_name("vocab.txt"))
