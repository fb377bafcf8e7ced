"""Copies of the reference: what their hooks and functions enclose is the copy's."""

import functools

import torch
from graphmode.compare.copied_module import copied


class Tapped(torch.nn.Module):
    """Keeps what layers give, by hooks of the usual kinds."""

    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1))
        self.taps, shared = {}, {}
        self.shared = shared
        self.net[0].register_forward_hook(self.tap("first"))
        self.net[1].register_forward_hook(lambda module, args, output: shared.update(second=output))
        self.net[2].register_forward_hook(functools.partial(self.keep, "third"))
        self.scale = torch.nn.Parameter(torch.tensor(2.0))

        @functools.wraps(self.net[1].forward)
        def forward(x):
            return self.scale * x

        self.net[1].forward = forward

    def tap(self, name):
        def note(module, args, output):
            self.taps[name] = output

        def hook(module, args, output):
            note(module, args, output)

        return hook

    def keep(self, name, module, args, output):
        self.taps[name] = output

    def forward(self, x):
        self.taps.clear()
        self.shared.clear()
        y = self.net(x)
        return y, self.taps["first"], self.shared["second"], self.taps["third"]


def test_hooks_of_a_copy_keep_for_the_copy():
    module = Tapped()
    other, x = copied(module), torch.ones(1, 2)
    usual = module(x)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    assert not any(bool(y.any()) for y in other(x))  # of the copy's own, its scale included
    assert all(torch.equal(a, b) for a, b in zip(module(x), usual, strict=True))
    assert other.taps["first"] is not module.taps["first"]
