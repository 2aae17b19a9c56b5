#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""torch's training steps of decoders, forward, backward and optimizer apart: one JSON line a case on stdout.

Steps follow each other without waiting, as in training; times are between CUDA events in the stream (the clock on the
CPU). A step is from its beginning to that of the next. First steps, which compile, and warm-up are reported apart.
Memory is read in steps of its own. MB are 2^20 bytes. Peaks are torch's counter, which does not see into a replayed
graph, and the driver's: how much less was free than before the model was made, which includes what torch keeps.

Presets: S M L XL 2p7 (CS336: RMSNorm, SwiGLU, rotary positions, no biases, untied) and 124M 355M 774M 1.5B nano (GPT-2:
LayerNorm, GELU by tanh, learned positions, biases, tied).
"""
import argparse
import gc
import itertools
import json
import resource
import statistics
import subprocess
import sys
import time

MB = 2.0**20
DTYPES = ("fp32", "tf32", "bf16", "bf16pure")
MODES = {"eager": None, "compile": "default", "graphs": "reduce-overhead"}


def preset(style, width, ff, layers, heads, vocab, context):
    return dict(style=style, width=width, ff=ff, layers=layers, heads=heads, vocab=vocab, context=context)


def cs336(width, ff, layers, heads):
    return preset("cs336", width, ff, layers, heads, 10000, 256)


def gpt2(width, layers, heads):
    return preset("gpt2", width, 4 * width, layers, heads, 50257, 1024)


PRESETS = {
    "S": cs336(768, 3072, 12, 12), "M": cs336(1024, 4096, 24, 16), "L": cs336(1280, 5120, 36, 20),
    "XL": cs336(1600, 6400, 48, 25), "2p7": cs336(2560, 10240, 32, 32),
    "124M": gpt2(768, 12, 12), "355M": gpt2(1024, 24, 16), "774M": gpt2(1280, 36, 20), "1.5B": gpt2(1600, 48, 25),
    "nano": preset("gpt2", 128, 512, 4, 4, 256, 128),
}


def names(text):
    return text.split(",")


def numbers(text):
    return [int(x) for x in text.split(",")]


def find_preset(name):
    for known, shape in PRESETS.items():
        if name.lower() in (known.lower(), f"{shape['style']}-{known}".lower()):
            return shape
    raise ValueError(f"model '{name}' is unknown, expected one of {', '.join(PRESETS)}")


def build(torch, shape, context, attention, device):
    """The decoder with its loss: tokens (B, T) and targets (B, T) to a number."""
    nn, F = torch.nn, torch.nn.functional
    rotary, width, heads = shape["style"] == "cs336", shape["width"], shape["heads"]
    head_width = width // heads

    def linear(inputs, outputs):
        return nn.Linear(inputs, outputs, bias=not rotary)

    def norm():
        return nn.RMSNorm(width, eps=1e-5) if rotary else nn.LayerNorm(width, eps=1e-5)

    def rotate(x, cos, sin):  # (B, H, T, D), pairs of neighbours
        even, odd = x[..., 0::2], x[..., 1::2]
        turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)
        return turned.flatten(-2).to(x.dtype)

    def attend(q, k, v, hidden):
        if attention == "sdpa":
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        scores = (q @ k.transpose(-2, -1)) * head_width**-0.5
        return torch.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1) @ v

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = norm(), norm()
            self.qkv, self.out = linear(width, 3 * width), linear(width, width)
            self.up, self.down = linear(width, shape["ff"]), linear(shape["ff"], width)
            self.gate = linear(width, shape["ff"]) if rotary else None

        def forward(self, x, cos, sin, hidden):
            batch, length, _ = x.shape
            qkv = self.qkv(self.norm1(x)).view(batch, length, 3, heads, head_width)
            q, k, v = qkv.permute(2, 0, 3, 1, 4)
            if rotary:
                q, k = rotate(q, cos, sin), rotate(k, cos, sin)
            x = x + self.out(attend(q, k, v, hidden).transpose(1, 2).reshape(batch, length, width))
            y = self.norm2(x)
            if rotary:
                return x + self.down(F.silu(self.gate(y)) * self.up(y))
            return x + self.down(F.gelu(self.up(y), approximate="tanh"))

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(shape["vocab"], width)
            self.positions = None if rotary else nn.Embedding(max(context, shape["context"]), width)
            self.blocks = nn.ModuleList(Block() for _ in range(shape["layers"]))
            self.norm = norm()
            self.head = nn.Linear(width, shape["vocab"], bias=False)
            for p in self.parameters():
                if p.dim() == 2:
                    nn.init.normal_(p, std=0.02)
            if not rotary:
                self.head.weight = self.tokens.weight
            # Plain attributes: they stay fp32 when the parameters do not.
            frequencies = 10000.0 ** (-torch.arange(0, head_width, 2, dtype=torch.float32) / head_width)
            angles = torch.outer(torch.arange(context, dtype=torch.float32), frequencies)
            self.cos, self.sin = angles.cos(), angles.sin()
            self.at = torch.arange(context)
            self.hidden = None
            if attention == "naive":
                self.hidden = torch.ones(context, context, dtype=torch.bool).triu(1)

        def forward(self, tokens, targets):
            x = self.tokens(tokens)
            if self.positions is not None:
                x = x + self.positions(self.at)
            for block in self.blocks:
                x = block(x, self.cos, self.sin, self.hidden)
            logits = self.head(self.norm(x))
            return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())

    with torch.device(device):
        return Decoder()


class Case:
    """One model with its optimizer and data, and what is done in a step."""

    def __init__(self, torch, args, model, context, batch, dtype, mode):
        shape = find_preset(model)
        self.torch, self.gpu, self.mode, self.dtype = torch, args.device == "cuda", mode, dtype
        self.device = args.device
        if not self.gpu and (dtype == "tf32" or mode == "graphs"):
            raise ValueError(f"{dtype} in mode {mode} on the CPU, expected --device cuda")
        torch.manual_seed(args.seed)
        torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")
        torch._dynamo.reset()
        self.model = build(torch, shape, context, args.attention, args.device)
        if dtype == "bf16pure":
            for p in self.model.parameters():
                p.data = p.data.bfloat16()
        self.parameters = list(self.model.parameters())
        self.run = self.model if mode == "eager" else torch.compile(self.model, mode=MODES[mode])
        self.optimizer = None
        if args.optimizer == "adamw":
            self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-4, fused=True if self.gpu else None)
        tokens = torch.randint(0, shape["vocab"], (batch, context + 1), device=args.device)
        self.tokens, self.targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    def begin(self):
        for p in self.parameters:
            p.grad = None
        if self.mode == "graphs":
            self.torch.compiler.cudagraph_mark_step_begin()

    def forward(self):
        with self.torch.autocast(self.device, self.torch.bfloat16, enabled=self.dtype == "bf16"):
            return self.run(self.tokens, self.targets)

    def update(self):
        if self.optimizer is not None:
            self.optimizer.step()

    def step(self):
        self.begin()
        loss = self.forward()
        loss.backward()
        self.update()
        return loss

    def wait(self):
        if self.gpu:
            self.torch.cuda.synchronize()

    def seconds(self, steps):
        self.wait()
        start = time.perf_counter()
        for _ in range(steps):
            self.step()
        self.wait()
        return time.perf_counter() - start

    def mark(self):
        if not self.gpu:
            return time.perf_counter()
        event = self.torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def ms(self, begin, end):
        return begin.elapsed_time(end) if self.gpu else (end - begin) * 1e3

    def timed(self, steps):
        """Times of each step and its parts in ms, and the last loss."""
        marks, loss = [], None
        self.wait()
        for _ in range(steps):
            start = self.mark()
            self.begin()
            ready = self.mark()
            loss = self.forward()
            forward = self.mark()
            loss.backward()
            backward = self.mark()
            self.update()
            marks.append((start, ready, forward, backward, self.mark()))
        end = self.mark()
        self.wait()
        starts = [m[0] for m in marks] + [end]
        parts = dict(step=[self.ms(a, b) for a, b in zip(starts, starts[1:])],
                     forward=[self.ms(m[1], m[2]) for m in marks], backward=[self.ms(m[2], m[3]) for m in marks])
        if self.optimizer is not None:
            parts["optimizer"] = [self.ms(m[3], m[4]) for m in marks]
        return parts, float(loss)

    def bytes_of(self, what):
        if what == "parameters":
            tensors = self.parameters
        elif what == "gradients":
            tensors = [p.grad for p in self.parameters if p.grad is not None]
        else:
            states = self.optimizer.state.values() if self.optimizer else []
            tensors = [t for s in states for t in s.values() if self.torch.is_tensor(t) and t.is_cuda]
        return sum(t.numel() * t.element_size() for t in tensors)

    def memory(self):
        """MB in one step by torch's counter."""
        cuda = self.torch.cuda
        self.begin()
        self.wait()
        cuda.reset_peak_memory_stats()
        held = sum(self.bytes_of(w) for w in ("parameters", "gradients", "state"))
        found = dict(parameters_mb=self.bytes_of("parameters"), state_mb=self.bytes_of("state"),
                     before_step_mb=cuda.memory_allocated())
        loss = self.forward()
        self.wait()
        found.update(after_forward_mb=cuda.memory_allocated(), forward_peak_mb=cuda.max_memory_allocated(),
                     activation_peak_mb=cuda.max_memory_allocated() - held,
                     forward_growth_mb=cuda.max_memory_allocated() - found["before_step_mb"])
        loss.backward()
        self.wait()
        found.update(after_backward_mb=cuda.memory_allocated(), gradients_mb=self.bytes_of("gradients"))
        self.update()
        self.wait()
        found.update(after_step_mb=cuda.memory_allocated(), torch_peak_mb=cuda.max_memory_allocated())
        return {name: value / MB for name, value in found.items()}


