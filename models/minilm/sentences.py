"""Sentences to token ids, ids to buckets, buckets through one graph each, and the vectors back in order."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx

from graphmode.ops import batches_by_bucket, geometric_lengths

from ..installed import installed_weights
from .model import MiniLM, load

SHORTEST = 16  # tokens of the first bucket


class SentenceTokenizer:
    """Token ids as `sentence_transformers` gives them: its own limit of tokens, and no padding yet.

    Args:
      folder: with tokenizer.json, and with sentence_bert_config.json, whose `max_seq_length` is the limit; the limit
        and the padding that tokenizer.json asks for are not used, as they are not in the original.

    Attributes:
      max_length: tokens, [CLS] and [SEP] among them; the rest of a sentence is left out.

    Raises:
      ImportError: where tokenizers is not installed.
    """

    def __init__(self, folder: str | PathLike[str]):
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise ImportError(
                f"the sentences of minilm need tokenizers ({error}): pip install 'graphmode[weights]'"
            ) from error
        folder = Path(folder)
        declared = json.loads((folder / "sentence_bert_config.json").read_text(encoding="utf-8"))
        self.max_length = int(declared["max_seq_length"])
        self._tokenizer: Any = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(self.max_length, strategy="longest_first")
        if declared.get("do_lower_case"):
            raise ValueError(f"{folder} asks for do_lower_case before its tokenizer; the port leaves that to it")

    def encode(self, sentences: Sequence[str]) -> list[np.ndarray]:
        """`[T_i]` int32 of each sentence.

        Raises:
          TypeError: for one string in place of several.
        """
        if isinstance(sentences, str):
            raise TypeError(f"sentences is the string {sentences!r}; give a list of strings")
        found = self._tokenizer.encode_batch([sentence.strip() for sentence in sentences])
        return [np.array(encoding.ids, np.int32) for encoding in found]


class SentenceEncoder:
    """Sentences of any lengths to vectors, with one graph for each bucket of lengths.

    Args:
      model: the encoder.
      tokenizer: of its vocabulary.
      batch_size: B of every graph. The default suits a processor; give an accelerator 64 or more.

    Attributes:
      lengths: of the buckets, in tokens: 16 and its doubles, up to the tokenizer's limit.
      traces: how many graphs there are so far.
    """

    def __init__(self, model: MiniLM, tokenizer: SentenceTokenizer, *, batch_size: int = 8):
        self.model, self.tokenizer, self.batch_size = model, tokenizer, batch_size
        self.lengths = geometric_lengths(min(SHORTEST, tokenizer.max_length), tokenizer.max_length)
        self.traces = 0
        graphdef, self._state = nnx.split(model)

        def run(state: nnx.State, input_ids: jax.Array, attention_mask: jax.Array) -> jax.Array:
            self.traces += 1
            return nnx.merge(graphdef, state)(input_ids, attention_mask)

        self._run = jax.jit(run)

    def encode(self, sentences: Sequence[str]) -> np.ndarray:
        """`[N, D]` float32, each row of length 1: the dot product of two is the cosine of their sentences.

        Raises:
          TypeError: for one string in place of several.
        """
        tokens = self.tokenizer.encode(sentences)
        vectors = np.zeros((len(tokens), self.model.config.hidden_size), np.float32)
        pad = self.model.config.pad_token_id
        batches = batches_by_bucket(tokens, lengths=self.lengths, batch_size=self.batch_size, fill_value=pad)
        for indices, batch in batches:
            there = indices < len(tokens)
            vectors[indices[there]] = np.asarray(self._run(self._state, batch.values, batch.mask))[there]
        return vectors


@cache
def installed_tokenizer() -> SentenceTokenizer:
    """The tokenizer of the weights that are installed.

    Raises:
      ImportError: where they, or tokenizers, are not.
    """
    return SentenceTokenizer(installed_weights("minilm").parent)


@cache
def installed_encoder() -> SentenceEncoder:
    """all-MiniLM-L6-v2 as installed, its graphs kept.

    Raises:
      ImportError: where it, or tokenizers, is not.
    """
    return SentenceEncoder(load(), installed_tokenizer())


def encode(sentences: Sequence[str]) -> np.ndarray:
    """`[N, 384]` float32 of N sentences by all-MiniLM-L6-v2 as installed, each of length 1: `v @ v.T` are cosines.

    Raises:
      ImportError: where it, or tokenizers, is not installed.
    """
    return installed_encoder().encode(sentences)
