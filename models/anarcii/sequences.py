"""Variable domains of antibodies that are published: of drugs, of each chain type, and one with a long loop."""

from __future__ import annotations

import numpy as np

from .config import EOS, PAD, SOS
from .vocabulary import LABELS, tokenise

SEQUENCES = {
    "trastuzumab heavy": (
        "EVQLVESGGGLVQPGGSLRLSCAASGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRYADSVKGRFTISADTSKNTAYLQMNSLRAEDTAVYYCSRWGGDGFYAMDY"
        "WGQGTLVTVSS"
    ),
    "trastuzumab kappa": (
        "DIQMTQSPSSLSASVGDRVTITCRASQDVNTAVAWYQQKPGKAPKLLIYSASFLYSGVPSRFSGSRSGTDFTLTISSLQPEDFATYYCQQHYTTPPTFGQGTKVEIK"
    ),
    "adalimumab heavy": (
        "EVQLVESGGGLVQPGRSLRLSCAASGFTFDDYAMHWVRQAPGKGLEWVSAITWNSGHIDYADSVEGRFTISRDNAKNSLYLQMNSLRAEDTAVYYCAKVSYLSTASSLDY"
        "WGQGTLVTVSS"
    ),
    "rituximab kappa": (
        "QIVLSQSPAILSASPGEKVTMTCRASSSVSYIHWFQQKPGSSPKPWIYATSNLASGVPVRFSGSGSGTSYSLTISRVEAEDAATYYCQQWTSNPPTFGGGTKLEIK"
    ),
    "avelumab lambda": (
        "QSALTQPASVSGSPGQSITISCTGTSSDVGGYNYVSWYQQHPGKAPKLMIYDVSNRPSGVSNRFSGSKSGNTASLTISGLQAEDEADYYCSSYTSSSTRVFGTGTKVTVL"
    ),
    "PG9 heavy": (
        "QRLVESGGGVVQPGSSLRLSCAASGFDFSRQGMHWVRQAPGQGLEWVAFIKYDGSEKYHADSVWGRLSISRDNSKDTLYLQMNSLRVEDTATYFCVREAGGPDYRNGYNY"
        "YDFYDGYYNYHYMDVWGKGTTVTVSS"
    ),
}


def varied(rng: np.random.Generator, batch: int = 4, *, longest: int | None = None) -> list[str]:
    """Domains of different lengths: cut at either end, and of every residue one in twenty another."""
    residues = np.array(list("ACDEFGHIKLMNPQRSTVWY"))
    chosen = []
    for name in rng.choice(list(SEQUENCES), batch):
        sequence = np.array(list(SEQUENCES[name][rng.integers(0, 4) :][:longest]))
        sequence = sequence[: len(sequence) - rng.integers(0, 4)]
        mutated = rng.random(len(sequence)) < 0.05
        chosen.append("".join(np.where(mutated, rng.choice(residues, len(sequence)), sequence)))
    return chosen


def numbered(rng: np.random.Generator, sequences: list[str], length: int) -> tuple[np.ndarray, np.ndarray]:
    """`[B, length]` twice: sequences, and an answer to each, rising numbers after a chain's type."""
    src = tokenise(sequences, length=length)
    trg = np.full_like(src, PAD)
    for row, sequence in zip(trg, sequences, strict=True):
        count = min(len(sequence), 128, length - 3)
        numbers = np.sort(rng.choice(128, count, replace=False)) + LABELS.index("1")
        answer = [SOS, LABELS.index(str(rng.choice(list("HLK")))), *numbers, EOS]
        row[: len(answer)] = answer
    return src, trg
