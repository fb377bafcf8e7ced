"""What `test_checkpoints_killed.py` runs, kills and runs again: a training that logs every step, bit by bit."""

import hashlib
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import graphmode as gm


class Model(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.first = gm.nn.Linear(8, 32, rngs=rngs)
        self.norm = gm.nn.BatchNorm1d(32)
        self.dropout = gm.nn.Dropout(0.3, rngs=rngs)
        self.second = gm.nn.Linear(32, 1, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.second(self.dropout(jax.nn.relu(self.norm(self.first(x)))))


class Shuffled:
    """64 rows in another order in each epoch, 16 at a time."""

    def __init__(self, epoch: int, batch: int):
        self.epoch, self.batch = epoch, batch
        self.x = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)

    def next(self) -> dict[str, np.ndarray]:
        order = np.random.default_rng([1, self.epoch]).permutation(64)
        x = self.x[order[16 * self.batch : 16 * (self.batch + 1)]]
        self.epoch, self.batch = (self.epoch, self.batch + 1) if self.batch < 3 else (self.epoch + 1, 0)
        return {"x": x, "y": np.sin(x.sum(1, keepdims=True))}


def make_step() -> gm.training.TrainStep:
    def loss(model, batch):
        return jnp.mean((model(batch["x"]) - batch["y"]) ** 2)

    return gm.train_step(Model(nnx.Rngs(0)), loss, gm.optim.adam(lr=1e-2))


def hashed(state: gm.training.TrainState) -> str:
    """Of all bits of the state."""
    found = hashlib.sha256()
    for leaf in jax.tree.leaves(state):
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        found.update(np.asarray(jax.random.key_data(leaf) if is_key else leaf).tobytes())
    return found.hexdigest()


def train(folder: str, steps: int, every: int) -> None:
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_disable_most_optimizations", True)
    jax.config.update("jax_compilation_cache_dir", str(Path(folder).parent / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    step = make_step()
    log = os.open(Path(folder) / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with gm.training.Checkpoints(Path(folder) / "checkpoints", every=every, keep=2) as checkpoints:
        state, data = checkpoints.restore(step) or (step.init(), {"epoch": 0, "batch": 0})
        source = Shuffled(**data)
        while int(state.step) < steps:
            state, metrics = step(state, source.next())
            bits = np.asarray(metrics["loss"]).tobytes().hex()
            os.write(log, f"{int(state.step)} {bits} {hashed(state)}\n".encode())
            os.fsync(log)
            checkpoints.save(state, data={"epoch": source.epoch, "batch": source.batch}, step=int(state.step))


def fit(folder: str, steps: int, every: int) -> None:
    """The same by `gm.training.fit`, which places, reads ahead and saves by itself."""
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_disable_most_optimizations", True)
    log = os.open(Path(folder) / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def told(number: int, metrics: dict[str, jax.Array]) -> None:
        os.write(log, f"{number} {np.asarray(metrics['loss']).tobytes().hex()}\n".encode())
        os.fsync(log)

    x = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)
    with gm.training.Checkpoints(Path(folder) / "checkpoints", every=every, keep=2) as checkpoints:
        run = gm.training.fit(
            make_step(),
            gm.training.from_arrays({"x": x, "y": np.sin(x.sum(1, keepdims=True))}, batch_size=16, seed=1),
            steps=steps,
            checkpoints=checkpoints,
            progress=False,
            on_step=told,
        )
    (Path(folder) / "last").write_text(hashed(run.state))


if __name__ == "<run_path>":
    {"train": train, "fit": fit}[arguments.pop("by")](**arguments)  # type: ignore[name-defined]  # noqa: F821  runpy's
