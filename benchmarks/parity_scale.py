"""How long a check of a large model takes, and how much memory: BERT-base, 109 million parameters, 215 called modules.

python benchmarks/parity_scale.py            a right port, forward and backward
python benchmarks/parity_scale.py --wrong    one with Flax's epsilon in one norm, which is located and explained
"""

from __future__ import annotations

import argparse
import resource
import time
from dataclasses import replace
from functools import partial

import numpy as np
from flax import nnx
from graphmode.compare import check
from graphmode.models.bert.case import CASE, reference, sentences
from graphmode.models.bert.model import BertConfig, BertModel

CONFIG = BertConfig.base()
WRONG = "encoder.layer.7.output.LayerNorm"
GIB = 1024**2  # ru_maxrss is in KiB


def port(rngs: nnx.Rngs, *, wrong: bool) -> BertModel:
    model = BertModel(CONFIG, rngs=rngs)
    if wrong:
        (norm,) = (m for path, m in nnx.iter_modules(model) if ".".join(map(str, path)) == WRONG)
        norm.eps = 1e-6
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wrong", action="store_true", help="one norm has another epsilon")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--length", type=int, default=32, help="tokens of a sentence")
    options = parser.parse_args()
    case = replace(
        CASE,
        name="bert_base",
        reference=partial(reference, CONFIG),
        model=partial(port, wrong=options.wrong),
        inputs=lambda rng: sentences(rng, np.full(options.batch, options.length), options.length, CONFIG),
        edge_inputs={},
        modes=("inference", "forward_backward"),
    )
    start = time.perf_counter()
    report = check(case)
    took, peak = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / GIB
    print(report)
    print(f"{took:.0f} s, {peak:.1f} GiB at most")


if __name__ == "__main__":
    main()
