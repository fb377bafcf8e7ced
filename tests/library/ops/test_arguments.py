"""What is no array is named by its argument, and not by the library that could not take it."""

import jax.numpy as jnp
import pytest
import torch

import graphmode as gm

X = jnp.arange(5.0)
MASK = X > 2


@pytest.mark.parametrize(
    ("call", "words"),
    {
        "a string": (lambda: gm.compact("abc", MASK, capacity=2), "x is a str"),
        "no mask": (lambda: gm.compact(X, None, capacity=2), "mask is a NoneType"),
        "a tensor that trains": (
            lambda: gm.compact(torch.arange(5.0, requires_grad=True), MASK, capacity=2),
            "x is a Tensor.*detach",
        ),
        "ids by name": (lambda: gm.segment_sum(X, "ids", num_segments=2), "ids is a str"),
        "boxes by name": (lambda: gm.nms("boxes", X, iou_threshold=0.5, capacity=2), "boxes is a str"),
        "a check of a word": (lambda: gm.check("yes", "no"), "ok is a str"),
        "a k that is a word": (lambda: gm.topk(X, "k", k_max=2), "k is a str"),
        "another shape": (
            lambda: gm.fixed_point(lambda x: x.sum(), X, max_steps=2),
            r"f gives float32\[\] for an x0 of float32\[5\]",
        ),
    }.values(),
)
def test_what_is_no_array_is_named(call, words):
    with pytest.raises(TypeError, match=words):
        call()


def test_a_tensor_of_pytorch_is_an_array():
    assert gm.compact(torch.arange(5.0), torch.arange(5) > 2, capacity=3).to_list() == [3.0, 4.0]
