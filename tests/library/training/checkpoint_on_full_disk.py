"""What `test_checkpoints_elsewhere.py` runs on a file system with room for two checkpoints: the third is told of."""

import errno
import sys
from pathlib import Path

import jax
import pytest
from checkpoint_cases import Model, bits, make, run
from flax import nnx

import graphmode as gm


def main(folder: Path) -> None:
    jax.config.update("jax_disable_most_optimizations", True)
    step = make(Model(nnx.Rngs(0), hidden=5000))
    state, restorable = step.init(), {}
    checkpoints = gm.training.Checkpoints(folder, every=1, keep=2, asynchronous=False)
    for number in (1, 2):
        state, _ = run(step, state, range(number - 1, number))
        checkpoints.save(state)
        restorable[number] = bits(state)
    for number in (3, 4):
        state, _ = run(step, state, range(number - 1, number))
        told = rf"step {number} could not be written to {folder} \(.* of step 2\)"
        with pytest.raises(OSError, match=told) as raised:
            checkpoints.save(state)
        assert raised.value.errno == errno.ENOSPC, raised.value
        assert checkpoints.steps == [1, 2]
    for at, expected in restorable.items():
        assert bits(checkpoints.restore(step, at=at)[0]) == expected
    checkpoints.discard_after(1)
    checkpoints.save(state, force=True)  # there is room again
    checkpoints.close()
    assert sorted(path.name for path in folder.iterdir()) == ["1", "4"]
    print("told")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
