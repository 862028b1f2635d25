"""Sizes of the programs: `device` keeps a data-center GPU busy for milliseconds, `small` runs quickly on any CPU."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """Numbers from which programs build their tensors and loops."""

    width: int  # columns and rows of a weight whose product keeps the GPU busy
    batch: int  # rows of such a product
    layers: int
    host_s: float  # duration of a piece of host work, seconds
    rows: int  # samples of a batch that a loader reads one by one
    copied: int  # elements of a batch that is copied to the device
    vector: int  # elements of a tensor whose elementwise work is memory-bound
    chain: int  # number of small operators in a row
    tiny: int  # columns of a small operator
    tokens: int  # number of tokens that a step decodes
    hidden: int  # columns of the decoder
    parameters: int  # layers whose parameters the optimizer updates one by one
    objects: int  # Python objects that garbage collection visits
    ranks: int
    rank_width: int  # columns of a layer that several ranks train


SIZES = {
    "device": Sizes(
        width=2048,
        batch=4096,
        layers=3,
        host_s=0.004,
        rows=16,
        copied=32 << 20,
        vector=64 << 20,
        chain=60,
        tiny=64,
        tokens=4,
        hidden=512,
        parameters=40,
        objects=40_000,
        ranks=4,
        rank_width=512,
    ),
    "small": Sizes(
        width=32,
        batch=16,
        layers=2,
        host_s=0.0005,
        rows=4,
        copied=1 << 12,
        vector=1 << 12,
        chain=8,
        tiny=16,
        tokens=2,
        hidden=32,
        parameters=4,
        objects=1000,
        ranks=2,
        rank_width=16,
    ),
}
