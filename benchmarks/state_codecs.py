#!/usr/bin/env python3
"""Compare encodings for block-wise quantised Adam states (fake quantisation on the GPU).

    python3 state_codecs.py --data tinyshakespeare.txt --out codecs.txt [--budget 360]

Parts: (a) one-shot round-trip error of real m, v; (b) drift of shadow states fed the same gradients;
(d) drift of a slow (beta 0.9999) average; (c) final loss of whole training runs.
Parts a, b, d share one training run with fp32 states; c follows until the budget is used.
Text goes to stdout and to --out, the same rows as JSON lines to <out>.jsonl.
"""
import time
T0 = time.time()
import argparse
import json
import math
import os
import statistics
import sys
import traceback

import torch
import torch.nn as nn
import torch.nn.functional as F

ap = argparse.ArgumentParser()
ap.add_argument("--data", required=True)
ap.add_argument("--out", default="state_codecs_out.txt", help="text; JSON lines go to <out>.jsonl")
ap.add_argument("--budget", type=float, default=360.0, help="seconds since start of the process")
ap.add_argument("--beta2", type=float, default=0.999, help="0.999 or 0.95")
ap.add_argument("--steps", type=int, default=1500)
ap.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
ap.add_argument("--parts", default="abdc", help="any of a b c d")
ap.add_argument("--no-graph", action="store_true", help="no CUDA graph for forward+backward")
args = ap.parse_args()

DEV = torch.device("cuda")
torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.allow_tf32 = True
BETA1, BETA2, EPS, WD = 0.9, args.beta2, 1e-8, 0.1
LR_MAX, LR_MIN, WARMUP = 1e-3, 1e-4, 100
LAYERS, WIDTH, HEADS, CTX, BATCH, VOCAB = 6, 384, 6, 256, 64, 256
PAD, MIN_QUANT = 256, 4096


def elapsed():
    return time.time() - T0


# ------------------------------------------------------------------ output
os.makedirs(os.path.dirname(os.path.abspath(args.out)), exist_ok=True)
TXT = open(args.out, "w")
JSL = open(args.out + ".jsonl", "w")


def say(*parts):
    line = " ".join(str(p) for p in parts)
    print(line, flush=True)
    TXT.write(line + "\n")
    TXT.flush()


def cell(v):
    if isinstance(v, float):
        return f"{v:.3e}"
    return str(v)


def table(part, title, rows, **common):
    """rows: list of dicts with the same keys; the first key is the label."""
    say("")
    say(f"## ({part}) {title}   [t={elapsed():.0f}s]")
    if not rows:
        say("   (nothing)")
        return
    keys = list(rows[0])
    text = [keys] + [[cell(r[k]) for k in keys] for r in rows]
    wid = [max(len(t[i]) for t in text) for i in range(len(keys))]
    for t in text:
        say("  " + t[0].ljust(wid[0]) + "  " + "  ".join(s.rjust(w) for s, w in zip(t[1:], wid[1:])))
    for r in rows:
        JSL.write(json.dumps({"part": part, "title": title, **common, **r}) + "\n")
    JSL.flush()


# ------------------------------------------------------------------ dither
class Dither:
    """The sequence of gallop (src/core/quantise.h): fractions of 0.618... step + 0.754... (element + stream) + a
    number of the tensor's, in 2048 parts, the middle of each.

    The u of the latest step is kept, because many codecs ask for the same one. Nobody may write to it.
    """
    STEP, ELEMENT = 0x4F1BBD, 0x609FD5                          # in 2^-23

    def __init__(self, lengths, stream):
        parts = []
        for k, n in enumerate(lengths):
            own = (k + 1) * 0x2C1B3C6D
            element = torch.arange(n, device=DEV, dtype=torch.int64) + stream
            parts.append(((element * self.ELEMENT + own) & 0x7FFFFF).to(torch.int32))
        self.base = torch.cat(parts)
        self.step, self.val = None, None

    def u(self, step):
        if step != self.step:
            k = ((self.base + step * self.STEP % 2 ** 23) >> 12) & 2047
            self.val = k.to(torch.float32).add_(0.5).mul_(1.0 / 2048)
            self.step = step
        return self.val


