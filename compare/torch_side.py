"""The eager PyTorch side of a case: built, placed, run and observed."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.tree_util as jtu
import numpy as np
import torch
from torch.utils import _pytree as pytree

from graphmode.weights import Drop, WeightRule

from .case import TRAIN_STEPS, Case, CaseError, Inputs, Mode
from .checkpoints import gradients_of
from .copied_module import copied
from .draw import input_name
from .dtypes import cast_module, torch_dtype
from .errors import describe_with_line, what_came
from .functional_dropout import functional_dropout_as_it_was, note_mode
from .kept_results import KeptResults
from .observation import Observation, changed
from .scalar_loss import scalar_loss
from .trees import is_floating, named_leaves, to_arrays
from .widened import in_float64, let_ask_for_gradients, widen

_NORMS = (torch.nn.modules.batchnorm._NormBase,)


@dataclass(frozen=True)
class TorchBatch:
    """One set of inputs on the device, with what the backward pass starts from.

    Attributes:
      args, kwargs: as the module takes them.
      leaves: the floating tensors among them, by name, that gradients are taken by; empty but in forward_backward.
      cotangents: by the name of each floating output; None for a loss.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    leaves: dict[str, torch.Tensor]
    cotangents: dict[str, torch.Tensor] | None = None

    @functools.cached_property
    def tensors(self) -> list[torch.Tensor]:
        """Those of the inputs in PyTorch's order, then the cotangents; found once, since a row asks at each call."""
        leaves = pytree.tree_leaves((self.args, self.kwargs, self.cotangents))
        return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


class Snapshot:
    """Tensors as they were when it was taken.

    Attributes:
      pairs: each tensor, and a copy of what it held.
    """

    def __init__(self, tensors: Sequence[torch.Tensor], modules: Iterable[torch.nn.Module] = ()):
        self.pairs = [(tensor, tensor.detach().clone()) for tensor in tensors]
        inside = [m for m in modules if not isinstance(m, torch.jit.ScriptModule)]
        holders: list[Any] = [*(m._buffers for m in inside), *(m._parameters for m in inside)]
        self._held = [(holder, dict(holder)) for holder in holders]

    @classmethod
    def of_buffers(cls, module: torch.nn.Module) -> Snapshot:
        """Of a module's buffers, also of those that forward assigns anew (`self.mean = ...`)."""
        return cls(list(module.buffers()), module.modules())

    @torch.no_grad()
    def restore(self) -> None:
        """Writes the copies back in place, and puts the tensors back where another stands now."""
        for tensor, value in self.pairs:
            if tensor.shape != value.shape:  # by out=, which makes a tensor of another shape fit
                tensor.resize_(value.shape)
            tensor.copy_(value)
        for holder, tensors in self._held:
            holder.update(tensors)

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """Whatever happens to the tensors inside, after this block they are as they were."""
        try:
            yield
        finally:
            self.restore()


def pretrained_weights(case: Case) -> tuple[Mapping[str, torch.Tensor] | None, str]:
    """Those of the case, if it has any, and if they are not installed, what to install."""
    try:
        return (None if case.pretrained is None else case.pretrained()), ""
    except ImportError as error:
        return None, str(error)


