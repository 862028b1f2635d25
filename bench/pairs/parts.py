"""Parts that programs share: models, and host work of a fixed duration."""

from __future__ import annotations

import time
import zlib

import torch
from torch import nn
from torch.nn import functional as F

from bench.pairs.context import Context

_BLOCK = bytes(1 << 17)


def work_on_host(seconds: float) -> None:
    """Compute on the host for this long. Each call is long enough that a recorded stack stays small."""
    end, checksum = time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        checksum = zlib.crc32(_BLOCK, checksum)


def mlp(c: Context, width: int, layers: int) -> nn.Sequential:
    return nn.Sequential(*[part for _ in range(layers) for part in (nn.Linear(width, width), nn.GELU())]).to(c.device)


def train(net: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    """Run forward and backward once, drop the gradients, and return the loss."""
    loss = net(batch).pow(2).mean()
    loss.backward()
    net.zero_grad(set_to_none=True)
    return loss.detach()


class Layer(nn.Module):
    """A transformer layer that decodes one token and keeps keys and values in a cache of fixed length."""

    def __init__(self, hidden: int, length: int, batch: int, device: str) -> None:
        super().__init__()
        self.heads = 4
        self.norm1, self.norm2 = nn.LayerNorm(hidden, device=device), nn.LayerNorm(hidden, device=device)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden, device=device), nn.Linear(hidden, hidden, device=device)
        self.up, self.down = nn.Linear(hidden, 4 * hidden, device=device), nn.Linear(4 * hidden, hidden, device=device)
        self.keys = torch.zeros(batch, self.heads, length, hidden // self.heads, device=device)
        self.values = torch.zeros_like(self.keys)

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm1(x)).view(x.shape[0], 1, 3 * self.heads, -1).transpose(1, 2).chunk(3, dim=1)
        self.keys.index_copy_(2, position, k)
        self.values.index_copy_(2, position, v)
        attended = F.scaled_dot_product_attention(q, self.keys, self.values)
        x = x + self.out(attended.transpose(1, 2).reshape(x.shape[0], 1, -1))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Decoder(nn.Module):
    """A toy language model with greedy decoding, one token of each sequence per call."""

    def __init__(self, c: Context, batch: int = 4, length: int = 64, vocabulary: int = 1024) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, c.sizes.hidden, device=c.device)
        self.stack = nn.ModuleList(Layer(c.sizes.hidden, length, batch, c.device) for _ in range(c.sizes.layers))
        self.head = nn.Linear(c.sizes.hidden, vocabulary, device=c.device)
        self.token = torch.zeros(batch, 1, dtype=torch.long, device=c.device)
        self.position = torch.zeros(1, dtype=torch.long, device=c.device)
        self.length = length

    @torch.no_grad()
    def decode(self) -> torch.Tensor:
        """Decode the next token of each sequence into `token`, and return it."""
        x = self.embedding(self.token)
        for layer in self.stack:
            x = layer(x, self.position)
        self.token.copy_(self.head(x).argmax(-1))
        self.position.add_(1).remainder_(self.length)
        return self.token