# ------------------------------------------------------------------ codecs: q(x_flat, step, dither) -> x_flat
def blocks(x, B):
    """(x as rows of B, padded with zeros; absmax of each row; the same with 0 replaced by 1, to divide by)"""
    n = x.numel()
    if n % B:
        x = F.pad(x, (0, B - n % B))
    xb = x.view(-1, B)
    s = xb.abs().amax(dim=1, keepdim=True)
    return xb, s, torch.where(s > 0, s, torch.ones_like(s))


def unblock(xb, n):
    return xb.reshape(-1)[:n]


def noise(kind, xb, step, dith):
    if kind == "random":
        return torch.rand_like(xb)
    u = dith.u(step)
    if u.numel() != xb.numel():
        u = F.pad(u, (0, xb.numel() - u.numel()), value=0.5)
    return u.view(xb.shape)


def root(y, p):                       # y^(1/p), always a new tensor
    if p == 1:
        return y.clone()
    if p == 2:
        return y.sqrt()
    if p == 4:
        return y.sqrt().sqrt_()
    return y.pow(1.0 / p)


def power(c, p):                      # c^p
    if p == 1:
        return c
    if p == 2:
        return c * c
    if p == 3:
        return c * c * c
    if p == 4:
        c = c * c
        return c * c
    if p == 6:
        c = c * c
        return c * c * c
    return c.pow(p)


def pow_codec(p, L, signed, rounding, B):
    """codes 0..L (and a sign), value (c/L)^p * absmax.

    nearest: nearest code (in the code's own, companded scale); dither/random: floor(c_real + u);
    unbiased: between the two neighbouring codes with u against the position of the VALUE between their
    values, so that the mean of the decoded value is x (dither's mean code is c_real; its mean value is higher).
    """
    def q(x, step, dith):
        xb, s, d = blocks(x, B)
        y = xb.abs().div_(d)
        c = root(y, p).mul_(L)
        if rounding == "nearest":
            c = c.add_(0.5).floor_()
        elif rounding == "unbiased":
            u = noise("dither", xb, step, dith)
            c = c.floor_()
            lo = power(c / L, p)
            hi = power((c + 1) / L, p)
            f = ((y - lo) / (hi - lo)).clamp_(0, 1)
            c = c + f.add_(u).floor_()
        else:
            c = c.add_(noise(rounding, xb, step, dith)).floor_()
        c.clamp_(max=L)
        if not signed:
            c = torch.maximum(c, (xb > 0).to(c.dtype))          # v > 0 never becomes 0
        out = power(c / L, p) * s
        if signed:
            out = torch.copysign(out, xb)
        return unblock(out, x.numel())
    return q


def map_codec(values, B, repair=False):
    tab64 = torch.tensor(sorted(values), dtype=torch.float64)
    tab = tab64.to(torch.float32).to(DEV)
    mid = ((tab64[1:] + tab64[:-1]) / 2).to(torch.float32).to(DEV)
    zero = sorted(values).index(0.0) if repair else -1

    def q(x, step, dith):
        xb, s, d = blocks(x, B)
        i = torch.bucketize(xb / d, mid)
        if repair:                                              # a negative value never becomes 0
            i = i - ((xb < 0) & (i == zero)).to(i.dtype)
        return unblock(tab[i] * s, x.numel())
    return q


def fp8_codec(rounding, B=256):
    def q(x, step, dith):
        xb, s, d = blocks(x, B)
        z = (xb / d).mul_(448.0).clamp_(-448.0, 448.0)
        if rounding == "nearest":
            r = z.to(torch.float8_e4m3fn).to(torch.float32)
        else:
            u = noise(rounding, xb, step, dith)
            a = z.abs()
            bits = (a.view(torch.int32) + (u * 2.0 ** 20).to(torch.int32)) & -(1 << 20)   # 3 mantissa bits
            sub = (a * 512.0).add_(u).floor_().mul_(1.0 / 512)                            # spacing 2^-9
            r = torch.where(a < 2.0 ** -6, sub, bits.view(torch.float32)).clamp_(max=448.0)
            r = torch.copysign(r, z)
        return unblock(r.mul_(1.0 / 448) * s, x.numel())
    return q


