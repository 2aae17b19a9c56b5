#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What a training step cannot be faster than with torch's kernels: one JSON line a case on stdout.

Every matrix product of forward and backward and every attention, nothing between them, recorded in one CUDA graph and
replayed; AdamW's bytes at the speed of a copy, measured in the same run. Activations are random and shared by products
of the same width, weights are each layer's own. Presets are torch_train.py's.
"""
import argparse
import gc
import itertools
import json
import statistics
import sys

from torch_train import find_preset, first_line, names, numbers

# AdamW in fp32 reads parameter, gradient and two moments and writes all but the gradient.
ADAMW_BYTES = 28


def layer_shapes(shape):
    """(outputs, inputs) of a layer's weights; products that share their input are one."""
    width, ff = shape["width"], shape["ff"]
    up = 2 * ff if shape["style"] == "cs336" else ff
    return [(3 * width, width), (width, width), (up, width), (width, ff)]


def parameters(shape, context):
    """All of the model, and those that are factors of products."""
    width, layers, vocab = shape["width"], shape["layers"], shape["vocab"]
    head = vocab * width
    factors = layers * sum(outputs * inputs for outputs, inputs in layer_shapes(shape)) + head
    if shape["style"] == "cs336":
        return factors + head + (2 * layers + 1) * width, factors
    biases = layers * sum(outputs for outputs, _ in layer_shapes(shape))
    return factors + max(context, shape["context"]) * width + biases + (2 * layers + 1) * 2 * width, factors


class Work:
    """The products and attentions of one step; gradients of an input and a weight are a product each."""

    def __init__(self, torch, shape, context, batch, dtype):
        def random(*size):
            return torch.randn(*size, device="cuda", dtype=dtype)

        self.torch = torch
        width, heads = shape["width"], shape["heads"]
        self.layers = [[random(o, i) * 0.02 for o, i in layer_shapes(shape)] for _ in range(shape["layers"])]
        self.head = random(shape["vocab"], width) * 0.02
        widths = {n for w in self.layers[0] + [self.head] for n in w.shape}
        self.rows = {n: random(batch * context, n) for n in widths}  # (B * T, n)
        size = (batch, heads, context, width // heads)
        self.qkv = [random(*size).requires_grad_() for _ in range(3)]
        self.grad = random(*size)

    def forward_of(self, w):
        self.torch.nn.functional.linear(self.rows[w.shape[1]], w)

    def backward_of(self, w):
        grad = self.rows[w.shape[0]]
        self.torch.mm(grad, w)
        self.torch.mm(grad.t(), self.rows[w.shape[1]])

    def attend(self):
        return self.torch.nn.functional.scaled_dot_product_attention(*self.qkv, is_causal=True)

    def attend_backward(self, out):
        self.torch.autograd.grad(out, self.qkv, self.grad)

    def forward(self):
        outs = []
        for layer in self.layers:
            for w in layer:
                self.forward_of(w)
            outs.append(self.attend())
        self.forward_of(self.head)
        return outs

    def both(self):
        outs = self.forward()
        self.backward_of(self.head)
        for layer in reversed(self.layers):
            for w in reversed(layer):
                self.backward_of(w)
            self.attend_backward(outs.pop())

    def attention(self):
        outs = [self.attend() for _ in self.layers]
        while outs:
            self.attend_backward(outs.pop())


def record(torch, run):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        run()
        run()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph


def timed(torch, run, repeats, warmup=5):
    """Milliseconds of each run, one after the other in the stream."""
    for _ in range(warmup):
        run()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    marks[0].record()
    for mark in marks[1:]:
        run()
        mark.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) for a, b in zip(marks, marks[1:])]


def replayed(torch, run, repeats):
    graph = record(torch, run)
    samples = timed(torch, graph.replay, repeats)
    del graph
    torch.cuda.empty_cache()
    return samples


