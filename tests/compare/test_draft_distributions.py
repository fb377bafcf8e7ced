"""`graphmode draft`: distributions of PyTorch's, which a draft has copies of."""

from drafted import equal
from graphmode.compare.draft import draft


def test_what_distributions_say_of_given_values_is_equal(folder):
    text = equal(folder, "distributions.py:Policy", "5,4", "5,3", "5:3")
    for each in (
        "dist = Normal(self.mean(x), jnp.exp(self.log_std[...]))",
        "unit = Normal(0.0, 1.0)",
        "either = Categorical(logits=x)",
        "score = dist.log_prob(actions).sum(axis=-1) + dist.entropy().sum(axis=-1)",
    ):
        assert each in text, text


def test_what_distributions_draw_comes_from_a_stream_or_is_marked(folder):
    text = draft(f"{folder / 'distributions.py'}:Sampled", ("5,4",)).text
    assert "drawn = dist.rsample(self.random_stream())" in text, text
    assert "# TODO H06: sample: draw with jax.random" in text, text
    assert "# TODO D.Beta is PyTorch's: write out its log_prob and its entropy" in text, text
    assert text.count("# TODO") == 2, text
