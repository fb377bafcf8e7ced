"""PyTorch's DataLoader as a source: the order of an epoch depends on the seed and its number alone."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from ...weights.formats import import_torch
from .host import as_host
from .source import EpochSource, as_epochs, as_number, epoch_seeds, skipped

if TYPE_CHECKING:
    import torch


def from_torch(
    dataloader: torch.utils.data.DataLoader[Any], *, seed: int = 0, epochs: int | None = None
) -> TorchSource:
    """Batches of a DataLoader, as numpy arrays that share memory with its tensors; bfloat16 by `ml_dtypes`.

    An epoch is one pass. At its start the generators that the loader and its samplers draw from, their own or PyTorch's
    global one, are seeded by `seed` and the epoch's number, and `sampler.set_epoch` is called where there is one. The
    global generators of PyTorch, NumPy and `random` are the epoch's own while the loader works, so that augmentations
    in the main process repeat too, and hold what they held afterwards.

    `restore` in the middle of an epoch loads and drops the batches before the position.

    Limits: a dataset must itself depend on nothing but its index and those generators. With `persistent_workers=True`,
    augmentations depend on the epochs before. A thread that draws from a global generator while another one loads, as
    under `read_ahead`, draws from the epoch's. Worker processes are best started with
    `multiprocessing_context="forkserver"`: JAX has threads, and a plain fork may deadlock.

    Args:
      dataloader: of any kind: samplers, batch samplers, iterable datasets, workers.
      seed: of the order, beside the seeds that generators given to the loader had.
      epochs: how many; None for no end.

    Raises:
      ValueError: where the loader has no batch.

    Source: https://docs.pytorch.org/docs/stable/data.html

    Example:
      >>> import torch
      >>> data = torch.utils.data.TensorDataset(torch.arange(6), torch.ones(6, 2))
      >>> source = from_torch(torch.utils.data.DataLoader(data, batch_size=3, shuffle=True))
      >>> x, y = next(source)
      >>> type(x).__name__, x.shape, y.dtype
      ('ndarray', (3,), dtype('float32'))
    """
    return TorchSource(dataloader, seed, as_epochs(epochs))


class TorchSource(EpochSource):
    """From `from_torch`."""

    kind = "torch"

    def __init__(self, dataloader: Any, seed: int, epochs: int | None):
        torch = import_torch("from_torch", instead="or use from_arrays")
        if not isinstance(dataloader, torch.utils.data.DataLoader):
            raise TypeError(
                f"dataloader is a {type(dataloader).__name__}, and a torch.utils.data.DataLoader was wanted"
            )
        self._loader, self._seed, self.epochs = dataloader, as_number(seed, name="seed", least=0), epochs
        self._batches = None
        # the length of an iterable dataset is an estimate, by PyTorch's own words
        if not isinstance(dataloader.dataset, torch.utils.data.IterableDataset):
            with suppress(TypeError):
                self._batches = len(dataloader)
        if self._batches == 0:
            raise ValueError(
                f"dataloader has no batch: batch_size is {dataloader.batch_size}, drop_last is {dataloader.drop_last}; "
                f"give more data or a smaller batch_size"
            )
        batch_sampler = dataloader.batch_sampler
        self._samplers = [dataloader.sampler, batch_sampler, getattr(batch_sampler, "sampler", None)]
        owners = [getattr(owner, "generator", None) for owner in (dataloader, *self._samplers)]
        given = {id(generator): generator for generator in owners if isinstance(generator, torch.Generator)}
        self._generators = [(generator, generator.initial_seed()) for generator in given.values()]

    def identity(self) -> dict[str, Any]:
        own = [initial for _, initial in self._generators]
        return {"batches": self._batches, "batch_size": self._loader.batch_size, "seed": self._seed, "generators": own}

    @property
    def batches_per_epoch(self) -> int | None:
        return self._batches

    @property
    def _origin(self) -> Any:
        return self._loader if self._loader.persistent_workers else self  # whose one iterator begins anew

    def batches(self, epoch: int, start: int) -> Iterator[Any]:
        for sampler in {id(sampler): sampler for sampler in self._samplers}.values():
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch)
        for generator, initial in self._generators:
            generator.manual_seed(_drawn(np.random.SeedSequence([self._seed, initial], spawn_key=(epoch,))))
        loaded = _loaded(self._loader, _GlobalGenerators(_drawn(epoch_seeds(self._seed, epoch))))
        return (as_host(batch) for batch in skipped(loaded, start))


# No method: workers end at once where the last reference goes, and after 5 s each where a cycle is collected.
def _loaded(loader: Any, globally: _GlobalGenerators) -> Iterator[Any]:
    with globally.in_place():
        if getattr(loader, "_iterator", None) is not None:
            # workers that persist keep the seed that a first pass draws before the order; skip it, for one order
            import torch

            torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
        running = iter(loader)
    while True:
        with globally.in_place():
            try:
                batch = next(running)
            except StopIteration:
                return
        yield batch


class _GlobalGenerators:
    """The global generators of PyTorch's CPU, NumPy and Python, as one epoch has them."""

    def __init__(self, seed: int):
        self._seed = seed
        self._states: tuple[Any, ...] | None = None

    @contextmanager
    def in_place(self) -> Iterator[None]:
        outside = _global_states()
        if self._states is None:
            import torch

            torch.default_generator.manual_seed(self._seed)
            np.random.seed(self._seed % 2**32)
            random.seed(self._seed)
        else:
            _set_global_states(self._states)
        try:
            yield
        finally:
            self._states = _global_states()
            _set_global_states(outside)


def _global_states() -> tuple[Any, ...]:
    import torch

    return torch.get_rng_state(), np.random.get_state(), random.getstate()


def _set_global_states(states: tuple[Any, ...]) -> None:
    import torch

    torch.set_rng_state(states[0])
    np.random.set_state(states[1])
    random.setstate(states[2])


def _drawn(seeds: np.random.SeedSequence) -> int:
    return int(seeds.generate_state(1, np.uint64)[0] >> np.uint64(1))
