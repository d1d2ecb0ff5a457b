"""DINOv2 ViT-S/14 in f32: this port, PyTorch and candle-transformers, interleaved in one run.

    benches/compare_dinov2.sh [rounds]

Prints the machine, the threads, the least and the median time of each engine, the ratio of this
port to PyTorch (below 1 is faster), and how far the class tokens are apart at 518, where no
position is interpolated.
"""

import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import transformers
from safetensors.torch import save_file

CASES = [(224, 1), (224, 8), (518, 1)]


def checkpoint(folder):
    """A random ViT-S/14 in transformers and under the original names, and PyTorch's model."""
    torch.manual_seed(0)
    config = transformers.Dinov2Config(
        hidden_size=384, num_hidden_layers=12, num_attention_heads=6, image_size=518, patch_size=14
    )
    model = transformers.Dinov2Model(config).eval()
    s = model.state_dict()
    out = {
        "cls_token": s["embeddings.cls_token"],
        "pos_embed": s["embeddings.position_embeddings"],
        "patch_embed.proj.weight": s["embeddings.patch_embeddings.projection.weight"],
        "patch_embed.proj.bias": s["embeddings.patch_embeddings.projection.bias"],
        "norm.weight": s["layernorm.weight"],
        "norm.bias": s["layernorm.bias"],
    }
    for i in range(12):
        a, b = f"encoder.layer.{i}.", f"blocks.{i}."
        for kind in ("weight", "bias"):
            out[f"{b}attn.qkv.{kind}"] = torch.cat(
                [s[f"{a}attention.{x}_proj.{kind}"] for x in "qkv"]
            )
            out[f"{b}attn.proj.{kind}"] = s[f"{a}attention.o_proj.{kind}"]
            for same in ("norm1", "norm2", "mlp.fc1", "mlp.fc2"):
                out[f"{b}{same}.{kind}"] = s[f"{a}{same}.{kind}"]
        out[f"{b}ls1.gamma"] = s[f"{a}layer_scale1.lambda1"]
        out[f"{b}ls2.gamma"] = s[f"{a}layer_scale2.lambda1"]
    out = {k: v.detach().clone().contiguous() for k, v in out.items()}
    own, headed = folder / "own.safetensors", folder / "headed.safetensors"
    save_file(out, own)
    # A head that passes the class token on, for the engine that has no other way to it.
    head = torch.zeros(1000, 768)
    head[:384, :384] = torch.eye(384)
    save_file({**out, "head.weight": head, "head.bias": torch.zeros(1000)}, headed)
    return model, own, headed


def pixels(batch, side):
    i = torch.arange(batch * 3 * side * side, dtype=torch.int64)
    return ((i * 7919 % 1013).float() / 506 - 1).reshape(batch, 3, side, side)


class Child:
    def __init__(self, binary, own, headed, threads):
        env = {**os.environ, "RAYON_NUM_THREADS": str(threads)}
        self.process = subprocess.Popen(
            [binary, own, headed], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )
        assert self.process.stdout.readline().strip() == "ready"

    def run(self, engine, side, batch):
        self.process.stdin.write(f"{engine} {side} {batch}\n")
        self.process.stdin.flush()
        ms, *values = self.process.stdout.readline().split()
        return float(ms), torch.tensor([float(v) for v in values])


def main():
    binary, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 15
    threads = len(os.sched_getaffinity(0))
    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        model, own, headed = checkpoint(pathlib.Path(folder))
        child = Child(binary, own, headed, threads)

        def pytorch(side, batch):
            x = pixels(batch, side)
            start = time.perf_counter()
            result = model(x).last_hidden_state[0, 0]
            return (time.perf_counter() - start) * 1e3, result

        print(f"{platform.machine()}, {threads} threads, torch {torch.__version__}, f32")
        print(f"{'side':>5} {'batch':>5} {'own min/med ms':>18} {'torch min/med ms':>18} "
              f"{'candle min ms':>14} {'own/torch min':>14} {'own/torch med':>14}")
        for side, batch in CASES:
            times = {"own": [], "torch": [], "candle": []}
            for i in range(rounds + 2):
                ours, a = child.run("own", side, batch)
                torchs, b = pytorch(side, batch)
                row = {"own": ours, "torch": torchs}
                # The slow engine runs in fewer rounds.
                if i % 3 == 0:
                    row["candle"], c = child.run("candle", side, batch)
                if i >= 2:
                    for name, ms in row.items():
                        times[name].append(ms)
            least = {k: min(v) for k, v in times.items() if v}
            middle = {k: statistics.median(v) for k, v in times.items() if v}
            print(f"{side:>5} {batch:>5} {least['own']:>9.1f}/{middle['own']:>8.1f} "
                  f"{least['torch']:>9.1f}/{middle['torch']:>8.1f} "
                  f"{least.get('candle', float('nan')):>14.1f} "
                  f"{least['own'] / least['torch']:>14.2f} {middle['own'] / middle['torch']:>14.2f}",
                  flush=True)
            if side == 518:
                print(f"class token at 518: own - torch {float((a - b).abs().max()):.1e}, "
                      f"own - candle {float((a - c).abs().max()):.1e} "
                      "(candle normalises with another epsilon)")


if __name__ == "__main__":
    main()
