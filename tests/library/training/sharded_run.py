"""Trains one small network on simulated devices, in a process of its own; prints what it saw as JSON.

sharded_run.py devices                     eight devices of one process
sharded_run.py process INDEX COUNT PORT    four devices of each of COUNT processes
"""

from __future__ import annotations

import json
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.experimental import multihost_utils

import graphmode as gm
from graphmode.training import checksums, data_parallel, fully_sharded

STEPS = 100


class Net(nnx.Module):
    def __init__(self, dropout: float) -> None:
        rngs = nnx.Rngs(0)
        self.conv = gm.nn.Conv2d(2, 16, 3, padding=1, bias=False, rngs=rngs)
        self.norm = gm.nn.BatchNorm2d(16)
        self.dropout = gm.nn.Dropout(dropout, rngs=rngs)
        self.hidden = gm.nn.Linear(16, 64, rngs=rngs)
        self.head = gm.nn.Linear(64, 5, rngs=rngs)

    def __call__(self, image: jax.Array) -> jax.Array:
        x = jnp.tanh(self.norm(self.conv(image))).mean((1, 2))
        return self.head(self.dropout(jnp.tanh(self.hidden(x))))


def cross_entropy(model: Net, batch: Any) -> jax.Array:
    return gm.nn.functional.cross_entropy(model(batch["image"]), batch["label"])


def batches(count: int, rows: int = 16) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    images = rng.standard_normal((count, rows, 4, 4, 2)).astype(np.float32)
    labels = np.digitize(images.mean((2, 3, 4)), [-0.15, -0.05, 0.05, 0.15])
    return [{"image": image, "label": label} for image, label in zip(images, labels, strict=True)]


def trained(placement: Any, *, dropout: float = 0.0, **options: Any) -> tuple[Any, Any, list[float]]:
    step = gm.train_step(
        Net(dropout), cross_entropy, gm.optim.adamw(lr=1e-2), placement=placement, clip_norm=1.0, **options
    )
    state, losses = step.init(), []
    part, parts = jax.process_index(), jax.process_count()
    for batch in batches(STEPS):
        own = jax.tree.map(lambda x: x[part * len(x) // parts : (part + 1) * len(x) // parts], batch)
        state, metrics = step(state, own if placement is None or parts == 1 else step.place(own))
        losses.append(float(metrics["loss"]))  # waits: of several launches under way, few cores serve none to its end
    return step, state, losses


def bytes_of(state: Any) -> list[int]:
    """On each device, parameters, buffers and optimizer; whole last."""
    found = [0] * jax.device_count()
    places = {device: index for index, device in enumerate(jax.devices())}
    arrays = [x for x in jax.tree.leaves(state) if not jnp.issubdtype(x.dtype, jax.dtypes.prng_key)]
    for array in arrays:
        for shard in array.addressable_shards:
            found[places[shard.device]] += shard.data.nbytes
    return [*found, sum(x.nbytes for x in arrays)]


def refusal(call: Any) -> str:
    try:
        call()
    except (TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was raised"


def on_devices() -> dict[str, Any]:
    found: dict[str, Any] = {"devices": jax.device_count(), "losses": {}, "bytes": {}, "arguments": {}, "specs": {}}
    axes = jax.make_mesh((4, 2), ("rows", "more"))  # the axes' type is explicit by default
    cases: dict[str, tuple[Any, dict[str, Any]]] = {}
    for name, options in {"plain": {}, "dropout": {"dropout": 0.3}, "accumulate": {"accumulate": 2}}.items():
        cases[f"single {name}"] = (None, options)
        cases[f"data {name}"] = (data_parallel(), options)
        cases[f"full {name}"] = (fully_sharded(), options)
    cases["mesh of two axes plain"] = (fully_sharded(axes, axis="rows"), {})
    cases["least plain"] = (fully_sharded(least=100), {})
    for name, (placement, options) in cases.items():
        step, state, found["losses"][name] = trained(placement, **options)
        if name in ("single plain", "data plain", "full plain", "least plain"):
            found["bytes"][name] = bytes_of(state)
            found["specs"][name] = {
                jax.tree_util.keystr(path, simple=True, separator="."): str(getattr(leaf.sharding, "spec", None))
                for path, leaf in jax.tree_util.tree_leaves_with_path((state.params, state.optimizer))
            }
            batch = batches(1)[0]
            lowered = step.lower(state, batch if placement is None else step.place(batch)).compile()
            found["arguments"][name] = lowered.memory_analysis().argument_size_in_bytes
            found["traces " + name] = step.traces
    step = gm.train_step(Net(0.0), cross_entropy, gm.optim.sgd(), placement=data_parallel())
    state = step.init()
    on_one = jax.tree.map(jnp.asarray, batches(1)[0])
    found["holds"] = [step.placement.holds(on_one), step.placement.holds(step.place(on_one))]
    state, _ = step(state, on_one)
    found["refusals"] = {
        "rows": refusal(lambda: step(state, batches(1, rows=12)[0])),
        "string": refusal(lambda: step(state, {"image": "a"})),
        "scalar": refusal(lambda: step(state, {"image": np.float32(1)})),
        "state": refusal(
            lambda: step(gm.train_step(Net(0.0), cross_entropy, gm.optim.sgd()).init(), batches(1, rows=24)[0])
        ),
        "axis": refusal(lambda: data_parallel(axes, axis="data")),
        "parts": refusal(
            lambda: (lambda s: s(s.init(), batches(1, rows=24)[0]))(
                gm.train_step(Net(0.0), cross_entropy, gm.optim.sgd(), placement=data_parallel(), accumulate=2)
            )
        ),
    }
    state, _ = step(state, on_one)
    found["step"] = int(state.step)
    return found


def on_processes(index: int, count: int, port: str) -> dict[str, Any]:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{port}", num_processes=count, process_id=index)
    found: dict[str, Any] = {"devices": jax.device_count(), "local": jax.local_device_count(), "losses": {}}
    for name, placement in {"data": data_parallel(), "full": fully_sharded()}.items():
        step, state, found["losses"][name] = trained(placement)
        found[f"step {name}"] = int(state.step)
        found[f"bytes {name}"] = bytes_of(state)
        found[f"checksums {name}"] = checksums.checksums(state)
        whole = multihost_utils.process_allgather(state.params, tiled=True)
        found[f"whole {name}"] = checksums.checksums({"params": whole})
    found["refusal"] = refusal(lambda: step.place(batches(1, rows=6)[0]))
    return found


if __name__ == "__main__":
    print(json.dumps(on_devices() if sys.argv[1] == "devices" else on_processes(*map(int, sys.argv[2:4]), sys.argv[4])))
