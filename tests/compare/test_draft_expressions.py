"""`graphmode draft`: expressions that ask for more than a row of a table."""

from dataclasses import replace

import pytest
from drafted import bare, equal
from graphmode.compare import check
from graphmode.compare.draft import draft
from graphmode.compare.locate import locate

EQUAL = {
    "Sizes": (
        ("4,6",),
        [
            "first, second = jnp.split(x, np.cumsum([2 * n for n in (1, 2)])[:-1], axis=1)",
            "jnp.split(x, np.cumsum(self.parts)[:-1], axis=1)",
            "jnp.split(x, np.cumsum(sizes)[:-1], axis=1)",
            "i, f, g, o = jnp.split(self.gates(x), 4, axis=1)",
            "return in_pieces(x, sizes, 1)",
            "jnp.split(x, np.arange(4, x.shape[1], 4), axis=1)",
            "jnp.broadcast_to(u, list(x.shape[:-1]) + [count])",
            "jnp.broadcast_to(self.scale[...], shape) + jnp.broadcast_to(self.scale[...], x.shape)",
            "jnp.broadcast_to(self.scale[...], (batch, self.scale.shape[-1]))",
            "expanded((x + 1)[:, None], (-1, 2, -1))",
            "jnp.broadcast_to(x[0], (*x.shape[:1], width))",
        ],
    ),
    "Masks": (
        ("3,6", "3,6"),
        [
            "nearest = fill_where(nearest, mask, (y.astype(jnp.float64) * 2 + 1).astype(x.dtype))",
            "order = fill_where(order, y > 0.5, width)",
            "order = fill_where(order, far, first)",
            "nearest = fill_where(nearest, x > 1, nearest + (y * x))",
            "nearest = fill_where(nearest, jnp.abs(x) < 0.1, jnp.clip(x, min=0.05))",
        ],
    ),
    "Mixed": (
        ("4,4", "4,4:bool"),
        [
            'with nn.autocast(jnp.bfloat16, device_type="cpu"):',
            "with nn.autocast(enabled=False):",
        ],
    ),
    "Ordered": (
        ("4,5", "6:11"),
        [
            "median(jnp.abs(low), 1)[0] + kthvalue(high, 2, dim=1, keepdim=True)[0].squeeze(1)",
            "value, _ = median(x, dim=0)",
            "truncated_divide(n - 5, 3)",
            "first, where = topk(x, 2, dim=0)",
            "topk(x, 2, largest=False)[0] + jnp.round(jnp.diff(x, prepend=x[:, :1]), 1)[:, :2]",
            'jnp.quantile(x, 0.5, method="lower")',
        ],
    ),
    "Kernels": (
        ("2,6,5,5",),
        [
            "nn.functional.conv_transpose2d(x, (self.up[...] * self.scale).transpose(2, 3, 1, 0), stride=2, groups=2",
            "nn.functional.conv_transpose1d(jax.lax.collapse(x[:, :4], 2), self.along[...].transpose(2, 1, 0)",
            "high, wide = self.kernel_size",
            "self.gain = self.out_channels / (self.in_channels // self.groups)",
            "nn.functional.conv2d(x, self.weight[...] * self.gain, self.bias[...], data_format",
            "nn.functional.conv_transpose2d(x, self.weight[...], self.bias[...], stride=2, data_format",
        ],
    ),
    "Others": (
        ("4,4",),
        [
            "init_fn = lambda *size: jnp.zeros(size)",
            "other_fn: object = (lambda *size: jnp.ones(size)) if ones else (lambda *size: jnp.zeros(size))",
            "init_fn(sizes, sizes) + other_fn(sizes, sizes)",
            "y = jnp.matmul(adjacency, x)\n",
            "y = nn.functional.leaky_relu(y, 0.2)",
            "y = nn.functional.elu(y * 2, alpha=0.5)",
            "self.activation = nn.functional.relu",
            "device=None",
            "self.fused = sizes > 2\n",
            "self.newest = False\n",
            "adjacency = jax.lax.stop_gradient(adjacency)\n",
            "y = y + jnp.fill_diagonal(adjacency.T, -2.0, inplace=False)",
        ],
    ),
    "Odd": (
        ("3,6", "2,3,2,4"),
        [
            "joined = jax.lax.collapse(jax.lax.collapse(y, 0, 2), 0, -1)",
            'rows, columns = jnp.meshgrid(jnp.arange(2), jnp.arange(3), indexing="ij")',
            "values = jnp.sort(x, axis=-1)\n",
            "places = jnp.argmax(x, axis=1)\n",
            "first, where = (jnp.min(x, axis=1), jnp.argmin(x, axis=1))",
            "where = (jnp.min(x, axis=1), jnp.argmin(x, axis=1))\n        deep = ",
            "deep = jnp.expand_dims(x, (1, 2, -2, -1))\n",
            "jnp.expand_dims(x[:, 0], (0, 1))[..., None]",
            "average = (self.average[...] * 0.5) + 0.5 * x.mean(axis=0)",
            'searchsorted(self.bounds[...], jax.lax.stop_gradient(x), side="right")',
            "        if self.use_running_average:",
            "        if not self.use_running_average:",
        ],
    ),
    "Plain": (
        ("3,4",),
        ["start = np.random.RandomState(0).randn(4, 4)", 'other = features.get("other")', "if i == stop:"],
    ),
    "Listed": (
        ("3,4",),
        [
            "levels[i] = self.layers[i](levels[i])",
            "levels[i] = levels[i].at[:, 0].set(1.0)",
            "levels[1] += levels[0]",
            "levels = levels.at[:, 1].set(2.0)",
        ],
    ),
    "Cached": (
        ("3,4",),
        [
            "self.cache = self.cache.at[:rows, 1:].set(x[:, 1:])",
            "self.steps = nnx.data([])",
            "self.rows = nnx.data(rows)",
            "self.sums = self.sums.at[0].multiply(0.0)",
            "self.seen[...] = self.seen[...].at[1:].set(2.0)",
        ],
    ),
    "Edges": (
        ("3,4",),
        [
            "jnp.asarray(weights, dtype=jnp.float32)",
            "edges = [jnp.asarray(edges[0], dtype=int), jnp.asarray(edges[1], dtype=int)]",
        ],
    ),
    "Worded": (("3,4",), ['f"{x.ndim} axes of {x.shape[1]}, ', "{x.shape[0]:>4}", 'f"{x.shape[0]}": x,']),
    "Held": (("3,5",), ["self.table = nnx.data(None)", "self.stages = nnx.List(stages[::-1])"]),
}


