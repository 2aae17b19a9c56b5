#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""torch's scaled_dot_product_attention on a GPU, each backend by itself: JSON rows on stdout.

Forward and backward are timed apart, by CUDA events over batches of calls, eager and replayed from
a CUDA graph. q, k and v are slices of one [batch, time, 3, heads, width] tensor, as in a GPT.
"""
import argparse
import json
import statistics
import time

DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
BACKENDS = {"flash": "FLASH_ATTENTION", "efficient": "EFFICIENT_ATTENTION", "cudnn": "CUDNN_ATTENTION", "math": "MATH"}


def timed(torch, run, limit):
    """Median us of one run, from batches of about 2 ms."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def batch(k):
        start.record()
        for _ in range(k):
            run()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e3 / k

    batch(3)
    k = max(1, min(100, int(2000 / max(batch(1), 1))))
    batch(k)
    samples, deadline = [], time.perf_counter() + limit
    while len(samples) < 5 or time.perf_counter() < deadline:
        samples.append(batch(k))
    return statistics.median(samples)


def both_ways(torch, run, limit):
    """(eager us, us from a graph, or None where it cannot be captured)."""
    eager = timed(torch, run, limit)
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
            run()
        return eager, timed(torch, graph.replay, limit)
    except RuntimeError:
        torch.cuda.synchronize()
        return eager, None


def measure(torch, backend, batch, heads, steps, width, dtype, causal, limit):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    attention = torch.nn.functional.scaled_dot_product_attention
    packed = torch.randn(batch, steps, 3, heads, width, device="cuda", dtype=getattr(torch, DTYPES[dtype]))
    q, k, v = (packed[:, :, i].transpose(1, 2).detach().requires_grad_() for i in range(3))
    d_o = torch.randn(batch, steps, heads, width, device="cuda", dtype=packed.dtype).transpose(1, 2)
    with sdpa_kernel(getattr(SDPBackend, BACKENDS[backend])):
        with torch.no_grad():
            forward = both_ways(torch, lambda: attention(q, k, v, is_causal=causal), limit)
        o = attention(q, k, v, is_causal=causal)
        backward = both_ways(torch, lambda: torch.autograd.grad(o, (q, k, v), d_o, retain_graph=True), limit)
    return dict(forward_us=forward[0], forward_graph_us=forward[1], backward_us=backward[0],
                backward_graph_us=backward[1], peak_mb=torch.cuda.max_memory_allocated() / 1e6)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("shapes", nargs="+", help="BATCHxHEADSxTIMExWIDTH")
    p.add_argument("--dtypes", nargs="+", default=["bf16"], choices=DTYPES)
    p.add_argument("--backends", nargs="+", default=list(BACKENDS), choices=BACKENDS)
    p.add_argument("--full", action="store_true", help="no causal mask")
    p.add_argument("--deterministic", action="store_true", help="torch.use_deterministic_algorithms")
    p.add_argument("--limit", type=float, default=0.1, help="seconds per figure")
    args = p.parse_args()
    import torch
    import warnings
    warnings.simplefilter("ignore")  # why a backend does not take a shape
    torch.use_deterministic_algorithms(args.deterministic, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    stream = torch.cuda.Stream()
    for shape in args.shapes:
        batch, heads, steps, width = (int(x) for x in shape.split("x"))
        for dtype in args.dtypes:
            for backend in args.backends:
                row = dict(shape=shape, dtype=dtype, causal=not args.full, backend=backend,
                           deterministic=args.deterministic, torch=torch.__version__,
                           cudnn=torch.backends.cudnn.version(), gpu=torch.cuda.get_device_name())
                torch.cuda.reset_peak_memory_stats()
                try:
                    with torch.cuda.stream(stream):  # backward runs where forward did, so both on one to be captured
                        row |= dict(status="ok", **measure(torch, backend, batch, heads, steps, width, dtype,
                                                           not args.full, args.limit))
                except torch.cuda.OutOfMemoryError:
                    row["status"] = "oom"
                except RuntimeError as e:
                    row |= dict(status="unsupported", why=str(e).splitlines()[0])
                torch.cuda.empty_cache()
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
