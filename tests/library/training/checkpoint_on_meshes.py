"""What `test_checkpoints_elsewhere.py` runs on eight devices: each placement's checkpoint restored on each other."""

import itertools
import sys
from pathlib import Path

import jax
import numpy as np
from checkpoint_cases import bits, make, run

import graphmode as gm
from graphmode.training import checksums


def mesh(devices: list[jax.Device]) -> jax.sharding.Mesh:
    return jax.make_mesh((len(devices),), ("data",), devices=devices, axis_types=(jax.sharding.AxisType.Auto,))


PLACEMENTS = {
    "one device": lambda: None,
    "mesh of one": lambda: gm.training.data_parallel(mesh(jax.devices()[3:4])),
    "data parallel": gm.training.data_parallel,
    "fully sharded": gm.training.fully_sharded,
    "half of them": lambda: gm.training.fully_sharded(mesh(jax.devices()[4:])),
}


def main(folder: Path) -> None:
    jax.config.update("jax_disable_most_optimizations", True)
    steps = {name: make(placement=placement()) for name, placement in PLACEMENTS.items()}
    saved, begun, gone_on = {}, {}, {}
    for name, step in steps.items():
        begun[name] = step.init()
        state, _ = run(step, step.init(), range(2))
        saved[name] = bits(state)
        for leaf in jax.tree.leaves(state.params):  # as where the devices are no CPUs
            assert int(checksums.on_device(leaf)) == checksums.on_host_memory(np.asarray(leaf))
        with gm.training.Checkpoints(folder / name, every=2) as checkpoints:
            assert checkpoints.save(state)
        gone_on[name] = bits(run(step, state, range(2, 4))[0])
    assert any(len(leaf.sharding.device_set) == 8 for leaf in jax.tree.leaves(begun["fully sharded"]))
    assert not all(leaf.is_fully_replicated for leaf in jax.tree.leaves(begun["fully sharded"]))
    for source, target in itertools.product(steps, steps):
        state, _ = gm.training.Checkpoints(folder / source).restore(steps[target])
        assert bits(state) == saved[source], (source, target)
        wanted = [leaf.sharding for leaf in jax.tree.leaves(begun[target])]
        assert [leaf.sharding for leaf in jax.tree.leaves(state)] == wanted, (source, target)
        state, _ = run(steps[target], state, range(2, 4))
        assert source != target or bits(state) == gone_on[source], source
        assert [leaf.sharding for leaf in jax.tree.leaves(state)] == wanted, (source, target)
    print("restored", len(steps) ** 2)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
