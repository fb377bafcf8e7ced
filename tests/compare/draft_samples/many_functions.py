"""Functions of PyTorch that `graphmode draft` writes, by the dozen."""

from dataclasses import dataclass
from functools import partial

import torch
import torch.nn as nn
from torch.nn.attention.flex_attention import BlockMask


class Spectrum(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(32), persistent=False)
        self.w2 = nn.Parameter(torch.randn(17))

    def forward(self, x):
        s = torch.stft(x, n_fft=32, hop_length=8, win_length=32, window=self.window, center=True, return_complex=True)
        mag = s.abs()
        y = torch.istft(s * self.w2[:, None], 32, hop_length=8, window=self.window, length=x.shape[-1])
        t = torch.stft(x, 16, window=torch.hamming_window(16, device=x.device), return_complex=False, normalized=True)
        return mag.clamp(min=1e-5).log(), y, t.pow(2).sum(-1)


class Functions(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(6, 6)
        self.register_buffer("bounds", torch.linspace(-1, 1, 5))

    def forward(self, x, idx):
        h = self.lin(x)
        a = h.narrow(1, 1, 3) + h.select(1, 0)[:, None]
        b = torch.addcmul(h, h, h, value=0.5) + torch.addcdiv(h, h, 1 + h * h)
        c = torch.nan_to_num(torch.log(h), nan=0.1, posinf=1.0, neginf=-2.0)
        v, m = torch.var_mean(h, dim=-1, keepdim=True, unbiased=False)
        d = torch.div(h, 0.3, rounding_mode="floor") + torch.div(h, 0.3, rounding_mode="trunc")
        e = torch.bucketize(h.detach(), self.bounds) + torch.searchsorted(self.bounds, h.detach(), right=True)
        f = torch.cdist(h, h + 0.1) + torch.cdist(h, 2 * h, p=1.0)
        g = h.new_zeros(h.shape[0], 6).scatter_reduce(1, idx, h, reduce="amax", include_self=False)
        i = torch.zeros_like(h).scatter_reduce(1, idx, h, "mean", include_self=True)
        k = h.unflatten(1, (2, 3)).flatten(1) * h.median()
        m2 = torch.diag_embed(h).sum(-1) + torch.logit(torch.sigmoid(h)) + torch.frac(h)
        o = h.new_ones((2, 3), dtype=torch.float32).sum()
        z = h.clone()
        z[idx > 3] = -1.0
        z[z.isnan() | (z > 1)] *= 2
        q = torch.quantile(h, 0.25, dim=1)
        n = h.index_fill(1, torch.tensor([0, 2], device=h.device), 7.0)
        r = torch.tril_indices(3, 3, offset=-1)
        s = torch.cross(h[:, :3], h[:, 3:], dim=1) + h.diff(dim=1)[:, :3]
        return (
            a,
            b,
            c,
            (h - m) / (v + 1).sqrt(),
            d,
            e,
            f,
            g,
            i,
            k,
            m2,
            o,
            z,
            q,
            n,
            r,
            s,
            torch.logaddexp(h, 2 * h),
            h.erfinv().nan_to_num(),
        )


class Rounded(torch.autograd.Function):
    """Rounds, with a straight-through gradient that is clipped."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        ctx.scale = scale
        return torch.round(x * scale) / scale

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        grad_input = grad_output.clone()
        grad_input[x.abs() > 1] = 0
        return grad_input * ctx.scale, None


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, lambd=1.0):
        ctx.lambd = lambd
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return g.neg() * ctx.lambd, None


class Pair(torch.autograd.Function):
    @staticmethod
    def forward(x, y):
        return x * y, x + y

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, y = inputs
        ctx.save_for_backward(x, y)

    @staticmethod
    def backward(ctx, a, b):
        x, y = ctx.saved_tensors
        return a * y * 2 + b, a * x + b if ctx.needs_input_grad[1] else None


reverse = Reversed.apply


class Gradients(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Linear(4, 3)
        self.act = Rounded.apply

    def forward(self, x):
        y = self.act(self.a(x), 8.0)
        p, q = Pair.apply(y, x)
        return self.b(reverse(y, 0.5)) + p.sum() + q[:, :3]


class Tying(nn.Module):
    """Heads that have the weight of an embedding, and layers that share theirs."""

    def __init__(self):
        super().__init__()
        self.body = nn.ModuleDict({"table": nn.Embedding(30, 8), "mix": nn.Linear(8, 8)})
        self.head = nn.Linear(8, 30, bias=False)
        self.body.table.weight = self.head.weight
        self.first = nn.Linear(8, 8)
        self.again = nn.Linear(8, 8)
        self.again.weight = self.first.weight

    def forward(self, tokens, last=False):
        x = self.body.mix(self.body.table(tokens))
        x = self.again(torch.relu(self.first(x)))
        return self.head(x[:, [-1], :]) if last else self.head(x)


def exists(x):
    return x is not None


def centred(y, bias=None):
    return y if bias is None else y - bias


def normal_bias(y):
    return torch.ones(len(y), 2, 4).cumsum(-1)


class Scaled(nn.Module):
    def __init__(self, size: tuple[int], shifts=False):
        super().__init__()
        self.weight = nn.Parameter(torch.Tensor(size))
        self.weight.data.fill_(0.5)
        self.shift = nn.Parameter(torch.normal(0, 0.1, size=(size,))) if shifts else None

    def forward(self, y):
        return y * self.weight, self.shift


class Kept(nn.Module):
    """Parameters that stay as they are, arrays in lists, and what asks whether something is there."""

    def __init__(self):
        super().__init__()
        self.register_parameter("extra", None)
        self.scale = nn.Parameter(torch.ones(4) * 0.5, requires_grad=False)
        self.plain = nn.Linear(4, 4, bias=False)
        self.scaled, self.shifted = Scaled(4), Scaled(4, shifts=True)
        self.anchors = [torch.arange(4.0), torch.ones(4)]
        self.spectrum = partial(torch.fft.fftn, dim=(0, 1))
        self.powers = [0.5, 2.0]
        self.powers[1] /= self.powers[0]
        self.register_buffer("low", torch.zeros(4))
        self.low -= 0.5
        self.linear = nn.Linear(4, 4)

    def forward(self, x, mask=None):
        if exists(mask):
            x = x * mask
        x = self.spectrum(x).real / 2 + x
        y = (self.linear(x) * self.scale).clamp(min=self.low) ** self.powers[1]
        for anchor in self.anchors:
            y = y + anchor
        y, _ = self.scaled.forward(y)
        y, shift = self.shifted(y)
        y = centred((y + shift) @ self.plain.weight.T, self.plain.bias)
        lower = torch.eye(4) * 9 + torch.ones(4, 4).tril(-1)
        y = torch.linalg.solve_triangular(lower, y.T, upper=False, unitriangular=True).T
        y = y + torch.linalg.solve_triangular(lower.T, y, upper=True, left=False)
        bias = normal_bias(y)
        bias.unsqueeze_(1).squeeze_(1)
        bias = bias[:, None, 0, :]
        bias[bias == 2] = 3.0
        y = y + bias[:, 0] + self.halved(y).repeat(1, 2).flip(dims=[0]).flip(dims=(0, 1))
        if mask is not None and not isinstance(mask, BlockMask):
            y = y.masked_fill(mask > 0, 0.0)
        if isinstance(mask, BlockMask):
            return None
        return y if self.extra is None else y + self.extra

    def halved(self, y):
        return nn.AvgPool1d(2)(y)


SHAPES = {}


def shape(name):
    def register(cls):
        SHAPES[name] = cls
        return cls

    return register


@shape("plain")
class Plain(nn.Module):
    def forward(self, x):
        return torch.tanh(x)


CHOICES = {"plain": Plain, "relu": nn.ReLU}


class Normalising:
    def unit(self, x):
        return x / torch.norm(x, p=2, dim=(1, 2), keepdim=True) * self.gain


@dataclass
class Result:
    values: torch.Tensor
    score: torch.Tensor | None = None


def set_small_(tensor, limit):
    with torch.no_grad():
        return tensor.uniform_(-limit, limit)


def zeroed(module):
    for parameter in module.parameters():
        parameter.detach().zero_()
    return module


class Registered(Normalising, nn.Module):
    """Mixins, registries, results, writes to `.data`, blocks without gradients, marks on parameters."""

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(1))
        self.scales = nn.ParameterList([nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))])
        self.linear = zeroed(nn.Linear(3, 3))
        self.act = SHAPES["plain"]()
        self.last = CHOICES["relu"]()
        set_small_(self.linear.weight, 0.1)
        self.linear.bias._no_decay = True

    def forward(self, x):
        if x.is_cuda:
            x = x.cuda()
        y = self.unit(self.act(self.linear(x)) * self.scales[0] + self.scales[1])
        with torch.no_grad():
            largest = y.abs().max()
            largest = largest + 1
        y = y / largest
        weights = 3 * y
        weights.data.masked_fill_(y > 0.1, 0.0)
        return Result(values=self.last(y * weights.softmax(-1)), score=None if not self.training else y.sum(1))