def mini_codec(E, M, signed, rounding, B=256):
    """floats of E exponent and M mantissa bits, largest = absmax; rounding unbiased in value"""
    top = (2 - 2.0 ** -M) * 2.0 ** (2 ** E - 2)
    def q(x, step, dith):
        xb, s, d = blocks(x, B)
        z = xb.abs().div_(d).mul_(top).clamp_(max=top)
        u = noise("dither", xb, step, dith) if rounding != "nearest" else 0.5 * torch.ones_like(z)
        k = 23 - M
        bits = (z.view(torch.int32) + (u * 2.0 ** k).to(torch.int32)) & -(1 << k)
        sub = (z * 2.0 ** M).add_(u).floor_().mul_(2.0 ** -M)
        r = torch.where(z < 1, sub, bits.view(torch.float32)).clamp_(max=top)
        if not signed:
            r = torch.where((xb > 0) & (r == 0), torch.full_like(r, 2.0 ** -M), r)
        r = r.mul_(1.0 / top) * s
        return unblock(torch.copysign(r, xb) if signed else r, x.numel())
    return q


def fp32(x, step, dith):
    return x


def bf16(x, step, dith):
    return x.to(torch.bfloat16).to(torch.float32)


def bnb_maps():
    sg, un = [0.0, 1.0], [0.0, 1.0]
    for i in range(7):
        for k in range(2 ** i):
            a = 10.0 ** (i - 6) * (0.1 + 0.9 * (k + 0.5) / 2 ** i)
            sg += [a, -a]
        for k in range(2 ** (i + 1)):
            un.append(10.0 ** (i - 6) * (0.1 + 0.9 * (k + 0.5) / 2 ** (i + 1)))
    assert len(set(sg)) == len(sg) == 256 and len(set(un)) == len(un) == 256
    return sg, un


BNB_S, BNB_U = bnb_maps()
TAO_S = [-0.8875, -0.6625, -0.4375, -0.2125, -0.0775, -0.0325, -0.0055, 0.0,
         0.0055, 0.0325, 0.0775, 0.2125, 0.4375, 0.6625, 0.8875, 1.0]
TAO_U = [k / 16 for k in range(1, 17)]
bnb_m, bnb_v = map_codec(BNB_S, 256, repair=True), map_codec(BNB_U, 256)
tao_m, tao_v = map_codec(TAO_S, 128), map_codec(TAO_U, 128)


def m8(p, r): return pow_codec(p, 127, True, r, 256)
def v8(p, r): return pow_codec(p, 255, False, r, 256)
def m4(p, r): return pow_codec(p, 7, True, r, 128)
def v4(p, r): return pow_codec(p, 15, False, r, 128)


# as gallop's formats: signed codes between squares, the others between codes
OWN8 = m8(2, "unbiased"), v8(4, "dither")
OWN4 = m4(2, "unbiased"), v4(4, "dither")
FP8 = fp8_codec("dither")

# one-shot codecs, part (a)
M_CODECS = [("bf16", bf16), ("bnb", bnb_m), ("root nearest", m8(2, "nearest")), ("8bit", OWN8[0]),
            ("root between codes", m8(2, "dither")), ("E2M5", mini_codec(2, 5, True, "dither")),
            ("fp8 nearest", fp8_codec("nearest")), ("fp8", FP8), ("4b torchao", tao_m), ("4bit", OWN4[0])]
V_CODECS = [("bf16", bf16), ("bnb", bnb_v), ("fourth root nearest", v8(4, "nearest")), ("8bit", OWN8[1]),
            ("fourth root random", v8(4, "random")), ("E3M5", mini_codec(3, 5, False, "dither")),
            ("fp8 nearest", fp8_codec("nearest")), ("fp8", FP8), ("4b torchao", tao_v), ("4bit", OWN4[1])]

