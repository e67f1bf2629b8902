"""Measures the memory of language models in training and in inference, for `ashlar estimate`.

    python3 measure.py OUTPUT_FOLDER

Writes measured.SETTINGS.json (a line for each case: shapes, numbers, and the peaks of each phase in bytes), for each
model the header of its safetensors file and its config.json, and for some cases a memory snapshot with stacks. The
cases run with PyTorch's default settings, with expandable segments, and some with stacks recorded, each time in a
process of its own, as far as the time for it goes. Needs PyTorch with CUDA; a case that fails says so and the others
go on. measured.jsonl has the peaks of all: that beside this file is of PyTorch 2.11 on an H200.
"""
import gzip
import json
import os
import subprocess
import sys
import time

BUDGETS = dict(native=60, expandable=60, stacks=60)  # seconds of cases, by process

GPT2 = dict(kind="gpt2", layers=12, hidden=768, heads=12, kv=12, mlp=3072, vocab=50257, context=1024)
GPT2_SMALL = dict(kind="gpt2", layers=4, hidden=512, heads=8, kv=8, mlp=2048, vocab=8000, context=2048)
LLAMA = dict(kind="llama", layers=8, hidden=1024, heads=16, kv=4, mlp=2816, vocab=32000, context=4096)
LLAMA_WIDE = dict(kind="llama", layers=4, hidden=2048, heads=16, kv=8, mlp=5632, vocab=128256, context=4096)
ENCODER = dict(kind="encoder", layers=6, hidden=768, heads=12, kv=12, mlp=3072, vocab=30522, context=512)
QWEN = dict(kind="qwen", layers=6, hidden=896, heads=14, kv=2, mlp=4864, vocab=50000, context=4096)
MODELS = dict(gpt2=GPT2, gpt2small=GPT2_SMALL, llama=LLAMA, llamawide=LLAMA_WIDE, encoder=ENCODER, qwen=QWEN)


def train(model, batch, seq, **more):
    return dict(dict(mode="train", model=model, batch=batch, seq=seq, dtype="fp32", optimizer="adamw", flavor="fused",
                     checkpoint=False, accumulate=1, dropout=0.0, stacks=False), **more)


def infer(model, batch, seq, new, **more):
    return dict(dict(mode="infer", model=model, batch=batch, seq=seq, new=new, dtype="bf16", cache="dynamic",
                     flavor="fused", logits="last", stacks=False), **more)


CASES = [
    train("gpt2", 12, 1024, stacks=True),
    train("gpt2", 4, 512),
    train("gpt2", 8, 1024, dtype="bf16", stacks=True),
    train("gpt2", 8, 1024, dtype="amp", stacks=True),
    train("gpt2", 8, 1024, flavor="hf", stacks=True),
    train("gpt2", 8, 1024, dropout=0.1),
    train("gpt2", 8, 1024, flavor="eager", stacks=True),
    train("gpt2", 8, 1024, checkpoint=True, stacks=True),
    train("gpt2", 2, 512, accumulate=2),
    train("gpt2small", 4, 256, stacks=True),
    train("gpt2small", 4, 256, optimizer="adam"),
    train("gpt2small", 4, 256, optimizer="adamw-fused"),
    train("gpt2small", 4, 256, optimizer="adamw-loop"),
    train("gpt2small", 4, 256, optimizer="sgd"),
    train("gpt2small", 4, 256, optimizer="sgd-momentum"),
    train("gpt2small", 4, 256, optimizer="rmsprop"),
    train("gpt2small", 4, 256, optimizer="adagrad"),
    train("gpt2small", 4, 256, optimizer="adafactor"),
    train("gpt2small", 1, 64, optimizer="adamw", dtype="bf16"),
    train("gpt2small", 1, 64, optimizer="sgd", dtype="amp"),
    train("gpt2small", 16, 1024),
    train("llama", 4, 1024, dtype="bf16", stacks=True),
    train("llama", 4, 1024, dtype="bf16", flavor="hf", stacks=True),
    train("llama", 4, 1024, flavor="fused", stacks=True),
    train("llama", 4, 1024, flavor="hf"),
    train("llama", 4, 1024, dtype="amp", stacks=True),
    train("llama", 4, 1024, dtype="amp", flavor="hf"),
    train("llama", 8, 2048, dtype="bf16"),
    train("llama", 8, 2048, dtype="bf16", checkpoint=True, stacks=True),
    train("llama", 4, 1024, dtype="bf16", flavor="eager"),
    train("llama", 1, 128, dtype="bf16", optimizer="adamw-fused"),
    train("llamawide", 2, 512, dtype="bf16"),
    train("llamawide", 2, 1024, dtype="bf16", flavor="hf"),
    train("llamawide", 1, 256, optimizer="sgd-momentum"),
    train("encoder", 16, 256),
    train("encoder", 16, 512, dtype="bf16", stacks=True),
    train("encoder", 16, 512, dtype="amp", dropout=0.1),
    train("qwen", 4, 1024, dtype="bf16", flavor="hf"),
    train("qwen", 4, 1024, dtype="amp"),
    train("qwen", 2, 2048, checkpoint=True),
    infer("gpt2", 8, 256, 64, stacks=True),
    infer("gpt2", 8, 512, 64, dtype="fp32", cache="static"),
    infer("llama", 8, 1024, 64, stacks=True),
    infer("llama", 8, 1024, 64, flavor="hf", logits="all", stacks=True),
    infer("llama", 8, 1024, 64, cache="static"),
    infer("llamawide", 4, 2048, 32),
    infer("llamawide", 1, 512, 128, cache="static"),
    infer("qwen", 4, 2048, 64, cache="dynamic", flavor="hf"),
]


