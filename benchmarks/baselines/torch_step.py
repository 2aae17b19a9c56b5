#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""torch's fused Adam and AdamW on a GPU, over the shapes of `gallop bench step`: JSON rows on stdout.

Each step is timed by CUDA events over a batch of steps, eager and replayed from a CUDA graph; the
ceiling is a copy within the device in the same process.
"""
import argparse
import json
import statistics
import sys
import time

import torch


def gpt2(layers, width, vocabulary=49280, context=2048):
    shapes = [(vocabulary, width), (context, width)]
    for _ in range(layers):
        shapes += [(width,), (width,), (3 * width, width), (3 * width,), (width, width), (width,), (width,), (width,),
                   (4 * width, width), (4 * width,), (width, 4 * width), (width,)]
    return shapes + [(width,), (width,)]


def parse(text):
    """gpt2:12x768, or 32x16384 for that many tensors of that size."""
    if text.startswith("gpt2:"):
        return gpt2(*(int(x) for x in text[5:].split("x")))
    count, size = (int(x) for x in text.split("x"))
    return [(size,)] * count


def timed(run, limit):
    """Median ms and host ms of one run, from batches of about 2 ms."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def batch(k):
        start.record()
        before = time.perf_counter()
        for _ in range(k):
            run()
        host = (time.perf_counter() - before) * 1e3
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / k, host / k

    batch(3)
    k = max(1, min(100, int(2 / max(batch(1)[0], 1e-3))))
    batch(k)
    samples, deadline = [], time.perf_counter() + limit
    while len(samples) < 5 or time.perf_counter() < deadline:
        samples.append(batch(k))
    return statistics.median(s[0] for s in samples), min(s[1] for s in samples)


def row(optimizer, shapes, dtype, limit):
    params = [torch.randn(s, device="cuda", dtype=dtype) for s in parse(shapes)]
    for p in params:
        p.grad = torch.randn_like(p) * 0.01
    make = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[optimizer]
    eager = make(params, fused=True)
    eager_ms, host_ms = timed(eager.step, limit)
    del eager
    captured = make(params, fused=True, capturable=True)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            captured.step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured.step()
    graph_ms, _ = timed(graph.replay, limit)
    return dict(contender=f"torch_fused_{optimizer}", shapes=shapes, param=str(dtype).replace("torch.", ""),
                elements=sum(p.numel() for p in params), median_ms=eager_ms, host_us=host_ms * 1e3,
                graph_ms=graph_ms, torch=torch.__version__)


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--optimizer", default="adamw")
    ap.add_argument("--shapes", default="gpt2:12x768,gpt2:24x1024,gpt2:24x2048,32x16384,1000x16384")
    ap.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    ap.add_argument("--time-limit", type=float, default=0.5)
    args = ap.parse_args()
    source = torch.empty(1 << 31, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    copy_ms, _ = timed(lambda: target.copy_(source), args.time_limit)
    del source, target
    ceiling = 2 * (1 << 31) / copy_ms * 1e-6
    rows = []
    for optimizer in args.optimizer.split(","):
        for shapes in args.shapes.split(","):
            r = row(optimizer, shapes, getattr(torch, args.dtype), args.time_limit)
            rows.append(dict(r, ceiling_gb_per_s=ceiling))
            print(f"{optimizer} {shapes}: {r['median_ms']:.4f} ms, graph {r['graph_ms']:.4f} ms", file=sys.stderr)
            torch.cuda.empty_cache()
    print(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()
