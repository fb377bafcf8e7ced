"""The classes of `torch.nn` that have no counterpart here, each with what to use."""

REFUSED = {
    "DataParallel": "shard the batch over a mesh with jax.sharding; one jitted step then runs on all devices",
    "CrossMapLRN2d": "use LocalResponseNorm, which computes the same",
    "Container": "PyTorch has deprecated it; use Sequential, ModuleList or ModuleDict",
    "Module": "use flax.nnx.Module, or gm.nn.Layer for errors that name the layer",
    "RNNBase": "use RNN, LSTM or GRU; it is their base and no layer by itself",
    "RNNCellBase": "use RNNCell, LSTMCell or GRUCell; it is their base and no layer by itself",
}


def why_refused(name: str) -> str:
    """The message for a name that `graphmode.nn` does not have."""
    if name in REFUSED:
        return f"graphmode.nn has no {name}: {REFUSED[name]}"
    return f"graphmode.nn has no {name}"
