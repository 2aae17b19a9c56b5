#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Seconds until the first steps of a compiled torch optimizer: torch_compile_start.py [cpu|cuda].

Run it twice: the second process finds torch's caches filled. The device is woken up and torch
imported before the clock starts.
"""
import sys
import time

import torch


def main():
    device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
    params = [torch.randn(256, 256, device=device, requires_grad=True) for _ in range(2)]
    for p in params:
        p.grad = torch.randn_like(p)
    optimizer = torch.optim.AdamW(params, lr=torch.tensor(1e-3), capturable=device == "cuda")
    if device == "cuda":
        torch.cuda.synchronize()
    step = torch.compile(optimizer.step)
    for which in ("first", "second"):
        begin = time.perf_counter()
        step()
        if device == "cuda":
            torch.cuda.synchronize()
        print(f"torch {torch.__version__}, {device}: {which} compiled step after {time.perf_counter() - begin:.2f} s")


main()
