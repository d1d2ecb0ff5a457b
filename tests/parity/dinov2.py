"""Writes the DINOv2 parity fixtures: tiny random checkpoints and what PyTorch makes of them.

Made with Python 3.11, torch 2.15.0, torchvision 0.29.2, transformers 5.24.0, pillow 13.0.0,
safetensors 0.8.0, numpy 2.4.6. The versions found at run time are written into reference.json.

    python tests/parity/dinov2.py            # writes tests/fixtures/dinov2

Reference for the transformer: `Dinov2Model` and `Dinov2WithRegistersModel` of transformers, in f32.
Reference for the position grid: the original repository's rule, which is what the weights were
trained and evaluated with: `interpolate(scale_factor=(n + 0.1) / m, mode="bicubic")` for models
without registers and `interpolate(size=n, mode="bicubic", antialias=True)` for models with them.
transformers 5.24 uses `size=n` without antialias for the former, so the rule is put in its place
here; one fixture keeps transformers' own rule. Reference for pictures: Pillow and torchvision.
"""

import json
import math
import pathlib
import sys

import numpy as np
import PIL
import torch
import torchvision
import transformers
from PIL import Image
from safetensors.torch import save_file
from torch import nn
from torchvision.transforms import v2
from transformers import (
    Dinov2Config,
    Dinov2Model,
    Dinov2WithRegistersConfig,
    Dinov2WithRegistersModel,
)

OUT = pathlib.Path(__file__).resolve().parents[1] / "fixtures" / "dinov2"
DIM, HEADS, DEPTH, PATCH = 48, 3, 2, 14
# (height, width, batch)
SIZES = [
    (98, 98, 1),
    (98, 98, 7),
    (224, 224, 1),
    (224, 224, 2),
    (518, 518, 1),
    (224, 336, 2),
    (336, 224, 1),
]


def pixels(batch, height, width):
    """The same arithmetic as in the Rust test: whole numbers, exact in f32."""
    n = batch * 3 * height * width
    i = np.arange(n, dtype=np.uint64)
    x = (i * np.uint64(2654435761) + np.uint64(12345)) & np.uint64(0xFFFFFFFF)
    x ^= x >> np.uint64(15)
    x = (x * np.uint64(2246822519)) & np.uint64(0xFFFFFFFF)
    x ^= x >> np.uint64(13)
    values = (x >> np.uint64(16)).astype(np.float32) / np.float32(16384.0) - np.float32(2.0)
    return torch.from_numpy(values.reshape(batch, 3, height, width))


def randomise(model, seed):
    """Weights large enough that every stage matters, exact in f16."""
    gen = torch.Generator().manual_seed(seed)
    for name, p in sorted(model.named_parameters()):
        noise = torch.randn(p.shape, generator=gen)
        if "norm" in name and name.endswith("weight"):
            value = 1 + 0.2 * noise
        elif "lambda" in name:
            value = 0.6 + 0.2 * noise
        elif name.endswith("bias"):
            value = 0.1 * noise
        elif "position" in name or "token" in name:
            value = 0.5 * noise
        else:
            value = noise / math.sqrt(p[0].numel())
        p.data.copy_(value.half().float())


def original_positions(model, antialias):
    """The original repository's rule for the position grid."""
    table = model.embeddings.position_embeddings
    m = math.isqrt(table.shape[1] - 1)

    def interpolate(_embeddings, height, width):
        rows, cols = height // PATCH, width // PATCH
        if (rows, cols) == (m, m):
            return table
        grid = table[:, 1:].reshape(1, m, m, DIM).permute(0, 3, 1, 2)
        if antialias:
            how = {"size": (rows, cols), "antialias": True}
        else:
            how = {"scale_factor": ((rows + 0.1) / m, (cols + 0.1) / m)}
        grid = nn.functional.interpolate(grid, mode="bicubic", **how)
        assert grid.shape[-2:] == (rows, cols)
        grid = grid.permute(0, 2, 3, 1).reshape(1, -1, DIM)
        return torch.cat((table[:, :1], grid), dim=1)

    model.embeddings.interpolate_pos_encoding = interpolate


def picked(tokens):
    """Twelve tokens spread over the sequence, the first and the last among them."""
    n = tokens.shape[1]
    return sorted({round(i * (n - 1) / 11) for i in range(12)})