def summary(samples, name):
    spread = statistics.stdev(samples) if len(samples) > 1 else 0.0
    return {f"{name}_ms": statistics.median(samples), f"{name}_mean_ms": statistics.fmean(samples),
            f"{name}_std_ms": spread}


def measure(torch, args, row, model, context, batch, dtype, mode):
    """Fills the row as it goes, so that what was known when memory ran out stays."""
    gpu = args.device == "cuda"
    free = []

    def look():
        if gpu:
            torch.cuda.synchronize()
            free.append(torch.cuda.mem_get_info()[0])
            row["driver_peak_mb"] = (free[0] - min(free)) / MB
            row["torch_reserved_peak_mb"] = torch.cuda.max_memory_reserved() / MB

    if gpu:
        torch.cuda.init()
        torch.cuda.reset_peak_memory_stats()
    look()
    if gpu:
        total = torch.cuda.mem_get_info()[1]
        row["driver_before_mb"] = (total - free[0]) / MB
    try:
        case = Case(torch, args, model, context, batch, dtype, mode)
        row["params"] = sum(p.numel() for p in case.parameters)
        if gpu:
            row["after_init_mb"] = torch.cuda.memory_allocated() / MB
        row["first_step_s"] = case.seconds(1)
        look()
        if gpu:
            row["first_step_peak_mb"] = torch.cuda.max_memory_allocated() / MB
        row["warmup_s"] = case.seconds(args.warmup)
        look()
        if gpu:
            row.update(case.memory())
            look()
            case.seconds(1)
        parts, row["loss"] = case.timed(args.steps)
        if gpu:
            row["torch_peak_mb"] = torch.cuda.max_memory_allocated() / MB
        else:
            row["process_peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    finally:
        look()
    # What a first step takes longer than the others.
    row["compile_s"] = max(0.0, row["first_step_s"] - statistics.median(parts["step"]) / 1e3)
    for name, samples in parts.items():
        row.update(summary(samples, name))
    row["tokens_per_s"] = batch * context / row["step_ms"] * 1e3
    row["status"] = "ok"


def clean(torch, device):
    gc.collect()
    torch._dynamo.reset()
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()


def first_line(error):
    text = str(error).strip()
    return (text.splitlines()[0] if text else type(error).__name__)[:400]


def attempt(torch, args, model, context, batch, dtype, mode):
    row = dict(contender=f"torch_{mode}", model=model, context=context, batch=batch, dtype=dtype, mode=mode,
               attention=args.attention, optimizer=args.optimizer, device=args.device, steps=args.steps,
               warmup=args.warmup, threads=torch.get_num_threads(), torch=torch.__version__, status="error")
    if args.device == "cuda":
        row["gpu"] = torch.cuda.get_device_name()
    clean(torch, args.device)
    try:
        measure(torch, args, row, model, context, batch, dtype, mode)
    except Exception as e:  # a case torch cannot do here is a result, not a crash
        row["status"] = "oom" if "out of memory" in str(e).lower() else "error"
        row["message"] = first_line(e)
    clean(torch, args.device)
    return row


def isolated(args, model, context, batch, dtype, mode):
    """The same case in a process of its own: nothing of the one before is left in its memory."""
    command = [sys.executable, __file__, "--model", model, "--context", str(context), "--batch", str(batch), "--dtype",
               dtype, "--modes", mode, "--device", args.device, "--threads", str(args.threads), "--steps",
               str(args.steps), "--warmup", str(args.warmup), "--optimizer", args.optimizer, "--attention",
               args.attention, "--seed", str(args.seed)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    row = dict(model=model, context=context, batch=batch, dtype=dtype, mode=mode, status="error")
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if lines:
        return row | json.loads(lines[-1])
    said = done.stderr.strip().splitlines()
    return dict(row, message=f"the process ended with {done.returncode}: {said[-1] if said else 'nothing said'}")


def progress(row):
    what = "{model} {batch}x{context} {dtype} {mode}".format(**row)
    if row["status"] != "ok":
        return f"{what}: {row['status']}: {row.get('message', '')}"
    peak = f", {row['driver_peak_mb']:.0f} MB" if "driver_peak_mb" in row else ""
    return f"{what}: {row['step_ms']:.3f} ms, {row['tokens_per_s']:.0f} tokens/s{peak}, first {row['first_step_s']:.1f} s"


def arguments():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--model", type=names, default=["S"], help="presets, separated by commas")
    ap.add_argument("--context", type=numbers, default=[0], help="tokens of a sequence; 0: the preset's own")
    ap.add_argument("--batch", type=numbers, default=[4])
    ap.add_argument("--dtype", type=names, default=["bf16"],
                    help="fp32, tf32, bf16 (autocast), bf16pure (parameters and states too)")
    ap.add_argument("--modes", type=names, default=["eager", "compile"], help="eager, compile, graphs")
    ap.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    ap.add_argument("--threads", type=int, default=0)
    ap.add_argument("--steps", type=int, default=20)
    ap.add_argument("--warmup", type=int, default=5, help="steps after the first; mode graphs records in them")
    ap.add_argument("--optimizer", default="adamw", choices=["adamw", "none"])
    ap.add_argument("--attention", default="sdpa", choices=["sdpa", "naive"])
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--budget", type=float, default=0, help="seconds after which no further case is begun; 0: none")
    ap.add_argument("--isolate", action="store_true", help="a process for each case")
    args = ap.parse_args()
    for model in args.model:
        try:
            find_preset(model)
        except ValueError as e:
            ap.error(str(e))
    for given, known in ((args.dtype, DTYPES), (args.modes, MODES)):
        for name in given:
            if name not in known:
                ap.error(f"'{name}' is unknown, expected one of {', '.join(known)}")
    if args.steps < 1 or args.warmup < 0 or min(args.batch) < 1 or min(args.context) < 0:
        ap.error("--steps, --batch below 1, or --warmup, --context below 0")
    return args


def main():
    args = arguments()
    torch = None
    if not args.isolate:
        try:
            import torch
        except ImportError as e:
            print(json.dumps({"status": "error", "message": str(e)}), flush=True)
            return 1
        import torch._dynamo
        if args.threads > 0:
            torch.set_num_threads(args.threads)
    began = time.monotonic()
    for model, context, batch, dtype, mode in itertools.product(args.model, args.context, args.batch, args.dtype,
                                                                args.modes):
        context = context or find_preset(model)["context"]
        case = (model, context, batch, dtype, mode)
        if args.budget and time.monotonic() - began > args.budget:
            row = dict(zip(("model", "context", "batch", "dtype", "mode"), case), status="left out",
                       message=f"beyond the budget of {args.budget:g} s")
        else:
            row = isolated(args, *case) if args.isolate else attempt(torch, args, *case)
        print(json.dumps(row), flush=True)
        print(progress(row), file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