def build_references(
    case: Case, seed: int, weights: Mapping[str, torch.Tensor] | None = None
) -> dict[str, torch.nn.Module]:
    """Every variant of the reference in float32 with the judge's weights: the given ones, or random ones.

    A parameter or running statistic whose elements are all equal, as initialisation leaves it, would hide that it is
    lost, swapped or transposed; it is moved by up to a quarter, seeded.

    Raises:
      CaseError: where a variant is no module, needs a library that is not installed, or does not take the judge's
        `state_dict`.
    """
    built: dict[str, torch.nn.Module] = {}
    with torch.random.fork_rng(devices=[]):
        for name, make in case.references.items():
            torch.manual_seed(seed)
            try:
                with functional_dropout_as_it_was():
                    module = make()
            except ImportError as error:  # of a library that only this case needs: other cases go on
                raise CaseError(f"case {case.name!r}: reference {name!r} cannot be built: {error}") from error
            except Exception as error:
                raise CaseError(
                    f"case {case.name!r}: building the reference {name!r} fails: {describe_with_line(error)}; it is "
                    "called as reference(), and gives a torch.nn.Module"
                ) from error
            if not isinstance(module, torch.nn.Module):
                raise CaseError(
                    f"case {case.name!r}: reference {name!r} gives {what_came(module)}, and a torch.nn.Module was "
                    "wanted; wrap a function in a module whose forward calls it"
                )
            built[name] = cast_module(module, "float32", "cpu")
    judge_name, judge = next(iter(built.items()))
    if weights is not None:
        try:
            judge.load_state_dict(weights, strict=True)
        except RuntimeError as error:
            raise CaseError(
                f"case {case.name!r}: the reference {judge_name!r} does not take what pretrained gives: {error}"
            ) from error
    _perturb(judge, case.weights, seed)
    for name, module in built.items():
        if name != judge_name:
            try:
                module.load_state_dict(judge.state_dict(), strict=True)
            except RuntimeError as error:
                raise CaseError(
                    f"case {case.name!r}: the reference's variant {name!r} does not take the state_dict of "
                    f"{judge_name!r}: {error}"
                ) from error
    return built


