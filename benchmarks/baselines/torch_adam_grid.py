#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""torch's Adam on the CPU over a grid of tensor counts and sizes: JSON rows on stdout.

Modes: single (eager loop), foreach, fused, compiled (torch.compile of the single-tensor step).
`gallop suite adam-grid --with torch` runs this and merges the rows into its own table.
"""
import argparse
import json
import sys
import time

import torch


def numbers(text):
    return [int(x) for x in text.split(",")]


def make_step(mode, count, size):
    params = [torch.randn(size) for _ in range(count)]
    for p in params:
        p.grad = torch.randn(size) * 0.01
    flags = {"single": dict(foreach=False), "foreach": dict(foreach=True), "fused": dict(fused=True),
             "compiled": dict(foreach=False)}[mode]
    if mode == "compiled":  # a float rate would be compiled into the code
        flags["lr"] = torch.tensor(1e-3)
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


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--threads", type=int, default=0)
    ap.add_argument("--tensors", type=numbers, default=[1, 2, 4, 8, 16, 32])
    ap.add_argument("--size", type=numbers, default=[16384, 65536, 262144, 1048576, 4194304])
    ap.add_argument("--modes", default="single,foreach,fused,compiled")
    ap.add_argument("--time-limit", type=float, default=0.5, help="seconds for each cell and mode")
    ap.add_argument("--compiled-tensors", type=int, default=4,
                    help="leave compiled out beyond this many tensors: it compiles for minutes")
    args = ap.parse_args()
    if args.threads > 0:
        torch.set_num_threads(args.threads)
    rows = []
    with torch.no_grad():
        for size in args.size:
            for count in args.tensors:
                for mode in args.modes.split(","):
                    if mode == "compiled" and count > args.compiled_tensors:
                        continue
                    try:
                        samples, k = measure(make_step(mode, count, size), args.time_limit)
                    except Exception as e:  # a mode torch cannot do here is a result, not a crash
                        print(f"torch {mode} {count}x{size}: {e}", file=sys.stderr)
                        continue
                    n = len(samples)
                    rows.append(dict(contender="torch_" + mode, num_params=count, param_size=size,
                                     threads=torch.get_num_threads(), torch=torch.__version__,
                                     median_ms=samples[n // 2] * 1e3, p5_ms=samples[n // 20] * 1e3,
                                     p95_ms=samples[n - 1 - n // 20] * 1e3, samples=n,
                                     iterations_per_sample=k))
                print(f"torch {count}x{size}", file=sys.stderr, flush=True)
    print(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()