def build(torch, s, case):
    """The model, with the names and shapes of the checkpoints that Hugging Face's transformers read and write."""
    nn, F = torch.nn, torch.nn.functional
    h, flavor, p = s["hidden"], case["flavor"], case.get("dropout", 0.0)
    d = h // s["heads"]

    class Conv1D(nn.Module):
        def __init__(self, n_in, n_out):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(n_in, n_out) * 0.02)
            self.bias = nn.Parameter(torch.zeros(n_out))

        def forward(self, x):
            return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(*x.shape[:-1], -1)

    class RMSNorm(nn.Module):
        def __init__(self, n):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(n))

        def forward(self, x):
            if flavor == "fused":
                return F.rms_norm(x, (x.size(-1),), self.weight, 1e-6)
            kind = x.dtype
            x = x.to(torch.float32)
            x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
            return self.weight * x.to(kind)

    class NewGELU(nn.Module):
        def forward(self, x):
            if flavor != "hf":
                return F.gelu(x, approximate="tanh")
            return 0.5 * x * (1.0 + torch.tanh(0.7978845608 * (x + 0.044715 * torch.pow(x, 3.0))))

    def attend(q, k, v, causal=True, drop=0.0):
        if flavor == "eager":
            if k.size(1) != q.size(1):
                k, v = (t.repeat_interleave(q.size(1) // k.size(1), 1) for t in (k, v))
            w = torch.matmul(q, k.transpose(2, 3)) * d ** -0.5
            if causal and q.size(2) > 1:
                w = w + torch.full((q.size(2), k.size(2)), -1e4, dtype=w.dtype, device=w.device).triu(1)
            w = F.softmax(w, dim=-1, dtype=torch.float32).to(q.dtype)
            w = F.dropout(w, drop)
            return torch.matmul(w, v).transpose(1, 2).contiguous()
        gqa = k.size(1) != q.size(1)
        if gqa and (flavor == "hf" or q.dtype == torch.float32):
            n = q.size(1) // k.size(1)
            k, v = (t[:, :, None].expand(-1, -1, n, -1, -1).reshape(t.size(0), -1, t.size(2), d) for t in (k, v))
            gqa = False
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal and q.size(2) > 1, dropout_p=drop,
                                              enable_gqa=gqa).transpose(1, 2)

    def cached(cache, i, k, v):
        if cache is None:
            return k, v
        if cache["static"]:
            at, n = cache["at"], k.size(2)
            cache["k"][i][:, :, at:at + n], cache["v"][i][:, :, at:at + n] = k, v
            return cache["k"][i][:, :, :at + n], cache["v"][i][:, :, :at + n]
        if cache["k"][i] is not None:
            k, v = torch.cat([cache["k"][i], k], 2), torch.cat([cache["v"][i], v], 2)
        cache["k"][i], cache["v"][i] = k, v
        return k, v

    class GPTAttention(nn.Module):
        def __init__(self):
            super().__init__()
            self.c_attn, self.c_proj = Conv1D(h, 3 * h), Conv1D(h, h)

        def forward(self, x, i, cache, rope):
            b, n, _ = x.shape
            q, k, v = (t.view(b, n, s["heads"], d).transpose(1, 2) for t in self.c_attn(x).split(h, 2))
            k, v = cached(cache, i, k, v)
            return F.dropout(self.c_proj(attend(q, k, v, True, p).reshape(b, n, h)), p)

    class GPTMLP(nn.Module):
        def __init__(self):
            super().__init__()
            self.c_fc, self.c_proj, self.act = Conv1D(h, s["mlp"]), Conv1D(s["mlp"], h), NewGELU()

        def forward(self, x):
            return F.dropout(self.c_proj(self.act(self.c_fc(x))), p)

    class GPTBlock(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.attn, self.ln_2, self.mlp = nn.LayerNorm(h), GPTAttention(), nn.LayerNorm(h), GPTMLP()

        def forward(self, x, i, cache, rope):
            x = x + self.attn(self.ln_1(x), i, cache, rope)
            return x + self.mlp(self.ln_2(x))

    class LlamaAttention(nn.Module):
        def __init__(self):
            super().__init__()
            kv, bias = s["kv"] * d, s["kind"] == "qwen"
            self.q_proj, self.k_proj = nn.Linear(h, h, bias), nn.Linear(h, kv, bias)
            self.v_proj, self.o_proj = nn.Linear(h, kv, bias), nn.Linear(h, h, False)

        def forward(self, x, i, cache, rope):
            b, n, _ = x.shape
            q, k, v = (f(x).view(b, n, -1, d).transpose(1, 2) for f in (self.q_proj, self.k_proj, self.v_proj))
            cos, sin = rope

            def turn(t):
                a, c = t.chunk(2, -1)
                return t * cos + torch.cat((-c, a), -1) * sin

            q, k = turn(q), turn(k)
            k, v = cached(cache, i, k, v)
            return self.o_proj(attend(q, k, v).reshape(b, n, h))

    class LlamaMLP(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate_proj, self.up_proj = nn.Linear(h, s["mlp"], False), nn.Linear(h, s["mlp"], False)
            self.down_proj = nn.Linear(s["mlp"], h, False)

        def forward(self, x):
            return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))

    class LlamaBlock(nn.Module):
        def __init__(self):
            super().__init__()
            self.self_attn, self.mlp = LlamaAttention(), LlamaMLP()
            self.input_layernorm, self.post_attention_layernorm = RMSNorm(h), RMSNorm(h)

        def forward(self, x, i, cache, rope):
            x = x + self.self_attn(self.input_layernorm(x), i, cache, rope)
            return x + self.mlp(self.post_attention_layernorm(x))

    class Body(nn.Module):
        def __init__(self):
            super().__init__()
            if s["kind"] == "gpt2":
                self.wte, self.wpe = nn.Embedding(s["vocab"], h), nn.Embedding(s["context"], h)
                self.h, self.ln_f = nn.ModuleList(GPTBlock() for _ in range(s["layers"])), nn.LayerNorm(h)
            else:
                self.embed_tokens = nn.Embedding(s["vocab"], h)
                self.layers, self.norm = nn.ModuleList(LlamaBlock() for _ in range(s["layers"])), RMSNorm(h)

        def forward(self, ids, cache=None):
            at = cache["at"] if cache else 0
            where = torch.arange(at, at + ids.size(1), device=ids.device)
            if s["kind"] == "gpt2":
                x, rope, blocks, norm = F.dropout(self.wte(ids) + self.wpe(where), p), None, self.h, self.ln_f
            else:
                x, blocks, norm = self.embed_tokens(ids), self.layers, self.norm
                angle = where[:, None] * (10000.0 ** (-torch.arange(0, d, 2, device=ids.device) / d))
                angle = torch.cat((angle, angle), -1)
                rope = (angle.cos().to(x.dtype), angle.sin().to(x.dtype))
            for i, block in enumerate(blocks):
                if case.get("checkpoint"):
                    x = torch.utils.checkpoint.checkpoint(block, x, i, cache, rope, use_reentrant=False)
                else:
                    x = block(x, i, cache, rope)
            if cache:
                cache["at"] += ids.size(1)
            return norm(x)

    class CausalLM(nn.Module):
        def __init__(self):
            super().__init__()
            body = Body()
            setattr(self, "transformer" if s["kind"] == "gpt2" else "model", body)
            self.body = [body]
            self.lm_head = nn.Linear(h, s["vocab"], False)
            self.tied = s["kind"] in ("gpt2", "qwen")
            if self.tied:
                self.lm_head.weight = (body.wte if s["kind"] == "gpt2" else body.embed_tokens).weight

        def forward(self, ids, cache=None, last=False):
            x = self.body[0](ids, cache)
            return self.lm_head(x[:, -1:] if last else x)

    class Encoder(nn.Module):
        tied = False

        def __init__(self):
            super().__init__()
            layer = nn.TransformerEncoderLayer(h, s["heads"], s["mlp"], p, batch_first=True)
            self.embed = nn.Embedding(s["vocab"], h)
            self.encoder = nn.TransformerEncoder(layer, s["layers"])
            self.head = nn.Linear(h, s["vocab"])

        def forward(self, ids, cache=None, last=False):
            return self.head(self.encoder(self.embed(ids)))

    return Encoder() if s["kind"] == "encoder" else CausalLM()


def optimizer_of(torch, name, params):
    o = torch.optim
    return {
        "adamw": lambda: o.AdamW(params),
        "adam": lambda: o.Adam(params),
        "adamw-fused": lambda: o.AdamW(params, fused=True),
        "adamw-loop": lambda: o.AdamW(params, foreach=False),
        "sgd": lambda: o.SGD(params, lr=0.01),
        "sgd-momentum": lambda: o.SGD(params, lr=0.01, momentum=0.9),
        "rmsprop": lambda: o.RMSprop(params),
        "adagrad": lambda: o.Adagrad(params),
        "adafactor": lambda: o.Adafactor(params),
    }[name]()


def memory(torch):
    torch.cuda.synchronize()
    stats = torch.cuda.memory_stats()
    figures = {f"{k}_{w}": stats.get(f"{n}.all.{w}") for k, n in (("requested", "requested_bytes"),
               ("allocated", "allocated_bytes"), ("active", "active_bytes"), ("reserved", "reserved_bytes"))
               for w in ("current", "peak")}
    torch.cuda.reset_peak_memory_stats()
    return figures


def run_train(torch, s, case, phases):
    kinds = dict(fp32=torch.float32, bf16=torch.bfloat16, amp=torch.float32)
    model = build(torch, s, case).to(kinds[case["dtype"]]).train()
    phases.append(("model", memory(torch)))
    optimizer = optimizer_of(torch, case["optimizer"], model.parameters())
    for step in range(3):
        for micro in range(case["accumulate"]):
            ids = torch.randint(0, s["vocab"], (case["batch"], case["seq"]), device="cuda")
            with torch.autocast("cuda", torch.bfloat16, enabled=case["dtype"] == "amp"):
                logits = model(ids)
                phases.append((f"forward{step}.{micro}", memory(torch)))
                flat = logits.float() if case["flavor"] == "hf" else logits
                loss = torch.nn.functional.cross_entropy(flat.view(-1, s["vocab"]), ids.view(-1))
                del flat
            phases.append((f"loss{step}.{micro}", memory(torch)))
            loss.backward()
            phases.append((f"backward{step}.{micro}", memory(torch)))
        optimizer.step()
        phases.append((f"step{step}", memory(torch)))
        optimizer.zero_grad()
        del logits, loss, ids
        phases.append((f"zero{step}", memory(torch)))


def run_infer(torch, s, case, phases):
    kind = dict(fp32=torch.float32, bf16=torch.bfloat16)[case["dtype"]]
    model = build(torch, s, case).to(kind).eval()
    phases.append(("model", memory(torch)))
    b, n, new = case["batch"], case["seq"], case["new"]
    static = case["cache"] == "static"
    cache = dict(static=static, at=0, k=[None] * s["layers"], v=[None] * s["layers"])
    if static:
        for key in "kv":
            cache[key] = [torch.zeros(b, s["kv"], n + new, s["hidden"] // s["heads"], dtype=kind, device="cuda")
                          for _ in range(s["layers"])]
    phases.append(("cache", memory(torch)))
    with torch.no_grad():
        ids = torch.randint(0, s["vocab"], (b, n), device="cuda")
        logits = model(ids, cache, last=case["logits"] == "last")
        phases.append(("prefill", memory(torch)))
        token = logits[:, -1].argmax(-1, keepdim=True)
        for _ in range(new):
            logits = model(token, cache)
            token = logits[:, -1].argmax(-1, keepdim=True)
        phases.append(("decode", memory(torch)))
        assert cache["at"] == n + new


def label(case):
    words = [case["mode"], case["model"], f"b{case['batch']}", f"s{case['seq']}", case["dtype"], case["flavor"]]
    if case["mode"] == "train":
        words += [case["optimizer"]] + ["checkpoint"] * case["checkpoint"]
        words += [f"x{case['accumulate']}"] * (case["accumulate"] > 1) + ["dropout"] * (case["dropout"] > 0)
    else:
        words += [f"n{case['new']}", case["cache"], case["logits"]]
    return "-".join(words)


def write_header(torch, folder, name, s):
    with torch.device("meta"):
        model = build(torch, s, dict(flavor="fused"))
    tensors, at = {}, 0
    for key, t in model.state_dict().items():
        if key == "lm_head.weight" and model.tied:
            continue
        tensors[key] = dict(dtype="F32", shape=list(t.shape), data_offsets=[at, at + 4 * t.numel()])
        at += 4 * t.numel()
    with open(f"{folder}/{name}.header.json", "w") as f:
        json.dump(tensors, f)
    config = dict(model_type=s["kind"], hidden_size=s["hidden"], num_hidden_layers=s["layers"],
                  num_attention_heads=s["heads"], num_key_value_heads=s["kv"], intermediate_size=s["mlp"],
                  vocab_size=s["vocab"], max_position_embeddings=s["context"], tie_word_embeddings=model.tied)
    with open(f"{folder}/{name}.config.json", "w") as f:
        json.dump(config, f)


def process(folder, settings):
    import torch
    import torch.utils.checkpoint

    started = time.time()
    lines, names = [], set()
    before = torch.cuda.mem_get_info()[0]
    a = torch.ones(512, 512, device="cuda", requires_grad=True)
    torch.cuda.synchronize()
    workspace = [memory(torch)]
    loss = (a @ a).sum()
    workspace.append(memory(torch))
    loss.backward()
    workspace.append(memory(torch))
    b = torch.ones(512, 512, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    torch.nn.functional.linear(b, b, b[0]).sum().backward()
    workspace.append(memory(torch))
    del a, b, loss
    lines.append(dict(case="workspace", settings=settings, torch=torch.__version__, steps=workspace,
                      device=torch.cuda.get_device_name(), total=torch.cuda.mem_get_info()[1],
                      free_at_start=before, free_after=torch.cuda.mem_get_info()[0],
                      reserved_after=torch.cuda.memory_reserved()))
    for case in CASES:
        name, s = label(case), MODELS[case["model"]]
        if settings == "stacks" and not case["stacks"]:
            continue
        if time.time() - started > BUDGETS[settings]:
            lines.append(dict(case=name, settings=settings, skipped="time"))
            continue
        torch.manual_seed(0)
        torch.cuda.empty_cache()
        recorded = settings == "stacks"
        phases = [("base", memory(torch))]
        begun = time.time()
        if recorded:
            torch.cuda.memory._record_memory_history("all", context="all", stacks="python", max_entries=10**6)
        failed = None
        try:
            with torch.device("cuda"):
                (run_train if case["mode"] == "train" else run_infer)(torch, s, case, phases)
        except Exception as e:
            failed = f"{type(e).__name__}: {e}"[:500]
        free, total = torch.cuda.mem_get_info()
        lines.append(dict(case=name, settings=settings, **case, shape=s, phases=dict(phases), failed=failed,
                          outside=total - free - torch.cuda.memory_reserved()))
        if recorded:
            torch.cuda.memory._dump_snapshot(f"{folder}/{name}.pickle")
            torch.cuda.memory._record_memory_history(None)
            with open(f"{folder}/{name}.pickle", "rb") as f, gzip.open(f"{folder}/{name}.pickle.gz", "wb", 1) as g:
                g.write(f.read())
            os.remove(f"{folder}/{name}.pickle")
        if case["model"] not in names:
            names.add(case["model"])
            write_header(torch, folder, case["model"], s)
        lines[-1]["seconds"] = round(time.time() - begun, 3)
        print(name, settings, failed or "ok", lines[-1]["seconds"])
    with open(f"{folder}/measured.{settings}.json", "w") as f:
        for line in lines:
            f.write(json.dumps(line) + "\n")


PHASES = dict(forward="forward pass", loss="forward pass", backward="backward pass", step="optimizer step",
              prefill="prompt", decode="generation")
KEYS = "case mode model batch seq dtype flavor optimizer checkpoint accumulate dropout new cache logits".split()


def distill(folder):
    """Writes measured.jsonl: a line for each case, with the peaks of requested and of reserved memory in bytes."""
    rows = {}
    for settings in ("native", "expandable", "stacks"):
        path = f"{folder}/measured.{settings}.json"
        for line in map(json.loads, open(path)) if os.path.exists(path) else ():
            if line.get("phases") is None or line.get("failed"):
                continue
            # GPT-2's cache in infer() is a view of queries, keys and values, unlike that of a real program.
            if line["mode"] == "infer" and line["model"] == "gpt2":
                continue
            row = {k: line[k] for k in KEYS if line.get(k) and (k, line[k]) != ("accumulate", 1)}
            phases = {k: v for k, v in line["phases"].items() if k not in ("base", "model", "cache")}
            base = line["phases"]["base"]["requested_current"]
            # A process that infers has one workspace of cuBLAS. That of the measurements has those of training.
            other = base - (32 << 20) if line["mode"] == "infer" else 0
            row["peak"] = max(v["requested_peak"] for v in phases.values()) - other
            row["phases"] = {}
            for k, v in phases.items():
                if name := PHASES.get(k.rstrip("0123456789.")):
                    row["phases"][name] = max(row["phases"].get(name, 0), v["requested_peak"] - other)
            row["model_bytes"] = line["phases"]["model"]["requested_current"] - base
            row = {**row, **rows.setdefault(line["case"], row), "peak": row["peak"], "phases": row["phases"]}
            reserved = row.setdefault("reserved", {})
            reserved["native" if settings == "stacks" else settings] = (
                max(v["reserved_peak"] for v in phases.values()) - other)
            rows[line["case"]] = row
    with open(f"{folder}/measured.jsonl", "w") as f:
        for row in rows.values():
            f.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "--one":
        process(sys.argv[3], sys.argv[2])
        sys.exit()
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    for settings, conf in (("native", ""), ("expandable", "expandable_segments:True"), ("stacks", "")):
        env = dict(os.environ, PYTORCH_CUDA_ALLOC_CONF=conf, PYTORCH_ALLOC_CONF=conf)
        done = subprocess.run([sys.executable, __file__, "--one", settings, folder], env=env, capture_output=True,
                              text=True)
        print(done.stdout[-8000:])
        if done.returncode:
            print("failed:", done.stderr[-3000:])
    distill(folder)