def stages(model, sizes):
    out = {}
    for height, width, batch in sizes:
        with torch.no_grad():
            result = model(pixels(batch, height, width), output_hidden_states=True)
        states = [*result.hidden_states, result.last_hidden_state]
        rows = picked(states[0])
        # Batches after the first are told apart by their class token alone.
        out[f"{height}x{width}b{batch}"] = {
            "rows": rows,
            "stages": [s[0, rows].flatten().tolist() for s in states],
            "class": result.last_hidden_state[:, 0].flatten().tolist(),
        }
    return out


def original_names(model, swiglu):
    """The state under the names of the original repository."""
    s = {k: v.detach().clone() for k, v in model.state_dict().items()}
    out = {
        "cls_token": s["embeddings.cls_token"],
        "pos_embed": s["embeddings.position_embeddings"],
        "mask_token": s["embeddings.mask_token"],
        "patch_embed.proj.weight": s["embeddings.patch_embeddings.projection.weight"],
        "patch_embed.proj.bias": s["embeddings.patch_embeddings.projection.bias"],
        "norm.weight": s["layernorm.weight"],
        "norm.bias": s["layernorm.bias"],
    }
    if "embeddings.register_tokens" in s:
        out["register_tokens"] = s["embeddings.register_tokens"]
    for i in range(DEPTH):
        a, b = f"encoder.layer.{i}.", f"blocks.{i}."
        for kind in ("weight", "bias"):
            out[f"{b}attn.qkv.{kind}"] = torch.cat(
                [s[f"{a}attention.{x}_proj.{kind}"] for x in "qkv"]
            )
            out[f"{b}attn.proj.{kind}"] = s[f"{a}attention.o_proj.{kind}"]
            for norm in ("norm1", "norm2"):
                out[f"{b}{norm}.{kind}"] = s[f"{a}{norm}.{kind}"]
            if swiglu:
                out[f"{b}mlp.w12.{kind}"] = torch.cat(
                    [s[f"{a}mlp.gate_proj.{kind}"], s[f"{a}mlp.up_proj.{kind}"]]
                )
                out[f"{b}mlp.w3.{kind}"] = s[f"{a}mlp.down_proj.{kind}"]
            else:
                for fc in ("fc1", "fc2"):
                    out[f"{b}mlp.{fc}.{kind}"] = s[f"{a}mlp.{fc}.{kind}"]
        out[f"{b}ls1.gamma"] = s[f"{a}layer_scale1.lambda1"]
        out[f"{b}ls2.gamma"] = s[f"{a}layer_scale2.lambda1"]
    return {k: v.half().contiguous() for k, v in out.items()}


def released_names(model, swiglu):
    """The state under the names of Hugging Face's released files."""
    out = {}
    for key, value in model.state_dict().items():
        for new, old in (
            ("attention.q_proj", "attention.attention.query"),
            ("attention.k_proj", "attention.attention.key"),
            ("attention.v_proj", "attention.attention.value"),
            ("attention.o_proj", "attention.output.dense"),
        ):
            key = key.replace(new, old)
        out[key] = value.detach().half().contiguous()
    if swiglu:
        for i in range(DEPTH):
            for kind in ("weight", "bias"):
                mlp = f"encoder.layer.{i}.mlp."
                out[f"{mlp}weights_in.{kind}"] = torch.cat(
                    [out.pop(f"{mlp}gate_proj.{kind}"), out.pop(f"{mlp}up_proj.{kind}")]
                )
                out[f"{mlp}weights_out.{kind}"] = out.pop(f"{mlp}down_proj.{kind}")
    return out


def strided(state):
    """The same tensors as transposed, sliced and offset views of larger storages."""
    out = {}
    for i, (key, value) in enumerate(state.items()):
        if value.ndim == 2 and i % 2:
            out[key] = value.t().contiguous().t()
        elif value.ndim == 1:
            wide = torch.zeros(2 * value.numel() + 3, dtype=value.dtype)
            wide[3::2] = value
            out[key] = wide[3::2]
        else:
            out[key] = value
    return out


