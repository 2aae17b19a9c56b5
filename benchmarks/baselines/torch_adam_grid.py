#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""torch's Adam on the CPU over a grid of tensor counts and sizes: JSON rows on stdout.

Modes: single (eager loop), foreach, fused, compiled (torch.compile of the single-tensor step).
`gallop suite adam-grid --with torch` keeps one process a mode (--serve) and asks each for a cell
right after its own, so that drift of the machine hits both and torch's modes do not disturb each
other.
"""
import argparse
import json
import sys
import time


def numbers(text):
    return [int(x) for x in text.split(",")]


def make_step(torch, mode, count, size):
    params = [torch.randn(size) for _ in range(count)]
    for p in params:
        p.grad = torch.randn(size) * 0.01
    flags = {"single": dict(foreach=False), "foreach": dict(foreach=True), "fused": dict(fused=True),
             "compiled": dict(foreach=False)}[mode]
    if mode == "compiled":
        flags["lr"] = torch.tensor(1e-3)  # a float would be compiled into the code
        torch._dynamo.reset()  # beyond 8 versions of one function it would not compile
    step = torch.optim.Adam(params, **flags).step
    return torch.compile(step) if mode == "compiled" else step


def measure(step, limit):
    """Medians of samples of at least a millisecond each, after a warm-up of the same length."""
    def run(k):
        start = time.perf_counter()
        for _ in range(k):
            step()
        return (time.perf_counter() - start) / k

    run(3)
    k = max(1, int(1e-3 / max(run(1), 1e-7)))
    run(k)
    samples, deadline = [], time.perf_counter() + limit
    while len(samples) < 5 or (time.perf_counter() < deadline and len(samples) < 200):
        samples.append(run(k))
    samples.sort()
    return samples, k


def cell(torch, mode, count, size, args):
    """One row; without times, but with `error`, where torch cannot do it or it was left out."""
    row = dict(contender="torch_" + mode, num_params=count, param_size=size,
               threads=torch.get_num_threads(), torch=torch.__version__)
    if mode == "compiled" and count > args.compiled_tensors:
        return dict(row, error=f"left out beyond {args.compiled_tensors} tensors: compiles for minutes")
    try:
        with torch.no_grad():
            samples, k = measure(make_step(torch, mode, count, size), args.time_limit)
    except Exception as e:  # a mode torch cannot do here is a result, not a crash
        return dict(row, error=str(e).splitlines()[0] if str(e) else type(e).__name__)
    n = len(samples)
    return dict(row, median_ms=samples[n // 2] * 1e3, p5_ms=samples[n // 20] * 1e3,
                p95_ms=samples[n - 1 - n // 20] * 1e3, samples=n, iterations_per_sample=k)


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--threads", type=int, default=0)
    ap.add_argument("--tensors", type=numbers, default=[1, 2, 4, 8, 16, 32])
    ap.add_argument("--size", type=numbers, default=[16384, 65536, 262144, 1048576, 4194304])
    ap.add_argument("--modes", default="single,foreach,fused,compiled")
    ap.add_argument("--time-limit", type=float, default=0.5, help="seconds for each cell and mode")
    ap.add_argument("--compiled-tensors", type=int, default=4,
                    help="leave compiled out beyond this many tensors: it compiles for minutes")
    ap.add_argument("--serve", action="store_true",
                    help="answer each line 'COUNT SIZE' on stdin with a line of rows")
    args = ap.parse_args()
    try:
        import torch
    except ImportError as e:
        print(json.dumps({"error": str(e)}), flush=True)
        return 1
    if args.threads > 0:
        torch.set_num_threads(args.threads)
    modes = args.modes.split(",")
    if args.serve:
        print(json.dumps({"torch": torch.__version__}), flush=True)
        for line in sys.stdin:
            count, size = numbers(line.replace(" ", ","))
            rows = [cell(torch, mode, count, size, args) for mode in modes]
            print(json.dumps({"rows": rows}), flush=True)
        return 0
    rows = []
    for size in args.size:
        for count in args.tensors:
            rows += [cell(torch, mode, count, size, args) for mode in modes]
            print(f"torch {count}x{size}", file=sys.stderr, flush=True)
    print(json.dumps({"rows": rows}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