class TorchSide:
    """One variant of the reference in one dtype on one device.

    Args:
      module: in float32; a copy is made and cast.
      case: for its loss.
      dtype: `"float64"`, or one of `RUN_DTYPES`.
      device: a torch device, `"cpu"` or `"cuda"`.

    Attributes:
      asked: the names of the narrower dtypes that the module was seen to ask for in a run in float64. For float32 it
        got float64.
      is_coarse: whether it was seen to call a function there that has no more digits than in float32.
    """

    def __init__(self, module: torch.nn.Module, case: Case, *, dtype: str, device: str):
        self.case = case
        self.dtype, self.dtype_name = torch_dtype(dtype), dtype
        self.device = device
        self.memory_format: torch.memory_format | None = None  # of the rank-4 inputs that are placed
        self._start: Snapshot | None = None
        self.module = cast_module(copied(module), dtype, device)
        self.asked: set[str] = set()
        self.is_coarse = False
        self._kept = KeptResults(self.module.modules())
        let_ask_for_gradients(self.module)
        if dtype == "float64":
            widen(self.module, self.note_asked, self.note_coarse)
        self.parameters = {k: p for k, p in self.module.named_parameters(remove_duplicate=False) if p.requires_grad}
        self._persistent = self._named_buffers()

    def _named_buffers(self) -> dict[str, torch.Tensor]:
        persistent = self.module.state_dict(keep_vars=True)
        return {k: v for k, v in persistent.items() if not isinstance(v, torch.nn.Parameter)}

    @property
    def buffers(self) -> dict[str, np.ndarray]:
        """What persistent buffers hold now, by name: forward may have put other tensors in their places."""
        now = self._named_buffers()
        return {k: v.copy() for k, v in to_arrays({k: now.get(k, v) for k, v in self._persistent.items()}).items()}

    def set_mode(self, mode: Mode) -> torch.nn.Module:
        """Evaluation mode for inference; training mode otherwise, dropout being off in both."""
        if mode == "train_step" and self._start is None:
            self._start = Snapshot([*self.module.parameters(), *self.module.buffers()], self.module.modules())
        note_mode(mode)
        self._kept.forget(self.dtype_name)
        self.module.train(mode != "inference")
        for child in self.module.modules():
            is_scripted = isinstance(child, torch.jit.ScriptModule) and "Dropout" in child.original_name
            if is_scripted or isinstance(child, torch.nn.modules.dropout._DropoutNd):
                child.eval()
            if isinstance(child, torch.nn.RNNBase):
                child.dropout = 0.0  # of this side's copy
        return self.module

    def place(self, inputs: Inputs, mode: Mode, cotangents: Mapping[str, np.ndarray] | None = None) -> TorchBatch:
        """Numpy inputs as tensors on the device, floating ones in this side's dtype."""
        leaves: dict[str, torch.Tensor] = {}

        def convert(path: Any, value: Any) -> Any:
            if not isinstance(value, np.ndarray | np.generic):
                return value
            tensor = torch.from_numpy(np.array(value)).to(self.device)
            if tensor.is_floating_point():
                tensor = tensor.to(self.dtype)
                if self.memory_format is not None and tensor.ndim == 4:
                    tensor = tensor.to(memory_format=self.memory_format)
                if mode == "forward_backward":
                    leaves[input_name(path)] = tensor.requires_grad_()
            elif tensor.is_complex():
                tensor = tensor.to(torch.promote_types(self.dtype, torch.complex64))
            return tensor

        placed = jtu.tree_map_with_path(convert, inputs)
        args, kwargs = ((), placed) if isinstance(placed, dict) else (tuple(placed), {})
        heads = None
        if cotangents is not None:
            heads = {k: torch.from_numpy(np.array(v)).to(self.device, self.dtype) for k, v in cotangents.items()}
        return TorchBatch(args, kwargs, leaves, heads)

    def run(self, inputs: Inputs, mode: Mode, cotangents: Mapping[str, np.ndarray] | None = None) -> Observation:
        """One eager run, or `TRAIN_STEPS` steps of training, from the same parameters and buffers each time.

        Raises:
          CaseError: where nothing can be trained, or the case's optimizer is none.
        """
        module = self.set_mode(mode)
        batch = self.place(inputs, mode, cotangents)
        if mode == "train_step":
            with self.start.restored():
                optimizer = self.new_optimizer()
                for _ in range(TRAIN_STEPS):
                    outputs = train_step(module, optimizer, batch, self.loss)
                return self.observe_steps(outputs)
        with Snapshot.of_buffers(module).restored():
            if mode == "inference":
                with torch.no_grad():
                    return self.observe(module(*batch.args, **batch.kwargs))
            parameters = list(self.parameters.values())
            outputs, gradients = forward_backward(module, parameters, batch, self.loss, gradients_of)
            return self.observe(outputs, gradients, batch)

    def outputs(self, inputs: Inputs, mode: Mode) -> dict[str, np.ndarray]:
        """What one forward pass gives in this mode."""
        module, batch = self.set_mode(mode), self.place(inputs, mode)
        with Snapshot.of_buffers(module).restored(), torch.no_grad():
            return self.observe(module(*batch.args, **batch.kwargs)).outputs

    def without_gradient(self, inputs: Inputs, cotangents: Mapping[str, np.ndarray] | None = None) -> set[str]:
        """The names of the parameters that have none in training, which is another thing than zero to an optimizer."""
        module, batch = self.set_mode("train_step"), self.place(inputs, "train_step", cotangents)
        with Snapshot.of_buffers(module).restored():
            _, gradients = forward_backward(module, list(self.parameters.values()), batch, self.loss, gradients_of)
        return {name for name, gradient in zip(self.parameters, gradients, strict=False) if gradient is None}

    def called_after(
        self,
        earlier: Sequence[tuple[Mode, Inputs]],
        inputs: Inputs,
        mode: Mode,
        cotangents: Mapping[str, np.ndarray] | None = None,
        *,
        with_gradients: bool = False,
    ) -> tuple[Observation, list[str]]:
        """What a call gives on the buffers that earlier ones left, gradients where they are asked for, and the names of
        the buffers that those wrote."""
        with Snapshot.of_buffers(self.module).restored():
            wrote = self.call_each(earlier)
            module, batch = self.set_mode(mode), self.place(inputs, mode, cotangents)
            if with_gradients:
                parameters = list(self.parameters.values())
                outputs, gradients = forward_backward(module, parameters, batch, self.loss, gradients_of)
                seen = self.observe(outputs, gradients, batch)
            else:
                with torch.no_grad():
                    seen = self.observe(module(*batch.args, **batch.kwargs))
            return dataclasses.replace(seen, buffers=self.buffers), wrote

    def call_each(self, earlier: Sequence[tuple[Mode, Inputs]]) -> list[str]:
        """Calls it one time after the other; the names of the buffers that are others afterwards."""
        before = self.buffers
        for _ in self.each_call(earlier):
            pass
        return changed(before, self.buffers)

    def each_call(self, asked: Iterable[tuple[Mode, Inputs]]) -> Iterator[Observation]:
        """What it gives in each of several calls, without gradients, and its buffers, which stay as the last leaves
        them."""
        for mode, inputs in asked:
            batch = self.place(inputs, mode)
            with torch.no_grad():
                seen = self.observe(self.set_mode(mode)(*batch.args, **batch.kwargs))
            yield dataclasses.replace(seen, buffers=self.buffers)

    def as_it_was(self) -> contextlib.AbstractContextManager[None]:
        """Whatever its calls write inside, after this block its buffers are as they were."""
        return Snapshot.of_buffers(self.module).restored()

    def run_recorded(
        self, inputs: Inputs, mode: Mode, cotangents: Mapping[str, np.ndarray] | None = None
    ) -> Observation:
        """`run` for a look inside: in inference with gradients on, which keeps PyTorch off the fused paths that call no
        modules."""
        if mode != "inference":
            return self.run(inputs, mode, cotangents)
        module = self.set_mode(mode)
        batch = self.place(inputs, mode)
        with Snapshot.of_buffers(module).restored(), torch.enable_grad():
            return self.observe(module(*batch.args, **batch.kwargs))

    @property
    def loss(self) -> Any:
        if self.case.loss is None or self.dtype_name != "float64":
            return self.case.loss[0] if self.case.loss else None
        return self._loss_in_float64

    def _loss_in_float64(self, outputs: Any) -> torch.Tensor:
        assert self.case.loss is not None
        with in_float64(self.note_asked):
            return self.case.loss[0](outputs)

    def note_coarse(self) -> None:
        """Notes that a function was called that has float32's digits in float64."""
        self.is_coarse = True

    def note_asked(self, dtype: torch.dtype) -> None:
        """Notes that a dtype was asked for."""
        self.asked.add(str(dtype).removeprefix("torch."))

    @property
    def start(self) -> Snapshot:
        """Parameters and buffers when the mode was first set to train_step."""
        assert self._start is not None, "set_mode comes first"
        return self._start

    def new_optimizer(self) -> torch.optim.Optimizer:
        """The case's, in its first state, on the parameters that learn.

        Raises:
          CaseError: where there is nothing to train, or the case gives something else.
        """
        trained = [p for p in self.module.parameters() if p.requires_grad]
        if not trained:
            raise CaseError(
                f"case {self.case.name!r}: train_step needs parameters that learn, and the reference has none; leave "
                "train_step out of modes"
            )
        assert self.case.optimizer is not None  # the case saw to that
        optimizer = self.case.optimizer[0](trained)
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise CaseError(
                f"case {self.case.name!r}: optimizer[0] gives {type(optimizer).__name__}, and a torch.optim.Optimizer "
                "was wanted"
            )
        return optimizer

    def move_parameters(self, amount: float, seed: int) -> None:
        """Moves each number by up to twice this fraction of it, and so, in the last digit, up, down or not at all."""
        generator = torch.Generator(self.device).manual_seed(seed)
        with torch.no_grad():
            for p in self.module.parameters():
                noise = torch.rand(p.shape, generator=generator, dtype=p.dtype, device=p.device) - 0.5
                p.add_(p * noise * 4 * amount)

    def observe_steps(self, outputs: Any) -> Observation:
        """Names what steps of training left in the module; `outputs` are those of the last one."""
        before = {id(tensor): value for tensor, value in self.start.pairs}
        moved = {name: _wide(p.detach()) - _wide(before[id(p)]) for name, p in self.parameters.items()}
        return dataclasses.replace(
            self.observe(outputs),
            parameters=to_arrays(moved),
            buffers=self.buffers,
        )

    def observe(
        self,
        outputs: Any,
        gradients: Sequence[torch.Tensor | None] | None = None,
        batch: TorchBatch | None = None,
    ) -> Observation:
        """Names what a run gave; an absent gradient is zero."""
        named, aliases = to_arrays(named_leaves(outputs)), tuple(named_leaves(outputs, fields=False))
        if gradients is None or batch is None:
            return Observation(outputs=named, aliases=aliases)
        count = len(self.parameters)
        return Observation(
            outputs=named,
            aliases=aliases,
            parameter_gradients=_named_gradients(self.parameters, gradients[:count]),
            input_gradients=_named_gradients(batch.leaves, gradients[count:]),
            buffers=self.buffers,
        )


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def forward_backward(
    module: Any,
    parameters: Sequence[torch.Tensor],
    batch: TorchBatch,
    loss: Any,
    take: Callable[..., Any] = torch.autograd.grad,
) -> tuple[Any, Any]:
    """Outputs, and gradients by parameters and floating inputs, in that order, which `take` gives."""
    outputs = module(*batch.args, **batch.kwargs)
    heads, starts = _heads(outputs, batch, loss)
    wanted = [*parameters, *batch.leaves.values()]
    if not heads or not wanted:
        return outputs, [None] * len(wanted)
    return outputs, take(heads, wanted, starts, allow_unused=True)