def noise_picture(seed, width, height):
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (max(2, height // 9), max(2, width // 7), 3), dtype=np.uint8)
    smooth = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
    grain = rng.integers(-20, 21, (height, width, 3))
    return Image.fromarray(np.clip(np.asarray(smooth) + grain, 0, 255).astype(np.uint8))


def pictures():
    """Twenty pictures, up and down, odd and extreme sides; outputs by Pillow."""
    cases = []
    rng = np.random.default_rng(5)
    sides = [(31, 47), (90, 30), (64, 64), (17, 5), (120, 77)]
    targets = [(28, 28), (14, 70), (56, 42), (97, 13)]
    blobs = {}
    for i in range(20):
        width, height = sides[i % len(sides)]
        to_w, to_h = targets[(i // len(sides)) % len(targets)]
        filt = "bicubic" if i % 3 else "bilinear"
        picture = noise_picture(int(rng.integers(1 << 30)), width, height)
        resample = getattr(Image.Resampling, filt.upper())
        small = picture.resize((to_w, to_h), resample)
        # torchvision on tensors, as SAM 3's processor runs it.
        tensor = v2.functional.pil_to_tensor(picture)
        mode = getattr(v2.InterpolationMode, filt.upper())
        on_tensor = v2.functional.resize(tensor, [to_h, to_w], interpolation=mode, antialias=True)
        # torchvision on PIL pictures, with ImageNet's numbers, as DINOv2's eval transform.
        chain = v2.Compose(
            [
                v2.Resize((to_h, to_w), interpolation=mode),
                v2.ToImage(),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]),
            ]
        )
        normal = chain(picture)
        blobs[f"{i}.input"] = torch.from_numpy(np.asarray(picture).copy())
        blobs[f"{i}.pil"] = torch.from_numpy(np.asarray(small).copy())
        blobs[f"{i}.tensor"] = on_tensor.permute(1, 2, 0).contiguous()
        cases.append(
            {"filter": filt, "normal": normal.flatten()[:: max(1, normal.numel() // 40)].tolist()}
        )
    save_file(blobs, OUT / "pictures.safetensors")
    return cases


def main():
    torch.manual_seed(0)
    torch.set_grad_enabled(False)
    OUT.mkdir(parents=True, exist_ok=True)
    common = dict(
        hidden_size=DIM, num_hidden_layers=DEPTH, num_attention_heads=HEADS, patch_size=PATCH
    )
    reference = {
        "versions": {
            "python": sys.version.split()[0],
            "torch": torch.__version__,
            "torchvision": torchvision.__version__,
            "transformers": transformers.__version__,
            "pillow": PIL.__version__,
            "numpy": np.__version__,
        },
        "heads": HEADS,
    }

    plain = Dinov2Model(Dinov2Config(image_size=518, mlp_ratio=4, **common)).eval()
    randomise(plain, 1)
    reference["sizes_rule"] = stages(plain, [(224, 224, 1), (98, 98, 1)])
    original_positions(plain, antialias=False)
    reference["plain"] = stages(plain, SIZES)
    save_file(released_names(plain, False), OUT / "plain.safetensors")

    registers = Dinov2WithRegistersModel(
        Dinov2WithRegistersConfig(image_size=224, mlp_ratio=4, num_register_tokens=4, **common)
    ).eval()
    randomise(registers, 2)
    original_positions(registers, antialias=True)
    reference["registers"] = stages(registers, SIZES)
    torch.save({"model": strided(original_names(registers, False))}, OUT / "registers.pth")

    swiglu = Dinov2Model(
        Dinov2Config(image_size=98, mlp_ratio=4, use_swiglu_ffn=True, **common)
    ).eval()
    randomise(swiglu, 3)
    original_positions(swiglu, antialias=False)
    reference["swiglu"] = stages(swiglu, [(98, 98, 2), (224, 336, 1)])
    save_file(
        {k: v.half().contiguous() for k, v in swiglu.state_dict().items()},
        OUT / "swiglu.safetensors",
    )
    torch.save(original_names(swiglu, True), OUT / "swiglu.pth")
    save_file(released_names(swiglu, True), OUT / "swiglu_released.safetensors")

    reference["pictures"] = pictures()
    text = json.dumps(reference, separators=(",", ":"))
    (OUT / "reference.json").write_text(json.dumps(rounded(json.loads(text)), separators=(",", ":")))


def rounded(value):
    """Seven digits are all that f32 holds."""
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, list):
        return [rounded(v) for v in value]
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    return value


if __name__ == "__main__":
    main()
