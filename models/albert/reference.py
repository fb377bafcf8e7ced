"""ALBERT in eager PyTorch, with the `state_dict` names of rxnmapper's checkpoint: a Python loop over one layer.

Source: Lan et al. 2019, "ALBERT: A Lite BERT"; names as in `transformers.AlbertForMaskedLM` with the pooler of
`transformers.AlbertModel`. Dropout is left out: two libraries cannot draw the same masks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..installed import installed_weights
from .config import AlbertConfig


class AlbertOutput(NamedTuple):
    """What the model gives.

    Attributes:
      logits: `[B, T, V]`.
      last_hidden_state: `[B, T, D]`.
      pooler_output: `[B, D]`.
      attentions: `[L, B, H, T, T]`.
    """

    logits: Tensor
    last_hidden_state: Tensor
    pooler_output: Tensor
    attentions: Tensor


class AlbertEmbeddings(nn.Module):
    """What a token is, where it stands and which part it is of, added and normalised."""

    def __init__(self, config: AlbertConfig):
        super().__init__()
        size = config.embedding_size
        self.word_embeddings = nn.Embedding(config.vocab_size, size, padding_idx=config.pad_token_id)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, size)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, size)
        self.LayerNorm = nn.LayerNorm(size, eps=config.layer_norm_eps)

    def forward(self, input_ids: Tensor, token_type_ids: Tensor) -> Tensor:
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)[None]
        x = self.word_embeddings(input_ids) + self.token_type_embeddings(token_type_ids)
        return self.LayerNorm(x + self.position_embeddings(positions))


class AlbertAttention(nn.Module):
    """Attention, its projection, a shortcut, a norm; and the weights `[B, H, T, T]`."""

    def __init__(self, config: AlbertConfig):
        super().__init__()
        size = config.hidden_size
        self.heads = config.num_attention_heads
        self.query = nn.Linear(size, size)
        self.key = nn.Linear(size, size)
        self.value = nn.Linear(size, size)
        self.dense = nn.Linear(size, size)
        self.LayerNorm = nn.LayerNorm(size, eps=config.layer_norm_eps)

    def forward(self, hidden_states: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        query = self.split(self.query(hidden_states))
        key = self.split(self.key(hidden_states))
        value = self.split(self.value(hidden_states))
        scores = torch.matmul(query, key.transpose(2, 3)) * query.shape[-1] ** -0.5
        weights = F.softmax(scores + mask, dim=-1)
        attended = torch.matmul(weights, value).transpose(1, 2).reshape(hidden_states.shape)
        return self.LayerNorm(hidden_states + self.dense(attended)), weights

    def split(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], x.shape[1], self.heads, -1).transpose(1, 2)


class AlbertLayer(nn.Module):
    """Attention, then the feed-forward network, normalised after each."""

    def __init__(self, config: AlbertConfig):
        super().__init__()
        self.full_layer_layer_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.attention = AlbertAttention(config)
        self.ffn = nn.Linear(config.hidden_size, config.intermediate_size)
        self.ffn_output = nn.Linear(config.intermediate_size, config.hidden_size)
        self.activation = nn.GELU()

    def forward(self, hidden_states: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        attended, weights = self.attention(hidden_states, mask)
        x = self.ffn_output(self.activation(self.ffn(attended)))
        return self.full_layer_layer_norm(x + attended), weights


class AlbertLayerGroup(nn.Module):
    """The layers that take turns; here it is one, as in every published ALBERT."""

    def __init__(self, config: AlbertConfig):
        super().__init__()
        self.albert_layers = nn.ModuleList([AlbertLayer(config)])

    def forward(self, hidden_states: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        return self.albert_layers[0](hidden_states, mask)


class AlbertTransformer(nn.Module):
    """One layer, applied `num_hidden_layers` times."""

    def __init__(self, config: AlbertConfig):
        super().__init__()
        self.times = config.num_hidden_layers
        self.embedding_hidden_mapping_in = nn.Linear(config.embedding_size, config.hidden_size)
        self.albert_layer_groups = nn.ModuleList([AlbertLayerGroup(config)])

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        x = self.embedding_hidden_mapping_in(x)
        attentions = []
        for _ in range(self.times):
            x, weights = self.albert_layer_groups[0](x, mask)
            attentions.append(weights)
        return x, torch.stack(attentions)


class AlbertModel(nn.Module):
    """The encoder with its pooler."""

    def __init__(self, config: AlbertConfig):
        super().__init__()
        self.embeddings = AlbertEmbeddings(config)
        self.encoder = AlbertTransformer(config)
        self.pooler = nn.Linear(config.hidden_size, config.hidden_size)
        self.pooler_activation = nn.Tanh()

    def forward(self, input_ids: Tensor, mask: Tensor, token_type_ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, attentions = self.encoder(self.embeddings(input_ids, token_type_ids), mask)
        return x, self.pooler_activation(self.pooler(x[:, 0])), attentions


class AlbertMLMHead(nn.Module):
    """Which token stands there, by the table of tokens once more."""

    def __init__(self, config: AlbertConfig, words: nn.Embedding):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.LayerNorm = nn.LayerNorm(config.embedding_size, eps=config.layer_norm_eps)
        self.dense = nn.Linear(config.hidden_size, config.embedding_size)
        self.decoder = nn.Linear(config.embedding_size, config.vocab_size)
        self.decoder.weight = words.weight
        self.decoder.bias = self.bias
        self.activation = nn.GELU()

    def forward(self, hidden_states: Tensor) -> Tensor:
        return self.decoder(self.LayerNorm(self.activation(self.dense(hidden_states))))


class Albert(nn.Module):
    """`[B, T]` token ids, where they are valid and which part they are of -> `AlbertOutput`."""

    def __init__(self, config: AlbertConfig):
        super().__init__()
        self.albert = AlbertModel(config)
        self.predictions = AlbertMLMHead(config, self.albert.embeddings.word_embeddings)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=config.initializer_range)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)
        with torch.no_grad():
            self.albert.embeddings.word_embeddings.weight[config.pad_token_id].zero_()

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> AlbertOutput:
        dtype = self.predictions.bias.dtype
        mask = (attention_mask == 0).to(dtype)[:, None, None] * torch.finfo(dtype).min
        x, pooled, attentions = self.albert(input_ids, mask, token_type_ids)
        return AlbertOutput(self.predictions(x), x, pooled, attentions)


def pretrained_weights() -> Mapping[str, Tensor]:
    """The checkpoint (MIT) that `rxnmapper` installs.

    Raises:
      ImportError: where the package is not installed.
    """
    return torch.load(installed_weights("albert"), map_location="cpu", weights_only=True)
