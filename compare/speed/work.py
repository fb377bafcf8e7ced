"""The least that one step has to do, whoever runs it: floating-point operations of products, and bytes moved once."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import flop_registry, shape_wrapper

from ..case import Case, Mode
from ..dispatch_mode import DispatchMode
from ..report.records import Work
from ..torch_side import TorchBatch, TorchSide, forward_backward
from .flops import FORMULAS

aten = torch.ops.aten
COUNTED = flop_registry | {op: shape_wrapper(formula) for op, formula in FORMULAS.items()}
LOOKUPS = (aten.embedding, aten._embedding_bag, aten._embedding_bag_forward_only)
SELECTIONS = (aten.index, aten.index_select, aten.gather, aten.take)

FLOPS = "operations: two for each multiplication in matrix products, convolutions, attention and recurrent layers"
BYTES = "bytes: what is read of parameters, buffers and inputs, and the outputs, each once"
TRAINING = "written gradients, and what the backward pass of eager PyTorch keeps, once"
OPTIMIZER = "the optimizer's state read and written, the parameters written"


def least_work(
    side: TorchSide, mode: Mode, batch: TorchBatch, *, size: int | None = None, optimizer_bytes: int = 0
) -> Work:
    """Runs one eager step of the judge and counts. Buffers are put back as they were.

    Operations are those of matrix products, convolutions, attention and recurrent layers, forward and, in training,
    backward, by the textbook's algorithms: elementwise work can be done in passing. (Winograd's convolution needs fewer
    multiplications, so a step may come out below this floor; it does not where a product bounds it.)

    Bytes are what any implementation has to read or write at least once, however much it fuses:

    - read: of parameters, buffers and inputs, what operators read; of an embedding table the rows that are looked up,
      of what is indexed as much as is taken; nothing of what is not used;
    - written: outputs, and buffers and inputs that change;
    - in training: gradients of parameters and inputs;
    - and what the backward pass of eager PyTorch keeps that is none of the above, once. This part is no bound but what
      eager PyTorch does: a compiler that computes it again moves fewer bytes, for more operations;
    - in mode `train_step`, where gradients of parameters need not leave the step, in their place: the parameters
      written, and `optimizer_bytes` read and written.

    Memory that several tensors share counts once. Caches may hold some of it from one step to the next, so `Floors.of`
    takes the bandwidth of the cache for what fits into it.

    Args:
      side: the judge's, in the run's dtype.
      mode: of the step.
      batch: as `side.place` gives it for this mode.
      size: of the batch, in a batch sweep.
      optimizer_bytes: the size of the optimizer's state, in mode `train_step`.
    """
    module = side.set_mode(mode)
    inputs = _tensors((batch.args, batch.kwargs))
    given = [*side.module.parameters(), *side.module.buffers(), *inputs]
    versions = [tensor._version for tensor in inputs]
    kept: list[torch.Tensor] = []
    gradients: list[torch.Tensor | None] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor)
        return tensor

    counter = _Counter(given)
    with _put_back(side.module) as moved, _plain_attention(), counter:
        if mode == "inference":
            with torch.no_grad():
                outputs = module(*batch.args, **batch.kwargs)
        else:
            with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
                outputs, gradients = forward_backward(module, list(side.parameters.values()), batch, side.loss)
    changed = [tensor for tensor, version in zip(inputs, versions, strict=True) if tensor._version != version]
    known = {_storage(tensor) for tensor in given}
    written = [tensor for tensor in _tensors(outputs) if _storage(tensor) not in known]
    known |= {_storage(tensor) for tensor in written}
    total = counter.read_bytes + _bytes([*moved, *changed]) + _bytes(written)
    how = [FLOPS, BYTES]
    if mode != "inference":
        how.append(TRAINING)
        count = len(side.parameters) if mode == "train_step" else 0
        total += _bytes(g for g in gradients[count:] if g is not None)
        total += _bytes(tensor for tensor in kept if _storage(tensor) not in known)
    if mode == "train_step":
        how.append(OPTIMIZER)
        total += _bytes(side.parameters.values()) + 2 * optimizer_bytes
    return Work(
        case=side.case.name,
        mode=mode,
        dtype=side.dtype_name,
        batch=size,
        flops=float(counter.flops),
        bytes=float(total),
        how="; ".join(how),
    )


def optimizer_state_bytes(case: Case, side: TorchSide) -> int:
    """What the case's optimizer keeps for all parameters of the module, scalars apart."""
    assert case.optimizer is not None
    copies = [torch.nn.Parameter(parameter.detach().clone()) for parameter in side.parameters.values()]
    for copy in copies:
        copy.grad = torch.zeros_like(copy)
    optimizer = case.optimizer[0](copies)
    optimizer.step()
    return _bytes(tensor for tensor in _tensors(list(optimizer.state.values())) if tensor.ndim)


