"""Each layer of `graphmode.nn` beside PyTorch's of the same name: `python benchmarks/layers.py FOLDER [NAME ...]`.

Forward alone, and forward with the gradients of inputs and parameters, in float32 at three sizes. Ours under `jax.jit`
on channels-last images; PyTorch eager, eager in its channels-last memory format, and by `torch.compile`, of which the
fastest counts. All in one process, interleaved; nothing is timed whose outputs differ. Leaves `layers.json` and
`layers.md` in FOLDER.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
import typer
from flax import nnx
from graphmode.compare.report.json_form import to_json
from graphmode.compare.report.records import Environment
from graphmode.compare.report.wording import duration, number
from graphmode.compare.speed.environment import describe
from graphmode.compare.speed.waiting import wait_for

import graphmode as gm
from graphmode.weights import load

sys.path[:0] = [str(Path(__file__).parent)]
from beside import INPUT_SETS, Measured, kept, place, prepared, time_forms, told  # noqa: E402
from layer_entries import ENTRIES, SIZES, Entry  # noqa: E402

MODES = ("forward", "forward and backward")
PYTORCH = ("eager", "channels_last", "compile")
RTOL = 2e-4


def measure(entry: Entry, size: str, mode: str, device: str, budget_s: float, *, compiles: bool) -> Measured:
    """Times the forms of a layer whose outputs agree; says why where they do not, or where one fails."""
    measured = Measured(f"{entry.name}, {mode}", size)
    try:
        _measure(entry, size, mode, device, budget_s, compiles, measured)
    except Exception as error:  # of one layer, which is not to cost the others
        measured.reason = f"{type(error).__name__}: {error}"
    return measured


def _measure(entry, size, mode, device, budget_s, compiles, measured: Measured) -> None:
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    cuda = device == "gpu"
    original = getattr(torch.nn, entry.cls)(*entry.args, **entry.kwargs).to("cuda" if cuda else "cpu")
    layer = build(entry)
    load(layer, original.state_dict())
    sets = [entry.inputs(rng, size) for _ in range(INPUT_SETS)]
    ours = [tuple(jax.device_put(to_ours(entry, a)) for a in arrays) for arrays in sets]
    run = _ours(layer, mode, entry.targets)
    backward = mode != "forward"
    wait, ready = wait_for("torch", device), wait_for("jax", device)
    forms: dict[str, Callable[[int], Any]] = {"graphmode": lambda i: ready(run(*ours[i]))}
    outputs = {}
    for form in PYTORCH:
        if (form == "channels_last" and entry.image not in (2, 3)) or (form == "compile" and not compiles):
            continue
        module = original
        tensors = [_tensors(arrays, cuda) for arrays in sets]
        if form == "channels_last":
            rank = entry.image + 2
            memory = torch.channels_last if rank == 4 else torch.channels_last_3d
            module = getattr(torch.nn, entry.cls)(*entry.args, **entry.kwargs).to("cuda" if cuda else "cpu")
            module.load_state_dict(original.state_dict())
            module = module.to(memory_format=memory)
            tensors = [
                tuple(t.to(memory_format=memory) if t.ndim == entry.image + 2 else t for t in s) for s in tensors
            ]
        if form == "compile":
            torch._dynamo.reset()
            module = torch.compile(module)
        call = _theirs(module, backward, entry.targets)
        outputs[form] = call(*tensors[0])
        forms[form] = lambda i, call=call, tensors=tensors: wait(call(*tensors[i]))
    mine = first_array(_ours(layer, "forward")(*ours[0]))
    theirs = first_tensor(original(*_tensors(sets[0], cuda))).detach().cpu().numpy()
    mine = np.moveaxis(mine, -1, -entry.image - 1) if entry.image and mine.ndim > entry.image else mine
    scale = max(float(np.abs(theirs).max(initial=0)), 1e-6)
    if mine.shape != theirs.shape or np.abs(mine - theirs).max(initial=0) > RTOL * scale:
        measured.reason = f"not timed, since the outputs differ: shapes {mine.shape} and {theirs.shape}"
        return
    time_forms(forms, measured, budget_s=budget_s)


def build(entry: Entry) -> nnx.Module:
    kwargs = {**entry.kwargs, **entry.ours}
    cls = getattr(gm.nn, entry.cls)
    if "rngs" in inspect.signature(cls.__init__).parameters:
        kwargs["rngs"] = nnx.Rngs(0)
    return cls(*entry.args, **kwargs)


def _ours(layer: nnx.Module, mode: str, targets: int = 0) -> Callable[..., Any]:
    """A call takes and gives flat lists of arrays, as `gm.graphed` does: trees would be taken apart in Python."""
    graphdef, parameters, rest = nnx.split(layer, nnx.Param, ...)
    (trained, held), trees = zip(*map(jax.tree.flatten, (parameters, rest)), strict=True)

    def forward(trained, held, *arrays):
        module = nnx.merge(graphdef, *map(jax.tree.unflatten, trees, (trained, held)), copy=True)
        return module(*arrays), jax.tree.leaves(nnx.state(module, nnx.Not(nnx.Param)))

    if mode == "forward":
        compiled = jax.jit(forward)
        return lambda *arrays: compiled(trained, held, *arrays)

    @jax.jit
    def step(trained, held, *arrays):
        inputs = arrays[: len(arrays) - targets]
        moving = [i for i, a in enumerate(inputs) if jnp.issubdtype(a.dtype, jnp.floating)]

        def total(trained, floating):
            given = list(arrays)
            for i, value in zip(moving, floating, strict=True):
                given[i] = value
            output, after = forward(trained, held, *given)
            return sum(jnp.sum(o * o) for o in jax.tree.leaves(output) if jnp.issubdtype(o.dtype, jnp.floating)), after

        return jax.value_and_grad(total, (0, 1), has_aux=True)(trained, [arrays[i] for i in moving])

    return lambda *arrays: step(trained, held, *arrays)


def _theirs(module: torch.nn.Module, backward: bool, targets: int) -> Callable[..., Any]:
    if not backward:

        @torch.no_grad()
        def forward(*tensors):
            return module(*tensors)

        return forward

    def step(*tensors):
        inputs = len(tensors) - targets
        moving = [
            t.detach().requires_grad_() if i < inputs and t.is_floating_point() else t for i, t in enumerate(tensors)
        ]
        output = module(*moving)
        leaves = output if isinstance(output, tuple) else (output,)
        flat = [o for leaf in leaves for o in (leaf if isinstance(leaf, tuple) else (leaf,))]
        total = sum((o * o).sum() for o in flat if o is not None and o.is_floating_point())
        return torch.autograd.grad(total, [t for t in moving if t.requires_grad] + list(module.parameters()))

    return step


def to_ours(entry: Entry, array: np.ndarray) -> np.ndarray:
    moves = entry.image and array.ndim == entry.image + 2
    array = np.ascontiguousarray(np.moveaxis(array, 1, -1)) if moves else array
    return array.astype(np.int32) if array.dtype == np.int64 else array


def _tensors(arrays: Sequence[np.ndarray], cuda: bool) -> tuple[torch.Tensor, ...]:
    # In PyTorch's own memory, as ours are in JAX's: numpy's has large pages.
    return tuple(torch.from_numpy(a).to("cuda" if cuda else "cpu", copy=True) for a in arrays)


def first_array(tree: Any) -> np.ndarray:
    return np.asarray(jax.tree.leaves(tree[0])[0])


def first_tensor(tree: Any) -> torch.Tensor:
    return first_tensor(tree[0]) if isinstance(tree, tuple) else tree


def table(measured: Sequence[Measured], where: str) -> str:
    """Markdown: the geometric mean, and every layer with its ratio to PyTorch's fastest form."""
    compiled = [size for size in SIZES if any(m.size == size and "compile" in m.samples_s for m in measured)]
    lines = ["# Layers beside PyTorch's", "", f"Measured on {where}. Below 1, graphmode is faster."]
    sizes = ", ".join(compiled) or "no"
    lines += [f"PyTorch eager, channels last where there are images, and torch.compile at {sizes} size."]
    for size in SIZES:
        there = {(m.revision, m.budget_s) for m in measured if m.size == size and m.revision and m.budget_s}
        lines += [f"Of {size} size for {s:g} s a form, at revision {r}." for r, s in sorted(there)]
    lines += [""]
    for mode in MODES:
        for size in SIZES:
            found = [_best(m) for m in measured if m.size == size and m.name.endswith(f", {mode}")]
            ratios = [r[0] for r in found if r is not None]
            if ratios:
                mean = number(float(np.exp(np.mean(np.log(ratios)))))
                over = sum(r > 1.5 for r in ratios)
                lines.append(f"- {mode}, {size}: geometric mean {mean} over {len(ratios)} layers, {over} above 1.5")
    header = ("layer", "size", "graphmode", *PYTORCH, "fastest", "/ fastest")
    lines += ["", f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    for one in measured:
        times = [duration(s) if (s := one.median(form)) is not None else "-" for form in ("graphmode", *PYTORCH)]
        lines.append(
            f"| {one.name} | {one.size} | {' | '.join([*times, one.fastest(PYTORCH) or '-', told(_best(one))])} |"
        )
        if one.reason:
            lines.append(f"| | | {one.reason.replace(chr(10), ' ')[:300]}" + " |" * (len(header) - 2))
    return "\n".join(lines) + "\n"


def _best(measured: Measured):
    fastest = measured.fastest(PYTORCH)
    return None if fastest is None else measured.ratio(fastest)


def main(
    folder: Annotated[Path, typer.Argument(help="Where layers.json and layers.md go.")],
    names: Annotated[list[str] | None, typer.Argument(help="Layers whose names begin so; all of them if none.")] = None,
    size: Annotated[list[str] | None, typer.Option(help=f"Only these of {', '.join(SIZES)}.")] = None,
    seconds: Annotated[float, typer.Option(help="Of timed calls, for each form.")] = 0.3,
    device: Annotated[str, typer.Option(help="auto, cpu or gpu.")] = "auto",
    compiles: Annotated[bool, typer.Option("--compile/--no-compile", help="Whether torch.compile is a form.")] = True,
    compile_at: Annotated[list[str] | None, typer.Option(help="The sizes at which it is; all of them if none.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep what FOLDER has of other layers and sizes.")] = False,
) -> None:
    """Times every layer and writes the table."""
    chosen = prepared(folder, device)
    for one in (*(size or ()), *(compile_at or ())):
        if one not in SIZES:
            raise typer.BadParameter(f"there is no size {one!r}; choose {', '.join(SIZES)}")
    entries = [e for e in ENTRIES if not names or any(e.name.startswith(name) for name in names)]
    if not entries:
        raise typer.BadParameter(f"no layer is called {names}; there are {', '.join(e.name for e in ENTRIES)}")
    measured: list[Measured] = []
    environment = describe(chosen)
    before = kept(folder / "layers.json", "layers") if keep else []
    with jax.default_device(jax.devices(chosen)[0]):
        for entry in entries:
            for one in size or SIZES:
                for mode in MODES if entry.backward else MODES[:1]:
                    compiled = compiles and one in (compile_at or SIZES)
                    measured.append(measure(entry, one, mode, chosen, seconds, compiles=compiled))
                    last = measured[-1]
                    print(
                        f"{last.name} {one}: {told(_best(last))} of {last.fastest(PYTORCH)} {last.reason}", flush=True
                    )
            _save(folder, _in_order(before, measured), environment)
            jax.clear_caches()


def _in_order(before: Sequence[Measured], measured: Sequence[Measured]) -> list[Measured]:
    """Each cell once, the newest of it, layer by layer as `ENTRIES` has them."""
    order = {f"{e.name}, {mode}": (i, j) for i, e in enumerate(ENTRIES) for j, mode in enumerate(MODES)}
    cells = {(m.name, m.size): m for m in (*before, *measured) if m.name in order}
    return sorted(cells.values(), key=lambda m: (order[m.name][0], SIZES.index(str(m.size)), order[m.name][1]))


def _save(folder: Path, measured: Sequence[Measured], environment: Environment) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "layers.json").write_bytes(to_json({"environment": environment, "layers": measured}, indent=1))
    (folder / "layers.md").write_text(table(measured, place(environment)))


if __name__ == "__main__":
    typer.run(main)