# pairs, part (b) and the pair table of part (a)
PAIRS = [
    ("fp32", fp32, fp32),
    ("bf16 nearest", bf16, bf16),
    ("bnb", bnb_m, bnb_v),
    ("roots nearest", m8(2, "nearest"), v8(4, "nearest")),
    ("8bit", *OWN8),
    ("roots between codes", m8(2, "dither"), v8(4, "dither")),
    ("roots random", m8(2, "random"), v8(4, "random")),
    ("E2M5/E3M5", mini_codec(2, 5, True, "dither"), mini_codec(3, 5, False, "dither")),
    ("E3M4/E4M4", mini_codec(3, 4, True, "dither"), mini_codec(4, 4, False, "dither")),
    ("fp8 nearest", fp8_codec("nearest"), fp8_codec("nearest")),
    ("fp8", FP8, FP8),
    ("4b torchao", tao_m, tao_v),
    ("4bit", *OWN4),
]
SLOW = [
    ("fp32", fp32),
    ("bnb", bnb_m),
    ("root nearest", m8(2, "nearest")),
    ("8bit", OWN8[0]),
    ("root between codes", m8(2, "dither")),
    ("root random", m8(2, "random")),
    ("fp8", FP8),
]


@torch.no_grad()
def self_test():
    """Cheap checks of every codec; one table of what the mean over 512 encodings of one x gives."""
    torch.manual_seed(0)
    n = 8192 + 100                                                # a partial last block
    dm = Dither([5000, n - 5000], 7)
    u = torch.stack([dm.u(t)[:64] for t in range(1, 1025)])
    bad = []
    if not (float(u.min()) > 0 and float(u.max()) < 1 and abs(float(u.mean()) - 0.5) < 0.01):
        bad.append("dither u")
    x = torch.randn(n, device=DEV) * torch.exp(2 * torch.randn(n, device=DEV)) * 1e-4
    x[256:512] = 0                                                # an all-zero block
    rows = []
    for signed, codecs in ((True, M_CODECS), (False, V_CODECS)):
        z = x if signed else x * x
        for name, q in codecs:
            keep = z.clone()
            y = q(z, 3, dm)
            mean = torch.zeros(n, dtype=torch.float64, device=DEV)
            for t in range(1, 513):
                mean += q(z, t, dm)
            rows.append({"codec": ("m: " if signed else "v: ") + name, "one": rel_l2(y, z),
                         "mean of 512": float((mean / 512 - z.double()).norm() / z.double().norm())})
            amax = float(z.abs().max())
            coarse = 0.5 if name.startswith("4b") or name == "4bit" else 0.1
            for what, ok in (("shape", y.shape == z.shape), ("input changed", torch.equal(keep, z)),
                             ("finite", bool(torch.isfinite(y).all())),
                             ("zero block", bool((y[256:512] == 0).all())),
                             ("sign", bool((y * z >= 0).all())),
                             ("far off", float((y - z).abs().max()) <= coarse * amax),
                             ("above absmax", float(y.abs().max()) <= amax * (1.01 if name == "bf16" else 1.00001))):
                if not ok:
                    bad.append(f"{'m' if signed else 'v'} {name}: {what}")
    table("0", "self-test: rel L2 error of one encoding, and of the mean of 512 encodings of the same x", rows)
    say("self-test:", "OK" if not bad else "FAILED " + "; ".join(bad))


# ------------------------------------------------------------------ statistics
def rel_l2(a, b):
    d = float(b.double().norm())
    return float((a - b).double().norm()) / d if d > 0 else 0.0


def m_stats(mq, m):
    nz = m != 0
    a, b = mq[nz], m[nz]
    return {"relL2": rel_l2(mq, m), "mean|rel|": float(((a - b).abs() / b.abs()).double().mean()),
            "to_zero": float((a == 0).double().mean())}