class _Counter(DispatchMode):
    """Operations, and what operators read of the given tensors: of each, every part that is used, once.

    With `FlopCounterMode`'s formulas, without its tracking of modules, which `torch.autograd.grad` does not bear.
    """

    def __init__(self, given: Iterable[torch.Tensor]):
        super().__init__()
        self.flops = 0
        self._sizes = {_storage(tensor): tensor.untyped_storage().nbytes() for tensor in given}
        self._parts: dict[int, dict[Any, int]] = defaultdict(dict)
        self._rows: dict[int, set[int]] = defaultdict(set)
        self._row_bytes: dict[int, int] = {}

    @property
    def read_bytes(self) -> int:
        looked_up = {key: len(rows) * self._row_bytes[key] for key, rows in self._rows.items()}
        return sum(
            min(size, sum(self._parts[key].values()) + looked_up.get(key, 0)) for key, size in self._sizes.items()
        )

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if func._overloadpacket in COUNTED:
            self.flops += COUNTED[func._overloadpacket](*args, **kwargs, out_val=result)
        if not func.is_view:
            for tensor in _tensors((args, kwargs)):
                if (key := _storage(tensor)) in self._sizes:
                    self._read(key, tensor, func._overloadpacket, args, result)
        return result

    def _read(self, key: int, tensor: torch.Tensor, op: Any, args: Any, result: Any) -> None:
        part = (tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
        if op in LOOKUPS and tensor is args[0]:
            self._rows[key].update(args[1].unique().tolist())
            self._row_bytes[key] = tensor[0].nbytes
        elif op in SELECTIONS and tensor is args[0]:
            self._parts[key].setdefault((op, *part), _bytes([result]))
        else:
            self._parts[key][part] = _bytes([tensor])


def _bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Of memory that several of them share, what they show of it, at most all."""
    shown: dict[int, int] = defaultdict(int)
    sizes: dict[int, int] = {}
    for tensor in tensors:
        key = _storage(tensor)
        shown[key] += tensor.nbytes
        sizes[key] = tensor.untyped_storage().nbytes()
    return sum(min(shown[key], sizes[key]) for key in shown)


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _tensors(tree: Any) -> list[torch.Tensor]:
    leaves = pytree.tree_leaves(tree)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided]


@contextlib.contextmanager
def _put_back(module: torch.nn.Module) -> Iterator[list[torch.Tensor]]:
    """Buffers are as they were afterwards; then the list holds those that had changed, batch norm's too, whose versions
    do not tell."""
    before = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
    changed: list[torch.Tensor] = []
    try:
        yield changed
    finally:
        with torch.no_grad():
            for buffer, value in before:
                if not torch.equal(buffer, value):
                    changed.append(buffer)
                    buffer.copy_(value)


@contextlib.contextmanager
def _plain_attention() -> Iterator[None]:
    """Without the fused layers of `torch.nn.TransformerEncoder`, whose products no counter sees."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
