"""From the model's labels to the IMGT number of every residue: what the original does with its answer, on the host.

Source: `ModelRunner._predict_numbering` and `build_inward_list` of anarcii 2.0.8 (BSD-3), whose results these are,
errors and their words too.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np
from flax import nnx

from .config import EOS
from .model import Anarcii, Generated
from .vocabulary import LABELS, RESIDUES, tokenise

Number = tuple[int, str]  # 111, and which insertion: "A"; " " for none

CUTOFF = 15.0  # of the score; the original's for T-cell receptors is 25, for sharks 24
FEWEST = 50
LATE, EARLY = 119, 9  # what an end that came too early, and a beginning too late, may lack
END = 128
ENDS = {"H": END, "A": END, "G": END}  # the last number of a chain; of all others 127
LETTERS = (*string.ascii_uppercase, *(2 * letter for letter in string.ascii_uppercase))
LOOPS = (*range(27, 39), *range(56, 66), *range(105, 118))
LOOP_INSERTIONS = (32, 60, 111)


@dataclass(frozen=True)
class Numbered:
    """One sequence's numbers.

    Attributes:
      numbering: each number from 1 to 128, insertions between them, with the residue that it has, or "-"; None where
        there is an error.
      chain_type: H, K or L; F where there is an error.
      score: the mean logit of the labels.
      query_start, query_end: the first and last of the residues that are numbered, or None.
      error: why there is no numbering, or None.
    """

    numbering: list[tuple[Number, str]] | None
    chain_type: str
    score: float
    query_start: int | None
    query_end: int | None
    error: str | None


def number(
    model: Anarcii, sequences: Sequence[str], *, names: Sequence[str] = LABELS, cutoff: float = CUTOFF
) -> list[Numbered]:
    """The numbers of antibody sequences, which run through the model as one batch.

    Args:
      model: as `load` gives it.
      sequences: of one-letter amino acids, at most 200.
      names: what the model's tokens are called; `TCR_LABELS` for T-cell receptors.
      cutoff: a lower score is an error.

    Raises:
      ValueError: as `tokenise`.
    """
    generated = jax.device_get(_generate(*nnx.split(model), tokenise(sequences)))
    rows = zip(sequences, *generated[:3], strict=True)
    return [numbered(*row, names=names, cutoff=cutoff) for row in rows]


@jax.jit(static_argnums=0)
def _generate(graphdef: nnx.GraphDef, state: nnx.State, src: jax.Array) -> Generated:
    return nnx.merge(graphdef, state).generate(src)


def numbered(
    sequence: str,
    tokens: np.ndarray,
    length: int,
    logits: np.ndarray,
    *,
    names: Sequence[str] = LABELS,
    cutoff: float = CUTOFF,
) -> Numbered:
    """The numbers of one sequence, from what the model generated: `[L]` tokens and their logits, and how many count."""
    residues = [RESIDUES[token] for token in tokenise([sequence])[0, 1:-1]]
    labels = [names[token] for token in tokens[:length] if token != EOS][: len(residues) + 1]  # the chain's type first
    # The original takes the logit of the label that comes next, that of the end among them.
    scores = [logits[i + 1] for i, label in enumerate(labels) if label not in ("<PAD>", "<SOS>", "<SKIP>", "X")]
    score = float(np.mean(scores)) if len(scores) >= FEWEST else 0.0

    def failed(error: str) -> Numbered:
        return Numbered(None, "F", score, None, None, error)

    if score < cutoff:
        few = f"Less than {FEWEST} non insertion residues numbered."
        return failed(few if len(scores) < FEWEST else "Score less than cut off.")
    try:
        read = _read(labels, residues)
        if len(set(read.numbers)) < len(read.numbers):
            return failed("Model predicted duplicate numbers")
        _complete(read, labels, residues)
        return Numbered(_aligned(read), labels[0], score, read.start, read.end, None)
    except (IndexError, ValueError) as error:
        return failed(f"Could not apply numbering: {error}")


@dataclass
class Read:
    """The residues that have a label, their numbers, and the residues before them that the model skipped."""

    numbers: list[Number]
    residues: list[str]
    skipped: list[str]
    start: int | None
    end: int


def _read(labels: list[str], residues: list[str]) -> Read:
    """Numbers up to the first skipped residue, runs of X as insertions between their neighbours.

    Raises:
      ValueError: where a label is no number, or insertions are where there may be none.
    """
    read = Read([], [], [], None, len(labels) - 2)
    inserted = 0
    for i, (label, residue) in enumerate(zip(labels[1:], residues, strict=False)):
        if label == "<SKIP>" and read.start is not None:
            read.end = i - 1 or read.end
            break
        if label == "<SKIP>":
            read.skipped.append(residue)
            continue
        if label == "X":
            inserted += 1
        else:
            if inserted and label.isdigit():
                read.numbers += _insertions(inserted, int(labels[i - inserted]), int(label))
                inserted = 0
            read.numbers.append((int(label), " "))
        read.residues.append(residue)
        read.start = i if read.start is None else read.start
    return read


def _insertions(count: int, before: int, after: int) -> list[Number]:
    """In a loop the first half counts up from the number before, and the second down to the one after."""
    if before in LOOP_INSERTIONS:
        half = count // 2
        falling = [LETTERS[i % len(LETTERS)] for i in range(count - half - 1, -1, -1)]
        return [(before, LETTERS[i % len(LETTERS)]) for i in range(half)] + [(after, letter) for letter in falling]
    if before in LOOPS:
        raise ValueError("Forbidden cdr insertion predicted.")
    return [(before, LETTERS[i % len(LETTERS)]) for i in range(count)]


def _complete(read: Read, labels: list[str], residues: list[str]) -> None:
    """Numbers the residues after an end that came too early, and those skipped at the beginning."""
    last = ENDS.get(labels[0], END - 1)
    rest = residues[len(labels) - 1 :]
    if rest and labels[-1].isdigit() and LATE < int(labels[-1]) < last:
        more = range(int(labels[-1]) + 1, last + 1)[: len(rest)]
        read.numbers += [(n, " ") for n in more]
        read.residues += rest[: len(more)]
        read.end += len(more)
    first = read.numbers[0][0]
    if 1 < first < EARLY and read.skipped:
        before = list(range(1, first))[-len(read.skipped) :]
        read.numbers[:0] = [(n, " ") for n in before]
        read.residues[:0] = read.skipped[-len(before) :]
        read.start = (read.start or 0) - len(before)


def _aligned(read: Read) -> list[tuple[Number, str]]:
    """Every number from 1 to 128, those that no residue has with "-"."""
    numbers: list[Number] = []
    residues: list[str] = []
    given = iter(read.residues)
    for this in read.numbers:
        gap = range(numbers[-1][0] + 1 if numbers else 1, this[0])
        numbers += [*((n, " ") for n in gap), this]
        residues += [*("-" for _ in gap), next(given)]
    # Residues after the last number, of insertions that nothing follows, take what numbers there are.
    for n in range(numbers[-1][0] + 1, END + 1):
        numbers.append((n, " "))
        residues.append(next(given, "-"))
    return list(zip(numbers, residues, strict=True))