def v_stats(vq, v):
    nz = v > 0
    a, b = vq[nz], v[nz]
    r = a.sqrt() / b.sqrt() - 1
    s = r.abs().sort().values
    n = s.numel()
    rd = r.double()
    return {"relL2": rel_l2(vq, v), "sqrt_bias": float(rd.mean()), "sqrt_rms": float(rd.pow(2).mean().sqrt()),
            "med|.|": float(s[n // 2]), "p99.9": float(s[min(n - 1, int(0.999 * n))]), "max": float(s[-1]),
            "to_zero": float((a == 0).double().mean())}


def direction(m, v):
    return m / (v.sqrt() + EPS)


def update(m, v, t):
    return (m / (1 - BETA1 ** t)) / ((v / (1 - BETA2 ** t)).sqrt() + EPS)


# ------------------------------------------------------------------ model
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1 = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)
        self.ln2 = nn.LayerNorm(WIDTH)
        self.fc = nn.Linear(WIDTH, 4 * WIDTH)
        self.out = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, HEADS, c // HEADS).permute(2, 0, 3, 1, 4).unbind(0)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, c))
        return x + self.out(F.gelu(self.fc(self.ln2(x))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, WIDTH)
        self.pos = nn.Embedding(CTX, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)

    def forward(self, idx):
        x = self.tok(idx) + self.pos.weight[: idx.shape[1]]
        for b in self.blocks:
            x = b(x)
        return self.head(self.ln(x))


class Lab:
    """One model whose parameters and gradients are views of flat buffers P, G (quantised tensors first,
    each padded to a multiple of 256), flat states M, V, the data, and a graph of forward+backward."""

    def __init__(self):
        raw = torch.frombuffer(bytearray(open(args.data, "rb").read()), dtype=torch.uint8).long().to(DEV)
        cut = int(0.9 * raw.numel())
        self.train_data, self.val_data = raw[:cut].contiguous(), raw[cut:].contiguous()
        self.model = GPT().to(DEV)
        named = list(self.model.named_parameters())
        big = [(n, p) for n, p in named if p.numel() >= MIN_QUANT]
        small = [(n, p) for n, p in named if p.numel() < MIN_QUANT]
        self.named = big + small
        lens = [-(-p.numel() // PAD) * PAD for _, p in self.named]
        self.Q = sum(lens[: len(big)])
        total = sum(lens)
        self.P, self.G, self.M, self.V = (torch.zeros(total, device=DEV) for _ in range(4))
        self.params, self.gviews, o = [], [], 0
        for (_, p), n in zip(self.named, lens):
            p.data = self.P[o:o + p.numel()].view(p.shape)
            self.params.append(p)
            self.gviews.append(self.G[o:o + p.numel()].view(p.shape))
            o += n
        self.dm, self.dv = Dither(lens[: len(big)], 1), Dither(lens[: len(big)], 2)
        assert self.dm.base.numel() == self.Q
        self.ar = torch.arange(CTX + 1, device=DEV)
        self.x = torch.zeros(BATCH, CTX, dtype=torch.long, device=DEV)
        self.y = torch.zeros(BATCH, CTX, dtype=torch.long, device=DEV)
        self.loss = torch.zeros((), device=DEV)
        g = torch.Generator(device=DEV).manual_seed(1234)
        ix = torch.randint(0, self.val_data.numel() - CTX, (20, BATCH, 1), device=DEV, generator=g)
        self.val_batches = [self.val_data[i + self.ar] for i in ix]
        self.init(0)
        self.graph = None
        if not args.no_graph:
            self.capture()
        say(f"model: {sum(p.numel() for p in self.params)} parameters, {self.Q} in {len(big)} quantised tensors "
            f"(padding {self.Q - sum(p.numel() for _, p in big)}), {len(small)} small tensors; "
            f"CUDA graph: {self.graph is not None}")

    @torch.no_grad()
    def init(self, seed):
        g = torch.Generator(device=DEV).manual_seed(1000 + seed)
        for name, p in self.named:
            if p.dim() == 2:
                std = 0.02
                if name.endswith("proj.weight") or name.endswith("out.weight"):
                    std /= math.sqrt(2 * LAYERS)
                p.data.normal_(0.0, std, generator=g)
            elif name.endswith("weight"):
                p.data.fill_(1.0)                                # LayerNorm
            else:
                p.data.zero_()
        self.M.zero_()
        self.V.zero_()
        self.G.zero_()

    def fwd_bwd(self):
        with torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False):
            logits = self.model(self.x)
            loss = F.cross_entropy(logits.float().view(-1, VOCAB), self.y.view(-1))
        grads = torch.autograd.grad(loss, self.params)
        with torch.no_grad():
            torch._foreach_copy_(self.gviews, list(grads))
            self.loss.copy_(loss.detach())

    def capture(self):
        try:
            s = torch.cuda.Stream()
            s.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(s):
                for _ in range(3):
                    self.fwd_bwd()
            torch.cuda.current_stream().wait_stream(s)
            torch.cuda.synchronize()
            g = torch.cuda.CUDAGraph()
            with torch.cuda.graph(g):
                self.fwd_bwd()
            # the graph has to give the gradient the eager code gives
            self.x.random_(0, VOCAB)
            self.y.random_(0, VOCAB)
            self.fwd_bwd()
            want = self.G.clone()
            self.G.zero_()
            g.replay()
            torch.cuda.synchronize()
            err = rel_l2(self.G, want)
            say(f"CUDA graph against eager gradient: rel L2 {err:.2e}")
            if not err < 1e-2:
                raise RuntimeError("graph and eager gradients differ")
            self.graph = g
        except Exception as e:
            say("no CUDA graph:", repr(e)[:300])
            self.graph = None
            torch.cuda.synchronize()

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        tot = torch.zeros((), device=DEV)
        for b in self.val_batches:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                logits = self.model(b[:, :-1])
            tot += F.cross_entropy(logits.float().reshape(-1, VOCAB), b[:, 1:].reshape(-1))
        self.model.train()
        return float(tot) / len(self.val_batches)

    def train(self, seed, qm=fp32, qv=fp32, hook=None, deadline=None):
        """One run. hook(t, g, m, v) sees the quantised part after the state update, before encoding.
        Returns a dict, or None where the deadline stopped it."""
        steps, Q = args.steps, self.Q
        P, G, M, V = self.P, self.G, self.M, self.V
        self.init(seed)
        torch.manual_seed(77 + seed)
        gen = torch.Generator(device=DEV).manual_seed(2000 + seed)
        ix = torch.randint(0, self.train_data.numel() - CTX, (steps, BATCH, 1), device=DEV, generator=gen)
        losses = torch.zeros(steps, device=DEV)
        vals = {}
        torch.cuda.synchronize()
        start = time.time()
        for t in range(1, steps + 1):
            if t <= WARMUP:
                lr = LR_MAX * t / WARMUP
            else:
                lr = LR_MIN + 0.5 * (LR_MAX - LR_MIN) * (
                    1 + math.cos(math.pi * (t - WARMUP) / max(1, steps - WARMUP)))
            batch = self.train_data[ix[t - 1] + self.ar]
            self.x.copy_(batch[:, :-1])
            self.y.copy_(batch[:, 1:])
            if self.graph is not None:
                self.graph.replay()
            else:
                self.fwd_bwd()
            with torch.no_grad():
                losses[t - 1].copy_(self.loss)
                M.lerp_(G, 1 - BETA1)
                V.mul_(BETA2).addcmul_(G, G, value=1 - BETA2)
                den = V.sqrt().mul_(1 / math.sqrt(1 - BETA2 ** t)).add_(EPS)
                P[:Q].mul_(1 - lr * WD)                          # matrices and embeddings only
                P.addcdiv_(M, den, value=-lr / (1 - BETA1 ** t))
                if hook is not None:
                    hook(t, G[:Q], M[:Q], V[:Q])
                if qm is not fp32:
                    M[:Q].copy_(qm(M[:Q], t, self.dm))
                if qv is not fp32:
                    V[:Q].copy_(qv(V[:Q], t, self.dv))
            if t % 50 == 0:
                torch.cuda.synchronize()
                if deadline is not None and elapsed() > deadline:
                    return None
            if t % 250 == 0 or t == steps:
                vals[t] = self.validate()
        torch.cuda.synchronize()
        secs = time.time() - start
        return {"val": vals[steps], "best_val": min(vals.values()),
                "train": float(losses[-100:].double().mean()), "secs": secs, "ms_step": 1000 * secs / steps}


# ------------------------------------------------------------------ parts a, b, d
def part_a(t, m, v, lab):
    ref = direction(m, v)
    common = {"step": t}
    rows = []
    for name, q in M_CODECS:
        mq = q(m, t, lab.dm)
        rows.append({"m codec": name, **m_stats(mq, m), "upd(m only)": rel_l2(direction(mq, v), ref)})
    table("a", f"round trip of m, step {t}", rows, **common)
    rows = []
    for name, q in V_CODECS:
        vq = q(v, t, lab.dv)
        rows.append({"v codec": name, **v_stats(vq, v), "upd(v only)": rel_l2(direction(m, vq), ref)})
    table("a", f"round trip of v, step {t}", rows, **common)
    rows = []
    for name, qm, qv in PAIRS:
        mq, vq = qm(m, t, lab.dm), qv(v, t, lab.dv)
        rows.append({"pair m/v": name, "upd(both)": rel_l2(direction(mq, vq), ref),
                     "upd(v only)": rel_l2(direction(m, vq), ref), "upd(m only)": rel_l2(direction(mq, v), ref)})
    table("a", f"relative L2 error of m/(sqrt(v)+eps), pairs, step {t}", rows, **common)


class Watch:
    """The hook of the fp32 run: records for (a), shadow states for (b) and (d)."""
    B_STEPS = (10, 100, 300, 1000)
    A_STEPS = (100, 500, 1500)
    SLOW_BETA = 0.9999

    def __init__(self, lab, parts):
        self.lab, n = lab, lab.Q
        self.do_a = "a" in parts
        z = lambda: torch.zeros(n, device=DEV)
        self.pairs = [[name, qm, qv, z(), z()] for name, qm, qv in PAIRS] if "b" in parts else []
        self.slow = [[name, q, z()] for name, q in SLOW] if "d" in parts else []
        self.slow_ref = z()
        self.last = min(self.B_STEPS[-1], args.steps)

    def __call__(self, t, g, m, v):
        if t <= self.last and (self.pairs or self.slow):
            show = t in self.B_STEPS or t == self.last
            late = t % 50 == 0 and elapsed() > 0.6 * args.budget
            self.shadow(t, g, m, v, show or late)
            if late or t == self.last:
                if late and t < self.last:
                    say(f"!! parts b, d stopped at step {t}: 60 % of the budget is used")
                self.pairs, self.slow = [], []
        if self.do_a and t in self.A_STEPS:
            part_a(t, m, v, self.lab)

    def shadow(self, t, g, m, v, show):
        rows = []
        if show:
            ref = update(m, v, t)
        for s in self.pairs:
            name, qm, qv, sm, sv = s
            sm.lerp_(g, 1 - BETA1)
            sv.mul_(BETA2).addcmul_(g, g, value=1 - BETA2)
            if show:
                used = rel_l2(update(sm, sv, t), ref)
            sm, sv = qm(sm, t, self.lab.dm), qv(sv, t, self.lab.dv)
            s[3], s[4] = sm, sv
            if show:
                vs = v_stats(sv, v)
                rows.append({"pair m/v": name, "m relL2": rel_l2(sm, m), "m gain-1": gain(sm, m),
                             "sqrt_bias": vs["sqrt_bias"], "sqrt_rms": vs["sqrt_rms"], "med|.|": vs["med|.|"],
                             "p99.9": vs["p99.9"], "v to_zero": vs["to_zero"],
                             "upd used": used, "upd stored": rel_l2(update(sm, sv, t), ref)})
        if show and self.pairs:
            table("b", f"drift after {t} steps on the same gradients", rows, step=t)
        rows = []
        if self.slow:
            self.slow_ref.lerp_(g, 1 - self.SLOW_BETA)
        for s in self.slow:
            name, q, sm = s
            sm.lerp_(g, 1 - self.SLOW_BETA)
            s[2] = q(sm, t, self.lab.dm)
            if show:
                rows.append({"slow m": name, "relL2": rel_l2(s[2], self.slow_ref), "gain-1": gain(s[2], self.slow_ref),
                             "to_zero": m_stats(s[2], self.slow_ref)["to_zero"]})
        if show and self.slow:
            table("d", f"slow average, beta {self.SLOW_BETA}, after {t} steps", rows, step=t)


def gain(a, b):
    """<a,b>/<b,b> - 1: how much of b's length a has along b."""
    a, b = a.double(), b.double()
    d = float(b.dot(b))
    return float(a.dot(b)) / d - 1 if d > 0 else 0.0


# ------------------------------------------------------------------ part c
def part_c(lab, fallback_secs):
    pick = {name: (qm, qv) for name, qm, qv in PAIRS}
    main = ["fp32", "8bit", "bnb", "roots nearest", "fp8", "4bit", "4b torchao"]
    res, secs = {}, {}
    todo = [(s, n) for s in args.seeds for n in main]
    say("")
    say(f"## (c) whole runs of {args.steps} steps, beta2 {BETA2}   [t={elapsed():.0f}s of {args.budget:.0f}s]")
    done = 0
    for seed, name in todo:
        guess = secs.get(name, max(secs.values()) if secs else fallback_secs)
        if elapsed() + guess * 1.05 + 1 > args.budget:
            say(f"  stop: {elapsed():.0f}s used, the next run ({name}, seed {seed}) needs about {guess:.0f}s")
            break
        r = lab.train(seed, *pick[name], deadline=args.budget)
        if r is None:
            say(f"  stop: out of time inside {name}, seed {seed}")
            break
        done += 1
        secs[name] = r["secs"]
        res[name, seed] = r
        say(f"  seed {seed}  {name:32s} val {r['val']:.4f}  best val {r['best_val']:.4f}  "
            f"train(last 100) {r['train']:.4f}  {r['ms_step']:.2f} ms/step  [t={elapsed():.0f}s]")
        JSL.write(json.dumps({"part": "c-run", "codec": name, "seed": seed, **r}) + "\n")
        JSL.flush()

    def ms(xs):
        if not xs:
            return "-", "-"
        return f"{statistics.mean(xs):.4f}", (f"{statistics.stdev(xs):.4f}" if len(xs) > 1 else "-")

    rows = []
    for name in main:
        got = [s for s in args.seeds if (name, s) in res]
        if not got:
            continue
        row = {"codec": name, "seeds": len(got)}
        for key, short in (("val", "val"), ("best_val", "best"), ("train", "train")):
            row[short], row[short + " sd"] = ms([res[name, s][key] for s in got])
            both = [s for s in got if ("fp32", s) in res]
            row["d " + short], row["d " + short + " sd"] = ms(
                [res[name, s][key] - res["fp32", s][key] for s in both])
        rows.append(row)
    table("c", f"final loss over seeds; d = difference to fp32 with the same seed ({done} of {len(todo)} runs done)",
          rows, beta2=BETA2, steps=args.steps)


def main():
    say(f"torch {torch.__version__}, {torch.cuda.get_device_name(0)}, beta2 {BETA2}, budget {args.budget:.0f}s, "
        f"imports took {elapsed():.0f}s")
    try:
        self_test()
    except Exception:
        say("self-test raised:\n" + traceback.format_exc())
    lab = Lab()
    if set(args.parts) & set("abd"):
        watch = Watch(lab, args.parts)
        t = time.time()
        r = lab.train(args.seeds[0], hook=watch, deadline=args.budget)
        say("")
        say(f"run for a, b, d: {time.time() - t:.0f}s" + (f", val {r['val']:.4f}, train {r['train']:.4f}" if r else
                                                         " (stopped by the budget)"))
        del watch
        torch.cuda.empty_cache()
    if "c" in args.parts:
        part_c(lab, fallback_secs=15.0)
    say(f"done in {elapsed():.0f}s")


if __name__ == "__main__":
    try:
        main()
    except Exception:
        say(traceback.format_exc())
        sys.exit(1)
