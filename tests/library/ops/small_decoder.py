"""A small recurrent decoder, as a step of ours and in eager PyTorch, and eager loops that decode with it by rows."""

import jax.numpy as jnp
import numpy as np
import torch

VOCABULARY, SIZE, PLACES = 7, 5, 24


class SmallDecoder:
    """Logits from all tokens so far and their places; `step` for ours, `logits_after` in float64 for PyTorch."""

    def __init__(self, seed, vocabulary=VOCABULARY, dtype=np.float64):
        rng = np.random.default_rng(seed)
        self.mix = rng.standard_normal((SIZE, SIZE)).astype(dtype)
        self.tokens = (2 * rng.standard_normal((vocabulary, SIZE))).astype(dtype)
        self.places = rng.standard_normal((PLACES, SIZE)).astype(dtype)
        self.head = (1.5 * rng.standard_normal((SIZE, vocabulary))).astype(dtype)

    def start(self, batch):
        return {"h": jnp.zeros((batch, SIZE), self.mix.dtype), "steps": jnp.int32(0)}

    def step(self, state, tokens, position):
        h = jnp.tanh(state["h"] @ self.mix + jnp.asarray(self.tokens)[tokens] + jnp.asarray(self.places)[position])
        return h @ self.head, {"h": h, "steps": state["steps"] + 1}

    def logits_after(self, tokens, start=0):
        mix, table, places, head = map(torch.tensor, (self.mix, self.tokens, self.places, self.head))
        h = torch.zeros(SIZE, dtype=mix.dtype)
        for place, token in enumerate(tokens, start):
            h = torch.tanh(h @ mix + table[token] + places[place])
        return h @ head


def eager_greedy(logits_after, first, most, eos_ids):
    """Tokens, score, and whether no end token came."""
    tokens, score = [], 0.0
    while len(tokens) < most:
        log_probs = logits_after([first, *tokens]).log_softmax(-1)
        tokens.append(int(log_probs.argmax()))
        score += float(log_probs[tokens[-1]])
        if tokens[-1] in eos_ids:
            return tokens, score, False
    return tokens, score, True


def eager_beam_search(logits_after, first, beams, most, eos_ids, penalty=1.0, early=False):
    """`[(tokens, score, whether it was cut short)]` of those that ended, best first, and how many steps it took."""
    running, ended = [([], 0.0)], []
    for step in range(1, most + 1):
        found = []
        for tokens, score in running:
            log_probs = logits_after([first, *tokens]).log_softmax(-1).tolist()
            found += [([*tokens, i], score + p) for i, p in enumerate(log_probs) if p > -np.inf]
        found = sorted(found, key=lambda one: -one[1])[: max(2, 1 + len(eos_ids)) * beams]
        for rank, (tokens, score) in enumerate(found):
            if (tokens[-1] in eos_ids or step == most) and rank < beams:
                ended.append((tokens, score / step**penalty, tokens[-1] not in eos_ids))
        ended = sorted(ended, key=lambda one: -one[1])[:beams]
        running = [one for one in found if one[0][-1] not in eos_ids][:beams]
        full = len(ended) == beams
        if step == most or not running or (full and early is True):
            break
        longest = most if early == "never" and penalty > 0 else step
        if full and running[0][1] / longest**penalty <= ended[-1][1]:
            break
    return ended, step
