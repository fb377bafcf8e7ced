"""Eager models as people write them, which `graphmode draft` reads."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
import zoo
from torch.nn import Identity  # noqa: F401  what is no model of one's own

WIDTH = 16


def conv3x3(inp: int, out: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inp, out, kernel_size=3, stride=stride, padding=1, bias=False)


def halved(number: int) -> int:
    return number // 2


class BasicBlock(nn.Module):
    """Two convolutions and a shortcut."""

    expansion = 1

    def __init__(self, inp, out, stride=1, norm_layer=None):
        super().__init__()
        if norm_layer is None:
            norm_layer = nn.BatchNorm2d
        self.conv1 = conv3x3(inp, out, stride)
        self.bn1 = norm_layer(out)
        self.conv2 = conv3x3(out, out)
        self.bn2 = norm_layer(out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or inp != out:
            self.downsample = nn.Sequential(nn.Conv2d(inp, out, 1, stride, bias=False), norm_layer(out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))  # a comment that stays
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class SmallResNet(nn.Module):
    def __init__(self, block=BasicBlock, classes: int = 7):
        super().__init__()
        self.inplanes = 8
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.layer1 = self._make_layer(block, 8, 2)
        self.layer2 = self._make_layer(block, WIDTH, halved(4), stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(WIDTH * block.expansion, classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(m, nn.BatchNorm2d):
                nn.init.constant_(m.weight, 1)

    def _make_layer(self, block, planes, blocks, stride=1):
        layers = [block(self.inplanes, planes, stride)]
        self.inplanes = planes * block.expansion
        for _ in range(1, blocks):
            layers.append(block(self.inplanes, planes))
        return nn.Sequential(*layers)

    def forward(self, x):
        x = self.pool(F.relu(self.stem(x)))
        x = self.layer2(self.layer1(x))
        x = self.avgpool(x)
        x = torch.flatten(x, 1)
        return self.fc(x)


class Attention(nn.Module):
    def __init__(self, dim, heads, dropout=0.0):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None):
        b, n, c = x.shape
        qkv = self.qkv(x).reshape(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(q.size(-1))
        if mask is not None:
            scores = scores.masked_fill(mask == 0, float("-inf"))
        weights = self.drop(scores.softmax(dim=-1))
        out = (weights @ v).transpose(1, 2).contiguous().view(b, n, c)
        return self.proj(out)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = Attention(dim, heads)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
        self.scale = nn.Parameter(torch.ones(dim) * 0.1)

    def forward(self, x, mask=None):
        x = x + self.attn(self.norm1(x), mask)
        return x + self.scale * self.mlp(self.norm2(x))


class TinyGPT(nn.Module):
    def __init__(self, vocabulary=50, dim=32, depth=2, heads=4, length=12):
        super().__init__()
        self.tok = nn.Embedding(vocabulary, dim)
        self.pos = nn.Parameter(torch.zeros(1, length, dim))
        self.blocks = nn.ModuleList([Block(dim, heads) for _ in range(depth)])
        self.ln_f = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocabulary, bias=False)
        self.register_buffer("mask", torch.tril(torch.ones(length, length)).view(1, 1, length, length))
        self.apply(self._init_weights)

    def _init_weights(self, module):
        if isinstance(module, nn.Linear):
            torch.nn.init.normal_(module.weight, mean=0.0, std=0.02)

    def forward(self, idx):
        _, t = idx.size()
        x = self.tok(idx) + self.pos[:, :t, :]
        for block in self.blocks:
            x = block(x, self.mask[:, :, :t, :t])
        return self.head(self.ln_f(x))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU())
        self.mid = nn.Conv2d(8, 8, 3, padding=1)
        self.up = nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.out = nn.Conv2d(16, 3, 1)

    def forward(self, x):
        d = self.down(x)
        m = F.leaky_relu(self.mid(F.avg_pool2d(d, 2)), 0.1)
        u = self.up(m)
        u = F.interpolate(u, size=d.shape[-2:], mode="bilinear", align_corners=False)
        return torch.sigmoid(self.out(torch.cat([d, u], dim=1)))


class Tagger(nn.Module):
    """A recurrent network with pooling by max and mean, and statistics of its own."""

    def __init__(self, vocabulary=30, hidden=12):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, 10, padding_idx=0)
        self.lstm = nn.LSTM(10, hidden, batch_first=True, bidirectional=True)
        self.gate = nn.Linear(2 * hidden, 1)
        self.out = nn.Linear(4 * hidden, 3)
        self.register_buffer("prior", torch.linspace(0.1, 0.3, 3))
        self.register_buffer("steps", torch.arange(6), persistent=False)

    def forward(self, tokens):
        states, _ = self.lstm(self.embed(tokens))
        weight = torch.softmax(self.gate(states).squeeze(-1), dim=1)
        mean = (weight.unsqueeze(-1) * states).sum(dim=1)
        top, where = states.max(dim=1)
        logits = self.out(torch.cat((mean, top), -1))
        logits = F.log_softmax(logits + torch.log(self.prior), dim=-1)
        spread = states.std(dim=(1, 2), keepdim=True)[:, :, 0]
        return logits / (1 + spread), where + self.steps[0]


# fmt: off
class InOneLine(nn.Module):
    def __init__(self): super().__init__(); self.linear = nn.Linear(4, 6); nn.init.zeros_(self.linear.bias)  # noqa: E702
    def forward(self, x): return F.dropout(self.linear(x), 0.0, self.training)
# fmt: on


def shift(rows, by, first=1):
    if first:
        rows[:, first:] += by[:, first:]
    else:
        rows.add_(by)
    return rows


class Written(nn.Module):
    """What is written in place, and chosen by values."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 6))
        self.bias = nn.Parameter(torch.zeros(4))
        self.filters = nn.Parameter(torch.randn(5, 4, 3))

    @torch.no_grad()
    def unused(self):
        return self.weight.norm().item()

    def raised(self, rows, by):
        rows.add_(by)
        return rows

    def forward(self, x):
        y = F.linear(x, self.weight, self.bias).clamp(min=-1.0)
        z = torch.zeros_like(y)
        z[:, 0] = y[:, 1]
        z[:, 1:] += y[:, 1:] * 2
        z.mul_(0.5)
        z = self.raised(z, 0.25)
        self.raised(z, by=0.5)
        shift(z, y)
        a, b = torch.tensor_split(z, (2,), dim=1)
        first, second = z.split(2, dim=1)
        a, b = a + first, b - second
        first, second = torch.chunk(torch.stack((a, b), dim=1), 2, dim=2)
        joined = torch.cat([first, second.expand(-1, 2, 1)], 2).flip(-1)
        padded = F.pad(joined.repeat(1, 2, 1), (1, 1))
        return F.conv1d(padded, self.filters).mean((0, 2)), z.argmax(dim=1), z.topk(2)[0]


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        y = self.fc(x)
        if y.sum() > 0:
            y = y * 2
        kept = y[y > 0]
        return kept.sum() + torch.randn(1)


