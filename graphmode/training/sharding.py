"""Where state and batches lie on more than one device: data parallel and fully sharded, by `jax.sharding`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from .batch_shapes import arrays_of


def data_parallel(mesh: Mesh | None = None, *, axis: str = "data") -> Placement:
    """Each device holds the whole state and a part of each batch.

    Args:
      mesh: of devices; all there are along one axis where None.
      axis: the mesh's axis over which a batch is cut.
    """
    return Placement(_mesh(mesh, axis), axis, shards_state=False)


def fully_sharded(mesh: Mesh | None = None, *, axis: str = "data", least: int = 0) -> Placement:
    """Each device holds a part of each batch, and of each array of the state: ZeRO's third stage, as PyTorch's FSDP.

    An array is cut along its largest axis that the number of devices divides, and lies whole on each device where there
    is none.

    Args:
      mesh, axis: as those of `data_parallel`.
      least: arrays of fewer elements lie whole on each device.

    Source: https://arxiv.org/abs/1910.02054
    """
    return Placement(_mesh(mesh, axis), axis, shards_state=True, least=least)


@dataclass(frozen=True)
class Placement:
    """Made by `data_parallel` and `fully_sharded`; given to `train_step`.

    Attributes:
      mesh: of devices, of all processes.
      axis: along which batches are cut, and state where it is.
      shards_state: whether it is.
      least: elements of an array that is cut.
    """

    mesh: Mesh
    axis: str
    shards_state: bool
    least: int = 0

    @property
    def devices(self) -> int:
        """That share a batch."""
        return int(self.mesh.shape[self.axis])

    def replicated(self) -> NamedSharding:
        return NamedSharding(self.mesh, PartitionSpec())

    def of_array(self, array: Any) -> NamedSharding:
        """Of one array of the state."""
        shape = array.shape
        divided = [i for i, length in enumerate(shape) if length and length % self.devices == 0]
        if not self.shards_state or not divided or array.size < self.least:
            return self.replicated()
        largest = max(divided, key=lambda i: shape[i])
        return NamedSharding(
            self.mesh, PartitionSpec(*(self.axis if i == largest else None for i in range(len(shape))))
        )

    def of_state(self, state: Any) -> Any:
        """A tree like the state's, of shardings."""
        return jax.tree.map(self.of_array, state)

    def of_batch(self, lead: int = 1) -> NamedSharding:
        """Of each array of a batch; `lead` above 1 is the number of batches stacked along a first axis."""
        return NamedSharding(self.mesh, PartitionSpec(*([None] if lead > 1 else []), self.axis))

    def put_state(self, state: Any) -> Any:
        """The same values, which every process has, where they are to lie."""
        return jax.tree.map(_put, state, self.of_state(state))

    def put_batch(self, batch: Any, *, lead: int = 1) -> Any:
        """This process's rows of a batch, as a part of the whole one.

        Args:
          batch: arrays `[rows, ...]`; with several processes each gives its own rows, equally many.
          lead: batches stacked along a first axis.
        """
        sharding = self.of_batch(lead)
        for name, (shape, _) in arrays_of(batch).items():
            if len(shape) < 1 + (lead > 1):
                raise ValueError(f"{name} has shape {list(shape)}, and a batch axis was wanted")
            self.check_batch(shape[lead > 1] * jax.process_count(), parts=1)

        def put(array: Any) -> jax.Array:
            if isinstance(array, jax.Array) and (jax.process_count() == 1 or not array.is_fully_addressable):
                return jax.device_put(array, sharding)
            return jax.make_array_from_process_local_data(sharding, np.asarray(array))

        return jax.tree.map(put, batch)

    def holds(self, batch: Any, *, lead: int = 1) -> bool:
        """Whether all of a batch lies where it is to lie."""
        wanted = self.of_batch(lead)
        return all(
            isinstance(leaf, jax.Array)
            and (leaf.sharding == wanted or leaf.sharding.is_equivalent_to(wanted, leaf.ndim))
            for leaf in jax.tree.leaves(batch)
        )

    def check_state(self, array: Any) -> None:
        """Raises `ValueError` unless an array of the state lies on the mesh's devices."""
        if not isinstance(array, jax.Array) or isinstance(array, jax.core.Tracer):
            return
        held, wanted = array.sharding.device_set, self.replicated().device_set
        if held is not wanted and held != wanted:
            raise ValueError(
                f"state lies on {_ids(held)}, and the step's placement is on {_ids(wanted)}: give the state of "
                "step.init(), or this one as step.placement.put_state(state)"
            )

    def check_batch(self, rows: int, parts: int) -> None:
        """Raises `ValueError` unless the devices divide the rows of the whole batch."""
        if rows % (self.devices * parts):
            cut = f" in {parts} parts" if parts > 1 else ""
            raise ValueError(
                f"the batch has {rows} rows{cut}, which the {self.devices} devices along {self.axis!r} of the mesh do "
                f"not divide; give a multiple of {self.devices * parts}"
            )


def _mesh(mesh: Mesh | None, axis: str) -> Mesh:
    if mesh is None:
        return jax.make_mesh((jax.device_count(),), (axis,), axis_types=(AxisType.Auto,))
    if not isinstance(mesh, Mesh):
        raise TypeError(
            f"mesh is {_given(mesh)}; leave it out for all {jax.device_count()} devices, or give "
            f"jax.make_mesh(({_size(mesh)},), ({axis!r},))"
        )
    if axis not in mesh.shape:
        raise ValueError(f"axis is {axis!r}, and the mesh has {', '.join(map(repr, mesh.shape))}")
    if any(kind != AxisType.Auto for kind in mesh.axis_types):  # shardings follow from those of state and batch here
        return Mesh(mesh.devices, mesh.axis_names)
    return mesh


def _ids(devices: set[jax.Device]) -> str:
    ids = sorted(device.id for device in devices)
    return f"device {ids[0]}" if len(ids) == 1 else f"{len(ids)} devices, {ids[0]} to {ids[-1]}"


def _given(mesh: Any) -> str:
    return f"a {type(mesh).__name__} of {len(mesh)}" if isinstance(mesh, list | tuple) else repr(mesh)


def _size(mesh: Any) -> int:
    """Of the mesh that was meant: a number of devices, or a list of them."""
    if isinstance(mesh, int) and mesh > 0:
        return mesh
    return len(mesh) if isinstance(mesh, list | tuple) and mesh else jax.device_count()


def _put(array: Any, sharding: NamedSharding) -> jax.Array:
    if not jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        if sharding.is_fully_addressable:
            return jax.device_put(array, sharding)
        host = np.asarray(array)
        return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])
    if sharding.is_fully_addressable:
        return jax.device_put(array, sharding)
    data = _put(jax.random.key_data(array), sharding)
    return jax.random.wrap_key_data(data, impl=jax.random.key_impl(array))
