"""Adapters of this room."""

from .base import Adapter


def _of_one_number(array, axis):
    return array.ndim == 0 or array.shape[axis] == 1


def _scale_of_normalize(tensors, args, kwargs):
    """Along an axis of length 1 the derivative is 0, the difference of two terms of the size of 1 / |input|."""
    input = args[0].detach()
    if input.ndim and _of_one_number(input, kwargs.get("dim", 1)):
        return {"gradient.0.0": float(1 / input.abs().min())}
    return {}


def _scale_of_cosine(tensors, args, kwargs):
    """The same, by either vector."""
    axis = kwargs.get("dim", 1)
    vectors = [vector.detach() for vector in args[:2]]
    if not all(_of_one_number(vector, axis) for vector in vectors):
        return {}
    return {f"gradient.0.{i}": float(1 / vector.abs().min()) for i, vector in enumerate(vectors)}


ADAPTERS: dict[str, Adapter] = {}
FUNCTION_ADAPTERS: dict[str, Adapter] = {
    "cosine_similarity": Adapter(scale=_scale_of_cosine),
    "normalize": Adapter(scale=_scale_of_normalize),
}