def plain_layers():
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))


def small_resnet():
    return SmallResNet(classes=5)


class DenseLayer(nn.Sequential):
    def __init__(self, inp, growth):
        super().__init__()
        self.add_module("norm", nn.BatchNorm2d(inp))
        self.add_module("relu", nn.ReLU(inplace=True))
        self.add_module("conv", nn.Conv2d(inp, growth, 3, padding=1))

    def forward(self, x):
        return torch.cat([x, super().forward(x)], 1)


class DenseNet(nn.Module):
    def __init__(self, growth=4):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, bias=False)
        self.dense = nn.Sequential(*[DenseLayer(8 + growth * i, growth) for i in range(3)])
        self.head = nn.Linear(8 + 3 * growth, 4)

    def forward(self, x):
        x = F.relu(self.dense(self.stem(x)), inplace=True)
        return self.head(x.mean([2, 3]))


class SqueezeExcite(nn.Module):
    def __init__(self, channels, act=nn.Hardsigmoid):
        super().__init__()
        self.reduce = nn.Conv2d(channels, channels // 4, 1)
        self.expand = nn.Conv2d(channels // 4, channels, 1)
        self.act = act()

    def forward(self, x):
        s = x.mean((2, 3), keepdim=True)
        return x * self.act(self.expand(F.relu(self.reduce(s))))


class MobileBlocks(nn.Module):
    """Depthwise convolutions, squeeze and excitation, patches as tokens, and a class token in front."""

    def __init__(self, channels=8, dim=12, classes=3):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, channels, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(channels, eps=1e-3),
            nn.Hardswish(),
            nn.Conv2d(channels, channels, 3, padding=1, groups=channels),
            SqueezeExcite(channels),
        )
        self.patch = nn.Conv2d(channels, dim, kernel_size=2, stride=2)
        self.cls = nn.Parameter(torch.randn(1, 1, dim))
        self.pos = nn.Parameter(torch.zeros(1, 17, dim))
        layer = nn.TransformerEncoderLayer(dim, 2, 24, dropout=0.0, batch_first=True, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(dim, classes)
        nn.init.trunc_normal_(self.cls, std=0.02)

    def forward(self, x):
        x = self.patch(self.features(x)).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], dim=1) + self.pos
        x = self.encoder(x)
        return self.head(x[:, 0]), F.normalize(x.mean(dim=1), dim=-1)