def train_step(
    module: Any, optimizer: torch.optim.Optimizer, batch: TorchBatch, loss: Any, update: Callable[[], Any] | None = None
) -> Any:
    """Forward, backward and update, as a training loop has them; gives the outputs. `update` is called in place of
    `optimizer.step`, where it is given.

    Raises:
      CaseError: where no output depends on a parameter.
    """
    optimizer.zero_grad(set_to_none=True)
    outputs = module(*batch.args, **batch.kwargs)
    heads, starts = _heads(outputs, batch, loss)
    if not heads:
        raise CaseError(
            "train_step needs a floating output that depends on a parameter, and there is none; leave train_step out "
            "of modes"
        )
    torch.autograd.backward(heads, starts)
    (update or optimizer.step)()
    return outputs


def _heads(outputs: Any, batch: TorchBatch, loss: Any) -> tuple[list[torch.Tensor], list[torch.Tensor | None]]:
    """What the backward pass starts at, and with: the loss, or each output that has a gradient."""
    if loss is not None:
        value = scalar_loss(loss(outputs), "torch")
        return ([value], [None]) if value.requires_grad else ([], [])
    leaves = named_leaves(outputs)
    live = [name for name, leaf in leaves.items() if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    live = [name for name in live if is_floating(leaves[name])]
    return [leaves[name] for name in live], [batch.cotangents[name] for name in live]  # type: ignore[index]


def _named_gradients(
    wanted: Mapping[str, torch.Tensor], gradients: Sequence[torch.Tensor | None]
) -> dict[str, np.ndarray]:
    pairs = zip(wanted.items(), gradients, strict=True)
    return to_arrays({name: torch.zeros_like(tensor) if g is None else g for (name, tensor), g in pairs})


def _perturb(module: torch.nn.Module, rules: Sequence[WeightRule], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    kept = [rule for rule in rules if isinstance(rule, Drop)]
    statistics = {
        f"{path}.{name}" if path else name
        for path, child in module.named_modules()
        if isinstance(child, _NORMS)
        for name in ("running_mean", "running_var")
    }
    with torch.no_grad():
        for name, value in module.state_dict(keep_vars=True).items():
            eligible = isinstance(value, torch.nn.Parameter) or name in statistics
            if not eligible or not value.is_floating_point() or value.numel() < 2 or any(r.matches(name) for r in kept):
                continue
            if torch.all(value == value.flatten()[0]):
                noise = torch.rand(value.shape, generator=generator) - 0.5
                value.copy_(value * (1 + noise / 2) + (value == 0) * noise / 2)
