#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""torch's optimizer steps on a GPU, fused where torch has it and foreach where not: JSON rows on stdout.

A step is timed by CUDA events over a batch of steps, eager and replayed from a CUDA graph, the
host's time beside them. `gallop bench step --device cuda --with torch` keeps one process (--serve)
and asks it for each list of shapes right after its own.
"""
import argparse
import json
import statistics
import sys
import time

FUSED = {"adam": "Adam", "adamw": "AdamW", "sgd": "SGD"}
FOREACH = {"adadelta": "Adadelta", "adagrad": "Adagrad", "adamax": "Adamax", "nadam": "NAdam", "radam": "RAdam",
           "rmsprop": "RMSprop", "adafactor_torch": "Adafactor"}
NOT_CAPTURABLE = ("sgd", "adagrad", "adafactor_torch", "muon")
DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "fp64": "float64"}


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


def timed(torch, run, limit):
    """Median ms and least host ms of one run, from batches of about 2 ms."""
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


def maker(torch, optimizer, hidden):
    """What makes a list of optimizers of parameters, and what to call it; None if torch has none."""
    if optimizer == "muon" and hasattr(torch.optim, "Muon"):
        def muon_and_adamw(params, **more):
            rest = [p for p, h in zip(params, hidden) if not h]
            matrices = [p for p, h in zip(params, hidden) if h]
            return [torch.optim.Muon(matrices)] + ([torch.optim.AdamW(rest, fused=True)] if rest else [])
        return muon_and_adamw, "Muon and fused AdamW"
    name = FUSED.get(optimizer) or FOREACH.get(optimizer)
    if name is None or not hasattr(torch.optim, name):
        return None, None
    way = "fused" if optimizer in FUSED else "foreach"
    return lambda params, **more: [getattr(torch.optim, name)(params, **{way: True}, **more)], way


def row(torch, optimizer, shapes, dtype, clip_norm, limit, hidden=None):
    # In gpt2 the first two are embeddings.
    hidden = hidden or [len(s) == 2 and i > 1 for i, s in enumerate(shapes)]
    make, way = maker(torch, optimizer, hidden)
    if make is None:
        return dict(error=f"torch has no {optimizer}")
    params = [torch.randn(s, device="cuda").to(getattr(torch, DTYPES[dtype])) for s in shapes]
    for p in params:
        p.grad = torch.randn_like(p) * 0.01

    def stepper(**more):
        optimizers = make(params, **more)

        def step():
            if clip_norm > 0:
                torch.nn.utils.clip_grad_norm_(params, clip_norm, foreach=True)
            for opt in optimizers:
                opt.step()
        return step

    eager_ms, host_ms = timed(torch, stepper(), limit)
    result = dict(optimizer=optimizer, mode=f"torch {way}", param=dtype, median_ms=eager_ms, host_us=host_ms * 1e3,
                  elements=sum(p.numel() for p in params), torch=torch.__version__)
    captured = stepper(**({} if optimizer in NOT_CAPTURABLE else dict(capturable=True)))
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(3):
            captured()
    torch.cuda.synchronize()
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured()
        result["graph_ms"] = timed(torch, graph.replay, limit)[0]
    except (KeyError, RuntimeError):  # what cannot be captured has no such figure
        torch.cuda.synchronize()
    return result


def answer(torch, **question):
    try:
        return row(torch, **question)
    except Exception as e:  # out of memory is a result, not a crash
        return dict(error=str(e).splitlines()[0] if str(e) else type(e).__name__)
    finally:
        torch.cuda.empty_cache()


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--optimizer", default="adamw")
    ap.add_argument("--shapes", default="gpt2:12x768,gpt2:24x1024,gpt2:24x2048,32x16384,1000x16384")
    ap.add_argument("--dtype", default="fp32", choices=list(DTYPES))
    ap.add_argument("--clip-norm", type=float, default=0)
    ap.add_argument("--device", type=int, default=0)
    ap.add_argument("--time-limit", type=float, default=0.5)
    ap.add_argument("--serve", action="store_true",
                    help="answer each line {optimizer, shapes, hidden, dtype, clip_norm} on stdin with a line of rows")
    args = ap.parse_args()
    try:
        import torch
    except ImportError as e:
        print(json.dumps({"error": str(e)}), flush=True)
        return 1
    if torch.cuda.is_available():
        torch.cuda.set_device(args.device)
    if args.serve:
        print(json.dumps({"torch": torch.__version__}), flush=True)
        for line in sys.stdin:
            question = json.loads(line)
            print(json.dumps({"rows": [answer(torch, limit=args.time_limit, **question)]}), flush=True)
        return 0
    rows = []
    for optimizer in args.optimizer.split(","):
        for shapes in args.shapes.split(","):
            r = answer(torch, optimizer=optimizer, shapes=parse(shapes), dtype=args.dtype, clip_norm=args.clip_norm,
                       limit=args.time_limit)
            rows.append(dict(r, shapes=shapes))
            print(f"{optimizer} {shapes}: {r.get('error') or '%.4f ms' % r['median_ms']}", file=sys.stderr)
    print(json.dumps({"rows": rows}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
