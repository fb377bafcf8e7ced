"""Tokens from scores, one after another: greedy, sampled, by beam search; CTC; and the cache that they read."""