@pytest.mark.parametrize("name", EQUAL)
def test_a_draft_is_equal_and_reads_well(folder, name):
    inputs, wanted = EQUAL[name]
    text = equal(folder, f"expressions.py:{name}", *inputs)
    for each in wanted:
        assert bare(each) in bare(text), f"{each}\n{text}"


WRITTEN = {
    "Bounded": ["self.weight[...] = with_value(", ").transpose(2, 3, 1, 0)", " / self.out_channels"],
}


def test_an_embedding_of_a_table_has_its_size(folder):
    made, case = draft(f"{folder / 'expressions.py'}:Pretrained", ("2,3:7",)), folder / "pretrained_port.py"
    for each in (
        "self.trained = nn.Embedding(*table.shape, padding_idx=2, rngs=rngs)",
        "# TODO an embedding that is not trained: leave it out of what the optimizer is given\n        self.frozen =",
        "self.frozen = nn.Embedding(*(table * 2).shape, rngs=rngs)",
    ):
        assert each in made.text, made.text
    assert made.notes == 1, made.text
    case.write_text(made.text)
    report = check(replace(locate(f"{case}:CASE"), adversarial=()), draws=1)
    assert report.passed, f"{report}\n{made.text}"


@pytest.mark.parametrize("name", WRITTEN)
def test_a_draft_is_written_so(folder, name):
    made = draft(f"{folder / 'expressions.py'}:{name}", ("2,5,4,4",))
    for each in WRITTEN[name]:
        assert bare(each) in bare(made.text), f"{each}\n{made.text}"
