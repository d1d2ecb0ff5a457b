"""pack-tiny: a vision transformer of DINOv2's structure, small enough to train on a CPU.

Width 192, depth 6, 3 heads, 112 px, patches of 14 px: 64 patch tokens and one class token. The
embedding is the class token after the last norm, brought to length 1. Parameters carry the names
that `transformers` 5 gives a `Dinov2Model`, so a state dict is a checkpoint as it stands.

Structure: Oquab et al., "DINOv2: Learning Robust Visual Features without Supervision" (2023).
"""

import json
import math
import pathlib

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F

DIM, DEPTH, HEADS, SIDE_PX, PATCH_PX = 192, 6, 3, 112, 14
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)

CONFIG = {
    "model_type": "dinov2",
    "architectures": ["Dinov2Model"],
    "attention_probs_dropout_prob": 0.0,
    "drop_path_rate": 0.0,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.0,
    "hidden_size": DIM,
    "image_size": SIDE_PX,
    "layer_norm_eps": 1e-06,
    "layerscale_value": 1.0,
    "mlp_ratio": 4,
    "num_attention_heads": HEADS,
    "num_channels": 3,
    "num_hidden_layers": DEPTH,
    "patch_size": PATCH_PX,
    "qkv_bias": True,
    "use_mask_token": True,
    "use_swiglu_ffn": False,
}


def scaled(x, linear, scale):
    """The linear layer and the layer scale after it, the latter in the weights, where it is cheap."""
    return F.linear(x, linear.weight * scale[:, None], linear.bias * scale)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(self, name, nn.Linear(DIM, DIM))

    def forward(self, x, scale):
        b, n, _ = x.shape
        # One product instead of three.
        weight = torch.cat([self.q_proj.weight, self.k_proj.weight, self.v_proj.weight])
        bias = torch.cat([self.q_proj.bias, self.k_proj.bias, self.v_proj.bias])
        qkv = F.linear(x, weight, bias).view(b, n, 3, HEADS, DIM // HEADS)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        # The fused CPU kernel's backward pass is several times slower than these products.
        scores = (q @ k.transpose(-2, -1)) * (DIM // HEADS) ** -0.5
        mixed = scores.softmax(-1) @ v
        return scaled(mixed.transpose(1, 2).reshape(b, n, DIM), self.o_proj, scale)


class LayerScale(nn.Module):
    def __init__(self):
        super().__init__()
        self.lambda1 = nn.Parameter(torch.ones(DIM))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(DIM, 4 * DIM)
        self.fc2 = nn.Linear(4 * DIM, DIM)

    def forward(self, x, scale):
        return scaled(F.gelu(self.fc1(x)), self.fc2, scale)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(DIM, eps=1e-6)
        self.attention = Attention()
        self.layer_scale1 = LayerScale()
        self.norm2 = nn.LayerNorm(DIM, eps=1e-6)
        self.mlp = Mlp()
        self.layer_scale2 = LayerScale()

    def forward(self, x):
        x = x + self.attention(self.norm1(x), self.layer_scale1.lambda1)
        return x + self.mlp(self.norm2(x), self.layer_scale2.lambda1)


class PatchEmbeddings(nn.Module):
    def __init__(self):
        super().__init__()
        self.projection = nn.Conv2d(3, DIM, PATCH_PX, PATCH_PX)

    def forward(self, x):
        # Patches that do not overlap are rows of one matrix product.
        b, _, h, w = x.shape
        rows = x.view(b, 3, h // PATCH_PX, PATCH_PX, w // PATCH_PX, PATCH_PX)
        rows = rows.permute(0, 2, 4, 1, 3, 5).reshape(b, -1, 3 * PATCH_PX * PATCH_PX)
        return F.linear(rows, self.projection.weight.flatten(1), self.projection.bias)


class Embeddings(nn.Module):
    def __init__(self):
        super().__init__()
        patches = (SIDE_PX // PATCH_PX) ** 2
        self.cls_token = nn.Parameter(torch.zeros(1, 1, DIM))
        self.mask_token = nn.Parameter(torch.zeros(1, DIM), requires_grad=False)
        self.position_embeddings = nn.Parameter(torch.zeros(1, 1 + patches, DIM))
        self.patch_embeddings = PatchEmbeddings()

    def forward(self, x):
        patches = self.patch_embeddings(x)
        first = self.cls_token.expand(len(x), -1, -1).to(patches.dtype)
        return torch.cat([first, patches], 1) + self.position_embeddings


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.ModuleList(Block() for _ in range(DEPTH))

    def forward(self, x):
        for block in self.layer:
            x = block(x)
        return x


class PackTiny(nn.Module):
    """Pictures `[b, 3, 112, 112]`, normalised by ImageNet's numbers, to vectors `[b, 192]`."""

    def __init__(self):
        super().__init__()
        self.embeddings = Embeddings()
        self.encoder = Encoder()
        self.layernorm = nn.LayerNorm(DIM, eps=1e-6)

    def forward(self, x):
        x = self.encoder(self.embeddings(x))
        return F.normalize(self.layernorm(x[:, 0]).float(), dim=-1)

    def start_from_patches(self, pictures):
        """Fresh weights, the patch kernels set to the main directions of the pictures' patches.

        A transformer that starts from these skips the slow first minutes of one that starts from
        noise.
        """
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                nn.init.trunc_normal_(layer.weight, std=0.02)
                nn.init.zeros_(layer.bias)
        nn.init.normal_(self.embeddings.position_embeddings, std=0.1)
        rows = F.unfold(pictures, PATCH_PX, stride=PATCH_PX).transpose(1, 2).flatten(0, 1)
        rows = rows[torch.randperm(len(rows))[:12_000]]
        _, spread, directions = torch.linalg.svd(rows - rows.mean(0), full_matrices=False)
        spread = spread[:DIM] / math.sqrt(len(rows))
        kernels = directions[:DIM] / (2 * (spread + 0.12 * spread[0].sqrt()))[:, None]
        projection = self.embeddings.patch_embeddings.projection
        projection.weight.data.copy_(kernels.view_as(projection.weight))
        nn.init.zeros_(projection.bias)


def to_tensor(pictures):
    """`[b, h, w, 3]` bytes to the `[b, 3, h, w]` floats the model takes."""
    x = torch.from_numpy(pictures).permute(0, 3, 1, 2).float().div_(255)
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (MEAN, STD))
    return (x - mean) / std


def load(path):
    """A model from a safetensors file or a folder that holds `model.safetensors`."""
    path = pathlib.Path(path)
    path = path / "model.safetensors" if path.is_dir() else path
    model = PackTiny()
    model.load_state_dict({k: v.float() for k, v in load_file(path).items()})
    return model.eval()


def save(state, folder):
    """Writes `model.safetensors` (f16), `model_f32.safetensors` and `config.json`."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    full = {k: v.detach().float().contiguous() for k, v in state.items()}
    save_file(full, folder / "model_f32.safetensors", metadata={"format": "pt"})
    half = {k: v.half() for k, v in full.items()}
    save_file(half, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