class LinearAttention(nn.Module):
    """Rotary halves, cumulative sums, a mask by lengths, and einsum."""

    def __init__(self, dim=8):
        super().__init__()
        self.to_q = nn.Linear(dim, dim, bias=False)
        self.to_k = nn.Linear(dim, dim, bias=False)
        self.to_v = nn.Linear(dim, dim, bias=False)
        self.eps = 1e-6
        inv_freq = 1.0 / (10000 ** (torch.arange(0, dim, 2).float() / dim))
        self.register_buffer("inv_freq", inv_freq, persistent=False)

    def rotate(self, x):
        a, b = x.chunk(2, dim=-1)
        return torch.cat((-b, a), dim=-1)

    def forward(self, x, lengths):
        n = x.size(1)
        angles = torch.einsum("i,j->ij", torch.arange(n, device=x.device).type_as(self.inv_freq), self.inv_freq)
        angles = torch.cat((angles, angles), dim=-1).unsqueeze(0)
        valid = torch.arange(n)[None, :] < lengths[:, None]
        q, k, v = F.elu(self.to_q(x)) + 1, F.elu(self.to_k(x)) + 1, self.to_v(x)
        q = q * angles.cos() + self.rotate(q) * angles.sin()
        k = k * valid.unsqueeze(-1).to(k.dtype)
        state = torch.cumsum(torch.einsum("bnd,bne->bnde", k, v), dim=1)
        total = torch.cumsum(k, dim=1)
        out = torch.einsum("bnd,bnde->bne", q, state)
        out = out / (q * total).sum(-1, keepdim=True).abs().clamp(min=self.eps)
        return torch.where(valid[..., None], out, torch.zeros_like(out))


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g


class SameConv(nn.Conv2d):
    """A layer with another forward: its weight is one of a layer's."""

    def forward(self, x):
        x = F.pad(x, [1, 1, 1, 1])
        return F.conv2d(x, self.weight, self.bias, self.stride, 0, self.dilation, self.groups)


class Scaled(nn.Module):
    def forward(self, x):
        return x * 3


class Noisy(nn.Module):
    """Draws, and has no `__init__` that would be given what to draw from."""

    def is_still(self, x) -> bool:
        return not x.requires_grad

    def forward(self, x):
        if self.is_still(x):
            return x
        return x + torch.randn(1)


