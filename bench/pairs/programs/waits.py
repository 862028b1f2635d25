"""Programs in which the host waits for the GPU in the middle of a step."""

from __future__ import annotations

import torch

from bench.pairs.context import Context
from bench.pairs.parts import mlp, train, work_on_host
from bench.pairs.program import Step, program

WAITS = ("synchronization", "host_between_operators", "host_operators", "gpu_computing")
OTHERS = ("copies", "data_loading", "allocation", "communication", "optimizer")


@program(
    change="no .item() after each micro-batch",
    causes=WAITS[:2],
    forbidden=OTHERS,
    whatif=("--remove", "wait:aten::item"),
    fix="do_not_wait",
    steps=4,
)
def item_each_micro_batch(c: Context) -> Step:
    """Build a step in which each wait is followed by host work that takes as long as the GPU's work."""
    net, x = mlp(c, c.sizes.width, c.sizes.layers), c.randn(c.sizes.batch // 2, c.sizes.width)

    def step(i: int) -> object:
        total = 0.0
        for _ in range(4):
            loss = train(net, x)
            if not c.changed:
                total += loss.item()
            work_on_host(c.sizes.host_s)
        return total

    return step


@program(
    change="the loss stays on the device",
    causes=("host_operators", "synchronization", "launching"),
    forbidden=OTHERS,
    whatif=("--remove", "wait:aten::item"),
    fix="do_not_wait",
)
def item_each_step(c: Context) -> Step:
    """Build a step in which GPU and host take turns, and each works for about the same time."""
    net = mlp(c, c.sizes.width // 2, 2 * c.sizes.layers)
    x = c.randn(c.sizes.batch // 2, c.sizes.width // 2)
    total = torch.zeros((), device=c.device)

    def step(i: int) -> object:
        loss = train(net, x)
        return total.add_(loss) if c.changed else loss.item()

    return step


@program(
    change="no nonzero()",
    causes=("host_operators", "synchronization", "gpu_computing", "launching"),
    forbidden=OTHERS,
    whatif=("--remove", "aten::nonzero"),
    fix="do_not_wait",
    note="the operator goes, too, with its kernels and copies, not only its wait",
)
def nonzero_each_layer(c: Context) -> Step:
    net, x = mlp(c, c.sizes.width, c.sizes.layers), c.randn(c.sizes.batch // 4, c.sizes.width)

    def step(i: int) -> object:
        n, y = 0, x
        with torch.no_grad():
            for part in net:
                y = part(y)
                if not c.changed:
                    n += (y[:, 0] > 0).nonzero().shape[0]
                else:
                    _ = y[:, 0] > 0
        return n

    return step


@program(
    change="a product with the mask instead of a selection",
    causes=("host_operators", "synchronization", "gpu_computing", "launching"),
    forbidden=OTHERS,
    whatif=("--remove", "aten::index"),
    fix="do_not_wait",
    note="the selection goes with its operators and kernels, not only its wait, and a product comes instead",
)
def boolean_mask(c: Context) -> Step:
    net, x = mlp(c, c.sizes.width, c.sizes.layers), c.randn(c.sizes.batch // 4, c.sizes.width)
    mask = x[:, 0] > 0

    def step(i: int) -> object:
        y = x
        with torch.no_grad():
            for part in net:
                y = part(y)
                (y * mask[:, None]).sum() if c.changed else y[mask].sum()
        return y

    return step


@program(
    change="tokens are read a step later, from pinned memory",
    causes=("host_between_operators", "synchronization", "host_operators", "gpu_computing"),
    forbidden=("data_loading", "allocation", "communication", "optimizer"),
    whatif=("--remove", "wait:aten::_to_copy"),
    fix="do_not_wait",
    stack=True,
)
def tolist_each_step(c: Context) -> Step:
    """Build a step in which the host handles tokens after reading them."""
    net, x = mlp(c, c.sizes.width, c.sizes.layers), c.randn(c.sizes.batch // 2, c.sizes.width)
    buffers = [c.pinned(torch.zeros(c.sizes.batch // 2, dtype=torch.long)) for _ in range(2)]
    events = [c.event() for _ in range(2)]
    for event in events:
        event.record()

    def handle_tokens(tokens: list[int]) -> int:
        work_on_host(c.sizes.host_s)
        return len(tokens)

    def step(i: int) -> object:
        with torch.no_grad():
            tokens = net(x).argmax(-1)
        if not c.changed:
            return handle_tokens(tokens.tolist())
        buffers[i % 2].copy_(tokens, non_blocking=True)
        events[i % 2].record()
        events[1 - i % 2].synchronize()
        return handle_tokens(buffers[1 - i % 2].tolist())

    return step


@program(
    change="one copy of all metrics instead of one of each",
    causes=("host_operators", "synchronization", "copies", "launching", "host_between_operators"),
    forbidden=("data_loading", "allocation", "communication", "optimizer", "gpu_computing"),
    fix="do_not_wait",
    note="all copies but one go, too, with their operators, not only their waits",
)
def metrics_to_cpu(c: Context) -> Step:
    x = c.randn(256, c.sizes.tiny)

    def step(i: int) -> object:
        metrics = [(x * k).mean() for k in range(c.sizes.chain // 2)]
        if c.changed:
            return torch.stack(metrics).cpu()
        return [metric.cpu() for metric in metrics]

    return step


@program(
    change="no synchronize() after each layer",
    causes=("synchronization", "host_operators", "gpu_computing"),
    forbidden=OTHERS,
    whatif=("--remove", "wait:cudaDeviceSynchronize"),
    fix="do_not_wait",
)
def synchronize_each_layer(c: Context) -> Step:
    net, x = mlp(c, c.sizes.width, 2 * c.sizes.layers), c.randn(c.sizes.batch // 16, c.sizes.width)

    def step(i: int) -> object:
        y = x
        with torch.no_grad():
            for part in net:
                y = part(y)
                if not c.changed:
                    c.sync()
        return y

    return step


@program(
    change="no check of the loss on the host",
    causes=("synchronization", "host_operators", "host_between_operators", "gpu_computing"),
    forbidden=OTHERS,
    whatif=("--remove", "wait:aten::is_nonzero"),
    fix="do_not_wait",
)
def finite_check(c: Context) -> Step:
    net, x = mlp(c, c.sizes.width, c.sizes.layers), c.randn(c.sizes.batch // 4, c.sizes.width)

    def step(i: int) -> object:
        for _ in range(2):
            finite = torch.isfinite(train(net, x))
            if not c.changed and not finite:
                raise ValueError("the loss is not finite")
            work_on_host(c.sizes.host_s / 2)
        return None

    return step


@program(
    change="the norm of each gradient stays on the device",
    causes=("host_operators", "synchronization", "launching", "host_between_operators"),
    forbidden=("data_loading", "allocation", "communication", "gpu_computing"),
    whatif=("--remove", "aten::item"),
    fix="do_not_wait",
    note="right after a wait the host is slower (a launch takes 8.9 us, 7.3 in the second run); the fix also leaves the copies",
)
def norm_of_each_parameter(c: Context) -> Step:
    net, x = mlp(c, 4 * c.sizes.tiny, c.sizes.parameters // 2), c.randn(256, 4 * c.sizes.tiny)
    net(x).pow(2).mean().backward()

    def step(i: int) -> object:
        norms = []
        for parameter in net.parameters():
            norm = parameter.grad.norm() if parameter.grad is not None else None
            norms.append(norm if c.changed or norm is None else norm.item())
        return norms

    return step


@program(
    change="correct predictions are counted on the device",
    causes=("host_between_operators", "data_loading", "host_operators", "synchronization", "gpu_computing"),
    forbidden=("allocation", "communication", "optimizer"),
    whatif=("--remove", "wait:aten::item"),
    fix="do_not_wait",
)
def evaluation(c: Context) -> Step:
    """Build an evaluation loop that prepares batches on the host, and reads the accuracy after each batch."""
    net, x = mlp(c, c.sizes.width, c.sizes.layers).eval(), c.randn(c.sizes.batch, c.sizes.width)
    labels = torch.zeros(c.sizes.batch, dtype=torch.long, device=c.device)

    def step(i: int) -> object:
        correct = torch.zeros((), dtype=torch.long, device=c.device)
        total = 0
        with torch.inference_mode():
            for _ in range(3):
                work_on_host(c.sizes.host_s / 2)
                right = (net(x).argmax(-1) == labels).sum()
                if c.changed:
                    correct += right
                else:
                    total += right.item()
        return total or correct

    return step
