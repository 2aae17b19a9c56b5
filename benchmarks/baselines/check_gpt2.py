#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares a GPT-2's logits, loss and gradients, as gallop computed them, with torch's: check_gpt2.py WEIGHTS RESULTS.

WEIGHTS is a safetensors file with Hugging Face's names and orientation (weights of c_attn, c_proj, c_fc are [in, out]).
Its configuration is a JSON text `config` in its metadata, or n_layer, n_head and so on there, or config.json beside it.
RESULTS is safetensors or JSON with tokens and targets (B, T), logits (B, T, V), loss, and grad.NAME for every parameter.
Errors are norms of differences over norms of torch's values. A JSON line on stdout for each precision, a line for each
quantity on stderr; the exit status is 1 if an error is above the bound or something is missing.
"""
import argparse
import json
import os
import re
import struct
import sys

try:
    import torch
    import torch.nn.functional as F
except ImportError as e:
    sys.exit(f"check_gpt2: torch cannot be imported ({e}), expected it to be installed")

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
          "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8,
          "BOOL": torch.bool}
SETTINGS = {"n_layer": int, "n_head": int, "n_embd": int, "n_positions": int, "vocab_size": int, "n_inner": int,
            "layer_norm_epsilon": float}


class Bad(Exception):
    """What is wrong with a file, in one sentence."""


def read_safetensors(path):
    """Tensors by name, and the metadata."""
    with open(path, "rb") as f:
        content = bytearray(f.read())
    if len(content) < 8:
        raise Bad(f"{path} has {len(content)} bytes, expected a safetensors file")
    length = struct.unpack_from("<Q", content)[0]
    if length > len(content) - 8:
        raise Bad(f"{path} has a header of {length} bytes in {len(content)}, expected a safetensors file")
    header = json.loads(content[8:8 + length].decode())
    metadata, tensors = header.pop("__metadata__", {}), {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        dtype = DTYPES.get(entry["dtype"])
        if dtype is None:
            raise Bad(f"{name} in {path} is {entry['dtype']}, expected one of {', '.join(DTYPES)}")
        data = content[8 + length + begin:8 + length + end]  # a copy, hence aligned
        flat = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
        tensors[name] = flat.reshape(entry["shape"])
    return tensors, metadata


def read_json(path):
    """Nested lists, or {"shape": [...], "data": [...]}, by name."""
    with open(path, encoding="utf-8") as f:
        content = json.load(f)
    tensors = {}
    for name, value in content.items():
        if name not in ("tokens", "targets", "logits", "loss") and not name.startswith("grad."):
            continue
        shaped = isinstance(value, dict)
        data = torch.tensor(value["data"] if shaped else value,
                            dtype=torch.int64 if name in ("tokens", "targets") else torch.float64)
        tensors[name] = data.reshape(value["shape"]) if shaped else data
    return tensors


def plain_name(name):
    return name.removeprefix("transformer.")


def read_model(path):
    tensors, metadata = read_safetensors(path)
    # Older files keep the causal mask of each layer beside its parameters.
    masks = re.compile(r"\.attn\.(bias|masked_bias)$")
    weights = {plain_name(n): t for n, t in tensors.items() if not masks.search(n)}
    for needed in ("wte.weight", "wpe.weight"):
        if needed not in weights:
            raise Bad(f"{path} has no {needed}, expected the names of Hugging Face's GPT-2")
    return weights, configuration(path, weights, metadata)


def configuration(path, weights, metadata):
    given = {k: metadata[k] for k in SETTINGS if k in metadata}
    beside = os.path.join(os.path.dirname(os.path.abspath(path)), "config.json")
    if "config" in metadata:
        given = json.loads(metadata["config"])
    elif not given and os.path.exists(beside):
        with open(beside, encoding="utf-8") as f:
            given = json.load(f)
    if given.get("n_head") is None:
        raise Bad(f"{path} has no n_head in its metadata and no config.json beside it, expected one of them")
    layers = {int(m.group(1)) for m in (re.match(r"h\.(\d+)\.", n) for n in weights) if m}
    (vocab, width), positions = weights["wte.weight"].shape, weights["wpe.weight"].shape[0]
    inner = weights["h.0.mlp.c_fc.weight"].shape[1] if layers else 4 * width
    config = dict(n_layer=len(layers), n_embd=width, n_positions=positions, vocab_size=vocab, n_inner=inner,
                  layer_norm_epsilon=1e-5)
    for name, kind in SETTINGS.items():
        if given.get(name) is not None:
            value = kind(given[name])
            if name in config and name != "layer_norm_epsilon" and config[name] != value:
                raise Bad(f"{name} is {value} in the configuration, expected {config[name]} as in the tensors")
            config[name] = value
    return config


class PlainGpt2:
    """GPT-2 in plain torch, over parameters by Hugging Face's names."""

    name = "plain torch"

    def __init__(self, weights, config, dtype, device):
        self.config = config
        tied = "lm_head.weight" not in weights or torch.equal(weights["lm_head.weight"], weights["wte.weight"])
        self.parameters = {n: t.to(device, dtype).requires_grad_() for n, t in weights.items()
                           if not (tied and n == "lm_head.weight")}

    def norm(self, x, name):
        p = self.parameters
        return F.layer_norm(x, x.shape[-1:], p[name + ".weight"], p[name + ".bias"], self.config["layer_norm_epsilon"])

    def conv(self, x, name):
        return x @ self.parameters[name + ".weight"] + self.parameters[name + ".bias"]

    def attend(self, x, name):
        batch, length, width = x.shape
        heads = self.config["n_head"]
        q, k, v = (part.view(batch, length, heads, width // heads).transpose(1, 2)
                   for part in self.conv(x, name + ".c_attn").split(width, dim=-1))
        scores = q @ k.transpose(-2, -1) * (width // heads)**-0.5
        hidden = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        mixed = torch.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1) @ v
        return self.conv(mixed.transpose(1, 2).reshape(batch, length, width), name + ".c_proj")

    def logits(self, tokens):
        p = self.parameters
        x = p["wte.weight"][tokens] + p["wpe.weight"][:tokens.shape[1]]
        for i in range(self.config["n_layer"]):
            x = x + self.attend(self.norm(x, f"h.{i}.ln_1"), f"h.{i}.attn")
            inner = F.gelu(self.conv(self.norm(x, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc"), approximate="tanh")
            x = x + self.conv(inner, f"h.{i}.mlp.c_proj")
        return self.norm(x, "ln_f") @ p.get("lm_head.weight", p["wte.weight"]).t()


class TransformersGpt2:
    """Hugging Face's own."""

    def __init__(self, weights, config, dtype, device):
        import transformers
        self.name = f"transformers {transformers.__version__}"
        tied = "lm_head.weight" not in weights or torch.equal(weights["lm_head.weight"], weights["wte.weight"])
        settings = transformers.GPT2Config(activation_function="gelu_new", resid_pdrop=0.0, embd_pdrop=0.0,
                                           attn_pdrop=0.0, use_cache=False, tie_word_embeddings=tied,
                                           bos_token_id=0, eos_token_id=0, **config)
        settings._attn_implementation = "eager"  # in the precision asked for, on every device
        self.model = transformers.GPT2LMHeadModel(settings).to(device=device, dtype=dtype).eval()
        if tied:
            self.model.tie_weights()
        self.parameters = {plain_name(n): p for n, p in self.model.named_parameters()}
        missing = sorted(set(self.parameters) - set(weights))
        if missing:
            raise Bad(f"{missing[0]} is not among the weights, expected all {len(self.parameters)} of the model")
        with torch.no_grad():
            for name, p in self.parameters.items():
                if p.shape != weights[name].shape:
                    raise Bad(f"{name} is {list(weights[name].shape)}, expected {list(p.shape)}")
                p.copy_(weights[name])

    def logits(self, tokens):
        return self.model(input_ids=tokens).logits


def make_model(which, *what):
    if which != "plain":
        try:
            return TransformersGpt2(*what)
        except ImportError as e:
            if which == "transformers":
                raise Bad(f"transformers cannot be imported ({e}), expected it to be installed") from e
    return PlainGpt2(*what)


def relative(ours, theirs):
    """Norm of the difference over the norm, in double; of the difference alone where torch has zeros."""
    ours, theirs = ours.detach().double().cpu(), theirs.detach().double().cpu()
    if ours.numel() != theirs.numel():
        raise Bad(f"a result of shape {list(ours.shape)}, expected {list(theirs.shape)}")
    if ours.dim() == theirs.dim() and ours.shape != theirs.shape:
        raise Bad(f"a result of shape {list(ours.shape)}, expected {list(theirs.shape)}")
    norm = torch.linalg.vector_norm(theirs).item()
    error = torch.linalg.vector_norm(ours.reshape(-1) - theirs.reshape(-1)).item()
    return error / norm if norm > 0 else error


def compare(args, weights, config, results, dtype):
    model = make_model(args.implementation, weights, config, dtype, args.device)
    tokens, targets = (results[n].to(args.device, torch.int64) for n in ("tokens", "targets"))
    if tokens.dim() == 1:
        tokens, targets = tokens[None], targets[None]
    logits = model.logits(tokens)
    targets = torch.where(targets < 0, -100, targets)  # negative: not counted
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    loss.backward()

    errors, missing = {}, []
    for name, theirs in (("logits", logits), ("loss", loss)):
        if name in results:
            errors[name] = relative(results[name], theirs)
        else:
            missing.append(name)
    gradients = {plain_name(n.removeprefix("grad.")): t for n, t in results.items() if n.startswith("grad.")}
    for name, p in model.parameters.items():
        if name not in gradients:
            missing.append("grad." + name)
            continue
        theirs = p.grad if p.grad is not None else torch.zeros_like(p)
        if gradients[name].shape != theirs.shape:
            raise Bad(f"grad.{name} is {list(gradients[name].shape)}, expected {list(theirs.shape)}")
        errors["grad." + name] = relative(gradients[name], theirs)
    unknown = sorted(set(gradients) - set(model.parameters) - {"lm_head.weight"})
    return model.name, loss.item(), errors, missing, unknown


def report(args, dtype, implementation, loss, errors, missing, unknown):
    grads = {n: e for n, e in errors.items() if n.startswith("grad.")}
    worst = max(grads, key=lambda n: (grads[n] != grads[n], grads[n])) if grads else None  # nan is worst
    over = [n for n, e in errors.items() if not e <= args.bound]
    good = not over and not missing and not unknown
    row = dict(precision=str(dtype).removeprefix("torch."), implementation=implementation, torch=torch.__version__,
               torch_loss=loss, logits_error=errors.get("logits"), loss_error=errors.get("loss"),
               worst_gradient=worst, worst_gradient_error=grads.get(worst), gradients=len(grads), bound=args.bound,
               over=over, missing=missing, unknown=unknown, status="ok" if good else "over")
    for name, error in errors.items():
        print(f"{error:10.3e}  {name}{'' if error <= args.bound else '  above the bound'}", file=sys.stderr)
    for name in missing:
        print(f"{'missing':>10}  {name}", file=sys.stderr)
    for name in unknown:
        print(f"{'unknown':>10}  grad.{name}", file=sys.stderr)
    print(json.dumps(row), flush=True)
    return good


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("weights", help="safetensors")
    ap.add_argument("results", help="safetensors or .json")
    ap.add_argument("--bound", type=float, default=1e-4, help="largest relative error that passes")
    ap.add_argument("--double", action="store_true", help="torch also in float64")
    ap.add_argument("--device", default="cpu")
    ap.add_argument("--implementation", default="auto", choices=["auto", "transformers", "plain"])
    args = ap.parse_args()
    torch.set_float32_matmul_precision("highest")
    try:
        weights, config = read_model(args.weights)
        results = read_json(args.results) if args.results.endswith(".json") else read_safetensors(args.results)[0]
        for needed in ("tokens", "targets"):
            if needed not in results:
                raise Bad(f"{args.results} has no {needed}, expected tokens, targets, logits, loss and grad.NAME")
        good = True
        for dtype in [torch.float32] + ([torch.float64] if args.double else []):
            good = report(args, dtype, *compare(args, weights, config, results, dtype)) and good
        return 0 if good else 1
    except KeyError as e:
        print(f"check_gpt2: {e} is missing, expected it among the tensors or settings", file=sys.stderr)
    except (Bad, OSError, ValueError) as e:
        print(f"check_gpt2: {e}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