class Penalised(nn.Module):
    """Takes a gradient as it runs, and rows of a mask, and asks PyTorch what it was built with."""

    def forward(self, x, y):
        x.requires_grad_(True)
        grads = torch.autograd.grad((x * y).sum(), x, create_graph=True)[0]
        near = x.lt(y)
        if (total := near.sum()) > 5:
            x = x / total
        try:
            x = x @ torch.linalg.inv(y[:, :3])
        except RuntimeError:
            x = x + 1
        hardest = [x[i][near[i]].sort()[0] for i in range(2)]
        return (grads, *hardest) if torch.version.hip is None else grads


class Derived(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = SameConv(3, 4, 3, stride=2)
        self.scaled = Scaled()
        names = {"alpha": (4,), "beta": (2, 4)}
        for name, shape in names.items():
            self.register_parameter(name, nn.Parameter(torch.empty(*shape).uniform_(-1, 1)))

    def forward(self, x):
        h = self.scaled(self.conv(x)).amax((2, 3)) * self.alpha
        values, order = torch.sort(h @ self.beta.t(), dim=1, descending=True)
        spread = h.norm(2) + torch.norm(h, p=1, dim=1) + h.var(1, unbiased=False) + torch.var(h, dim=1, correction=0)
        return values, order, torch.max(h, 1).values, torch.maximum(h, self.alpha).std(1), spread


def cleared(rows, count):
    rows[:count] = 0.0
    return count


class Outside(nn.Module):
    """What a graph has otherwise, or not at all."""

    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(4, 4)

    def forward(self, x, steps: int = 3):
        h = Doubled.apply(x)
        while h.abs().max() < 10:
            h = self.cell(h) * 1000
        with torch.no_grad():
            h = h + 1
        for _ in range(steps):
            h = torch.gru_cell(x, h, self.cell.weight_ih, self.cell.weight_hh)
        assert steps > 5 or (h > 0).all()
        is_empty = not (x > 0).all() and steps > 1
        is_short = not steps > 1 and x is not None
        if not is_empty:
            raise ValueError("not all are above 0")
        if is_short:
            raise ValueError("too short")
        h[h > 1] = 0
        cleared(h, 2)
        h = h.index_reduce(1, torch.tensor([0]), h[:, :1], "mean")
        h[h > 1] = h.sum(1)
        h = torch.add(h, x, out=torch.empty_like(h))
        h = h - h.var(1, keepdim=True, correction=int(steps))
        return F.dropout(h, 0.1, self.training), h.unique(), h.sum().item(), torch.mode(h, 1)


class Chosen(nn.Module):
    """Parts of what is sorted, tied weights, complex numbers, and numbers of a dtype."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(9, 6)
        self.mix = nn.Linear(6, 6)
        self.norm = nn.LayerNorm(6)
        self.register_buffer("upper", torch.ones(9, 9).triu_(1))

    def forward(self, tokens):
        x = self.norm(F.linear(self.table(tokens), self.mix.weight, self.mix.bias))
        logits = F.linear(x, self.table.weight) @ self.upper
        top, where = logits.topk(3, dim=-1)
        best = logits.topk(k=2)[1]
        low = torch.min(logits) + torch.max(logits, -logits).mean()
        z = torch.view_as_complex(x.reshape(*x.shape[:-1], 3, 2))
        turned = torch.view_as_real(z * torch.polar(torch.ones(3), torch.arange(3.0))).flatten(-2)
        hidden = logits.masked_fill(logits < low, torch.finfo(logits.dtype).min)
        turned = turned.unflatten(-1, (2, 3)).flatten(2)
        return top, where, best, turned, hidden.softmax(-1), torch.linalg.qr(x)[1].abs()


def zoo_network():
    return zoo.network(classes=3)


def zoo_dense():
    made = zoo.dense()
    made.head.add_module("relu", nn.ReLU())
    return made


def zoo_opaque():
    return zoo.opaque()


MADE = Branches()