def copy_gb_per_s(torch, size, repeats):
    """Bytes read and written by a copy within the device."""
    source = torch.randint(0, 255, (size,), device="cuda", dtype=torch.uint8)
    target = torch.empty_like(source)
    return 2 * size / statistics.median(timed(torch, lambda: target.copy_(source), repeats)) * 1e-6


def case(torch, args, row, model, context, batch, dtype):
    shape = find_preset(model)
    torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")
    work = Work(torch, shape, context, batch, torch.bfloat16 if dtype == "bf16" else torch.float32)
    everything, factors = parameters(shape, context)
    forward = statistics.median(replayed(torch, work.forward, args.repeats))
    samples = replayed(torch, work.both, args.repeats)
    attention = statistics.median(replayed(torch, work.attention, args.repeats))
    del work
    torch.cuda.empty_cache()
    both, flops = statistics.median(samples), 6 * factors * batch * context
    copy = copy_gb_per_s(torch, args.copy_mb << 20, args.repeats)
    adamw = everything * ADAMW_BYTES / copy * 1e-6
    row.update(params=everything, gemm_params=factors, forward_ms=forward, backward_ms=both - forward,
               gemm_and_attention_ms=both, gemm_and_attention_std_ms=statistics.stdev(samples),
               attention_ms=attention, gemm_flops=flops, gemm_tflop_per_s=flops / both * 1e-9,
               copy_gb_per_s=copy, adamw_bytes_per_parameter=ADAMW_BYTES, adamw_ms=adamw, floor_ms=both + adamw,
               floor_tokens_per_s=batch * context / (both + adamw) * 1e3, status="ok")


def attempt(torch, args, model, context, batch, dtype):
    row = dict(contender="floor", model=model, context=context, batch=batch, dtype=dtype, torch=torch.__version__,
               gpu=torch.cuda.get_device_name(), repeats=args.repeats, status="error")
    try:
        case(torch, args, row, model, context, batch, dtype)
    except Exception as e:  # what does not fit is a result, not a crash
        row["status"] = "oom" if "out of memory" in str(e).lower() else "error"
        row["message"] = first_line(e)
    gc.collect()
    torch.cuda.empty_cache()
    return row


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--model", type=names, default=["S", "M", "L", "XL", "2p7"])
    ap.add_argument("--context", type=numbers, default=[0], help="tokens of a sequence; 0: the preset's own")
    ap.add_argument("--batch", type=numbers, default=[4])
    ap.add_argument("--dtype", type=names, default=["bf16"], help="of the products: bf16, tf32, fp32")
    ap.add_argument("--repeats", type=int, default=20)
    ap.add_argument("--copy-mb", type=int, default=2048, help="size of the copy that bytes are measured by")
    args = ap.parse_args()
    for model in args.model:
        try:
            find_preset(model)
        except ValueError as e:
            ap.error(str(e))
    for dtype in args.dtype:
        if dtype not in ("bf16", "tf32", "fp32"):
            ap.error(f"dtype '{dtype}' is unknown, expected bf16, tf32 or fp32")
    if args.repeats < 2 or args.copy_mb < 1 or min(args.batch) < 1 or min(args.context) < 0:
        ap.error("--repeats below 2, --copy-mb or --batch below 1, or --context below 0")
    try:
        import torch
    except ImportError as e:
        print(json.dumps({"status": "error", "message": str(e)}), flush=True)
        return 1
    for model, context, batch, dtype in itertools.product(args.model, args.context, args.batch, args.dtype):
        row = attempt(torch, args, model, context or find_preset(model)["context"], batch, dtype)
        print(json.dumps(row), flush=True)
        what = f"{model} {batch}x{row['context']} {dtype}"
        print(f"{what}: {row['floor_ms']:.3f} ms, {row['gemm_tflop_per_s']:.0f} TFLOP/s" if row["status"] == "ok" else
              f"{what}: {row['status']}: {row['message']}", file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
