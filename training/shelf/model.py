"""The detector of SAM 3.1 at any size, for training.

Written from a description of the model; parameter names are those of the published checkpoint below
`detector.`, so that an exported file is read by `crates/sam3` as it is. What a small model does not
use is left out: there is no mask branch, no tracker, and the projections of example boxes and points
are carried along without being trained.

Shapes: `n` pictures, `p` prompts (each belongs to one picture), `l = side * side` cells, `t` text
tokens, `q` queries, `d` channels.
"""

import json
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

LOGIT_EPS = 1e-3
SCORE_LIMIT = 12.0
TEMPERATURE = 10_000.0


def read_config(path):
    """Reads `config.json`; the short names are the ones `Sam3Config::from_json` takes too."""
    with open(path) as file:
        return json.load(file)


def attend(q, k, v, mask=None):
    """`softmax(q k^T) v` in plain steps: on a CPU with bf16 matrix units this trains several times
    faster than the fused kernel. `q` is scaled already; `mask` is added."""
    scores = q @ k.transpose(-1, -2)
    if mask is not None:
        scores = scores + mask
    return scores.softmax(-1) @ v


def wave_lengths(channels):
    k = torch.arange(channels, dtype=torch.float64)
    return (TEMPERATURE ** (2 * (k // 2) / channels)).float()


def sine(values, channels):
    """Sine encoding of radians: even channels sine, odd channels cosine; adds a last axis."""
    angle = values[..., None] / wave_lengths(channels)
    even = torch.arange(channels) % 2 == 0
    return torch.where(even, angle.sin(), angle.cos())


def sine_map(side, channels):
    """`[l, d]`: half the channels from the row, half from the column."""
    place = torch.arange(1, side + 1).float() / (side + 1e-6) * (2 * math.pi)
    waves = sine(place, channels // 2)
    rows = waves[:, None].expand(side, side, -1)
    columns = waves[None].expand(side, side, -1)
    return torch.cat([rows, columns], -1).reshape(side * side, channels)


def rotary(side, head_dim, scale):
    """`[side * side, head_dim / 2]` cosines and sines; columns turn the first half of the pairs."""
    speeds = TEMPERATURE ** (-4 * torch.arange(head_dim // 4, dtype=torch.float64) / head_dim)
    place = torch.arange(side).float() * scale
    angle = place[:, None] * speeds.float()
    columns = angle[None].expand(side, side, -1)
    rows = angle[:, None].expand(side, side, -1)
    angle = torch.cat([columns, rows], -1).reshape(side * side, head_dim // 2)
    return angle.cos(), angle.sin()


def rotate(x, table):
    """Turns adjacent channel pairs of `x` `[.., l, head_dim]`."""
    cos, sin = (part.to(x.dtype) for part in table)
    a, b = x.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)


def inverse_sigmoid(p):
    p = p.clamp(0, 1)
    return (p.clamp(min=LOGIT_EPS) / (1 - p).clamp(min=LOGIT_EPS)).log()


class ReluStack(nn.Module):
    """Linear layers with ReLU between them."""

    def __init__(self, *sizes):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = layer(x).relu_()
        return self.layers[-1](x)


class MultiHead(nn.Module):
    """Attention with one packed input projection."""

    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.in_proj_weight = nn.Parameter(torch.empty(3 * d, d))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * d))
        self.out_proj = nn.Linear(d, d)
        nn.init.xavier_uniform_(self.in_proj_weight)
        nn.init.zeros_(self.out_proj.bias)

    def split(self, x):
        b, n, d = x.shape
        return x.view(b, n, self.heads, d // self.heads).transpose(1, 2)

    def project(self, q, k, v):
        w, b = self.in_proj_weight.chunk(3), self.in_proj_bias.chunk(3)
        scale = (q.shape[-1] // self.heads) ** -0.5
        if q is k:
            q, k = F.linear(q, torch.cat(w[:2]), torch.cat(b[:2])).chunk(2, -1)
        else:
            q, k = F.linear(q, w[0], b[0]), F.linear(k, w[1], b[1])
        return self.split(q) * scale, self.split(k), self.split(F.linear(v, w[2], b[2]))

    def join(self, x):
        return self.out_proj(x.transpose(1, 2).flatten(-2))

    def forward(self, q, k, v, mask=None):
        return self.join(attend(*self.project(q, k, v), mask))


class TrunkAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x, table):
        b, n, c = x.shape
        qkv = self.qkv(x).view(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        q, k = rotate(qkv[:2], table)
        mixed = attend(q * (c // self.heads) ** -0.5, k, qkv[2])
        return self.proj(mixed.transpose(1, 2).flatten(-2))


class TrunkMlp(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden, dim)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x)))


class TrunkBlock(nn.Module):
    def __init__(self, dim, heads, hidden):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = TrunkAttention(dim, heads)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = TrunkMlp(dim, hidden)


class PatchEmbed(nn.Module):
    def __init__(self, dim, patch):
        super().__init__()
        self.proj = nn.Conv2d(3, dim, patch, patch, bias=False)


class Trunk(nn.Module):
    """`[n, 3, s, s]` to `[n, l, vdim]`."""

    def __init__(self, c):
        super().__init__()
        self.side, self.window = c["img"] // c["patch"], c["window"]
        if self.side % self.window:
            raise ValueError("the grid must be a multiple of the window")
        dim, heads = c["vdim"], c["vheads"]
        self.glob = set(c["glob"])
        self.patch_embed = PatchEmbed(dim, c["patch"])
        self.pos_embed = nn.Parameter(torch.randn(1, 577, dim) * 0.02)
        self.ln_pre = nn.LayerNorm(dim)
        self.blocks = nn.ModuleList(TrunkBlock(dim, heads, 4 * dim) for _ in range(c["vdepth"]))
        self.tables = {
            False: rotary(self.window, dim // heads, 1.0),
            True: rotary(self.side, dim // heads, self.window / self.side),
        }

    def positions(self):
        table = self.pos_embed[:, 1:].unflatten(1, (24, 24))
        times = -(-self.side // 24)
        return table.repeat(1, times, times, 1)[:, : self.side, : self.side].flatten(1, 2)

    def to_windows(self, x):
        n, _, c = x.shape
        k, w = self.side // self.window, self.window
        return x.view(n, k, w, k, w, c).transpose(2, 3).reshape(n * k * k, w * w, c)

    def from_windows(self, x, n):
        k, w = self.side // self.window, self.window
        return x.view(n, k, k, w, w, -1).transpose(2, 3).reshape(n, self.side**2, -1)

    def forward(self, pictures):
        x = self.patch_embed.proj(pictures).flatten(2).transpose(1, 2)
        x = self.ln_pre(x + self.positions().to(x.dtype))
        for i, block in enumerate(self.blocks):
            normed, wide = block.norm1(x), i in self.glob
            if wide:
                x = x + block.attn(normed, self.tables[True])
            else:
                mixed = block.attn(self.to_windows(normed), self.tables[False])
                x = x + self.from_windows(mixed, len(x))
            x = x + block.mlp(block.norm2(x))
        return x


class NeckLevel(nn.Module):
    def __init__(self, dim, d):
        super().__init__()
        self.conv_1x1 = nn.Conv2d(dim, d, 1)
        self.conv_3x3 = nn.Conv2d(d, d, 3, padding=1)

    def forward(self, x):
        return self.conv_3x3(self.conv_1x1(x))


class Vision(nn.Module):
    """`[n, 3, s, s]` to `[n, l, d]`; without masks only the neck's third level is there."""

    def __init__(self, c):
        super().__init__()
        self.trunk = Trunk(c)
        self.convs = nn.ModuleDict({"2": NeckLevel(c["vdim"], c["d"])})

    def forward(self, pictures):
        x = self.trunk(pictures)
        side = self.trunk.side
        x = self.convs["2"](x.transpose(1, 2).unflatten(2, (side, side)))
        return x.flatten(2).transpose(1, 2).contiguous()


class TextMlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc = nn.Linear(width, 4 * width)
        self.c_proj = nn.Linear(4 * width, width)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x)))


class TextBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = MultiHead(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = TextMlp(width)

    def forward(self, x, mask):
        n = self.ln_1(x)
        x = x + self.attn(n, n, n, mask)
        return x + self.mlp(self.ln_2(x))


class TextTransformer(nn.Module):
    def __init__(self, width, heads, layers):
        super().__init__()
        self.resblocks = nn.ModuleList(TextBlock(width, heads) for _ in range(layers))


class TextEncoder(nn.Module):
    def __init__(self, c):
        super().__init__()
        width = c["tw"]
        self.token_embedding = nn.Embedding(c["merges"] + 514, width)
        self.positional_embedding = nn.Parameter(torch.randn(c["ctx"], width) * 0.01)
        self.transformer = TextTransformer(width, c["th"], c["tl"])
        self.ln_final = nn.LayerNorm(width)
        nn.init.normal_(self.token_embedding.weight, std=0.02)

    def forward(self, ids):
        x = self.token_embedding(ids) + self.positional_embedding[: ids.shape[1]]
        mask = torch.full((x.shape[1],) * 2, float("-inf")).triu(1)
        for block in self.transformer.resblocks:
            x = block(x, mask)
        return self.ln_final(x)


class Language(nn.Module):
    """Ids `[p, t]` to `[p, t, d]` and a mask, true for a token."""

    def __init__(self, c):
        super().__init__()
        self.encoder = TextEncoder(c)
        self.resizer = nn.Linear(c["tw"], c["d"])

    def forward(self, ids):
        return self.resizer(self.encoder(ids)), ids != 0


class Backbone(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.vision_backbone = Vision(c)
        self.language_backbone = Language(c)


class PromptLayer(nn.Module):
    """Pre-norm: a look at oneself, a look at something else, a feed-forward pair."""

    def __init__(self, c):
        super().__init__()
        d = c["d"]
        self.norm1 = nn.LayerNorm(d)
        self.self_attn = MultiHead(d, c["heads"])
        self.norm2 = nn.LayerNorm(d)
        self.cross_attn_image = MultiHead(d, c["heads"])
        self.norm3 = nn.LayerNorm(d)
        self.linear1 = nn.Linear(d, c["ffn"])
        self.linear2 = nn.Linear(c["ffn"], d)

    def look_at_self(self, x, positions):
        n = self.norm1(x)
        placed = n if positions is None else n + positions
        return x + self.self_attn(placed, placed, n)

    def look_at(self, x, keys, values, mask):
        x = x + self.cross_attn_image(self.norm2(x), keys, values, mask)
        return x + self.linear2(self.linear1(self.norm3(x)).relu_())


class GeometryEncoder(nn.Module):
    """One class token per picture, `[n, 1, d]`; the projections of boxes and points are not used."""

    def __init__(self, c):
        super().__init__()
        d, roi = c["d"], c["roi"]
        self.label_embed = nn.Embedding(2, d)
        self.cls_embed = nn.Embedding(1, d)
        self.points_direct_project = nn.Linear(2, d)
        self.points_pool_project = nn.Linear(d, d)
        self.points_pos_enc_project = nn.Linear(d, d)
        self.boxes_direct_project = nn.Linear(4, d)
        self.boxes_pool_project = nn.Conv2d(d, d, roi)
        self.boxes_pos_enc_project = nn.Linear(d + 2, d)
        self.img_pre_norm = nn.LayerNorm(d)
        self.final_proj = nn.Linear(d, d)
        self.norm = nn.LayerNorm(d)
        self.encode = nn.ModuleList(PromptLayer(c) for _ in range(c["geo"]))
        self.encode_norm = nn.LayerNorm(d)

    def forward(self, image, positions):
        x = self.norm(self.final_proj(self.cls_embed.weight)).expand(len(image), 1, -1)
        keys = image + positions
        for layer in self.encode:
            x = layer.look_at(layer.look_at_self(x, None), keys, image, None)
        return self.encode_norm(x)


class FusionEncoder(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.layers = nn.ModuleList(PromptLayer(c) for _ in range(c["enc"]))

    def forward(self, image, owner, positions, tokens, mask):
        """`image` `[n, l, d]` and the picture of each prompt, `[p]`, to `[p, l, d]`. What no prompt
        enters is done once a picture."""
        x = self.layers[0].look_at_self(image, positions)[owner]
        for i, layer in enumerate(self.layers):
            if i > 0:
                x = layer.look_at_self(x, positions)
            x = layer.look_at(x, tokens, tokens, mask)
        return x


class DecoderLayer(nn.Module):
    def __init__(self, c):
        super().__init__()
        d, heads = c["d"], c["heads"]
        self.self_attn = MultiHead(d, heads)
        self.norm2 = nn.LayerNorm(d)
        self.ca_text = MultiHead(d, heads)
        self.catext_norm = nn.LayerNorm(d)
        self.cross_attn = MultiHead(d, heads)
        self.norm1 = nn.LayerNorm(d)
        self.linear1 = nn.Linear(d, c["ffn"])
        self.linear2 = nn.Linear(c["ffn"], d)
        self.norm3 = nn.LayerNorm(d)

    def forward(self, x, places, alone, keys, memory, cells, bias, tokens, mask):
        """`alone` queries at the start see each other; those behind them, the one-to-many copies
        that only training has, see the picture and the prompt alone."""
        placed = x + places
        seen = self.self_attn(placed[:, :alone], placed[:, :alone], x[:, :alone])
        if alone < x.shape[1]:
            seen = torch.cat([x[:, :alone] + seen, x[:, alone:]], 1)
        else:
            seen = x + seen
        x = self.norm2(seen)
        x = self.catext_norm(x + self.ca_text(x + places, tokens, tokens, mask))
        # The bias of a cell is a row part plus a column part, so it rides along as further channels
        # of query and key instead of being spread out to every pair.
        q, k, v = self.cross_attn.project(x + places, keys, memory)
        q = torch.cat([q, bias.to(q.dtype)], -1)
        k = torch.cat([k, cells.to(k.dtype).expand(*k.shape[:2], -1, -1)], -1)
        x = self.norm1(x + self.cross_attn.join(attend(q, k, v)))
        return self.norm3(x + self.linear2(self.linear1(x).relu_()))


def to_corners(boxes):
    """`[cx, cy, w, h]` to `[x0, y0, x1, y1]`."""
    centre, size = boxes[..., :2], boxes[..., 2:]
    return torch.cat([centre - size / 2, centre + size / 2], -1)


@torch.no_grad()
def looked_up(stack, gap, reach=1.1, steps=67):
    """`stack(gap)` for pairs within `reach`, from a table: a share of the time where no gradient is
    wanted, and exact enough to train with."""
    knots = torch.linspace(-reach, reach, steps)
    second, first = torch.meshgrid(knots, knots, indexing="ij")
    table = stack(torch.stack([first, second], -1)).float().permute(2, 0, 1)
    at = (gap / reach).flatten(0, -3)
    found = F.grid_sample(table[None], at[None], align_corners=True, padding_mode="border")
    return found[0].permute(1, 2, 0).unflatten(0, gap.shape[:-2])


class Decoder(nn.Module):
    def __init__(self, c):
        super().__init__()
        d, q = c["d"], c["nq"]
        self.side, self.d = c["img"] // c["patch"], d
        self.layers = nn.ModuleList(DecoderLayer(c) for _ in range(c["dec"]))
        self.norm = nn.LayerNorm(d)
        self.query_embed = nn.Embedding(q, d)
        self.reference_points = nn.Embedding(q, 4)
        self.presence_token = nn.Embedding(1, d)
        self.presence_token_out_norm = nn.LayerNorm(d)
        self.presence_token_head = ReluStack(d, d, d, 1)
        self.bbox_embed = ReluStack(d, d, d, 4)
        self.ref_point_head = ReluStack(2 * d, d, d)
        self.boxRPB_embed_x = ReluStack(2, d, c["heads"])
        self.boxRPB_embed_y = ReluStack(2, d, c["heads"])
        self.start_fresh()

    @torch.no_grad()
    def start_fresh(self):
        """Anchors on a grid, and boxes that first stay where they are."""
        q = len(self.reference_points.weight)
        side = math.isqrt(q)
        if side * side == q:
            place = (torch.arange(side) + 0.5) / side
            y, x = torch.meshgrid(place, place, indexing="ij")
            size = torch.tensor([0.085, 0.14]).expand(q, 2)
            anchors = torch.cat([torch.stack([x, y], -1).view(q, 2), size], -1)
            self.reference_points.weight.copy_(inverse_sigmoid(anchors))
        nn.init.normal_(self.query_embed.weight, std=0.05)
        nn.init.zeros_(self.bbox_embed.layers[-1].weight)
        nn.init.zeros_(self.bbox_embed.layers[-1].bias)

    def bias(self, boxes):
        """`[p, heads, q, 2 side]`: the row part and the column part of each query's bias."""
        place = torch.arange(self.side) / self.side
        x0, y0, x1, y1 = to_corners(boxes).unbind(-1)

        def axis(stack, low, high):
            gap = torch.stack([place - low[..., None], place - high[..., None]], -1) * 8
            gap = gap.sign() * (gap.abs() + 1).log2() / 3
            frozen = not stack.layers[0].weight.requires_grad
            return looked_up(stack, gap) if self.training and frozen else stack(gap)

        rows = axis(self.boxRPB_embed_y, y0, y1)
        columns = axis(self.boxRPB_embed_x, x0, x1)
        return torch.cat([rows, columns], 2).permute(0, 3, 1, 2)

    def forward(self, memory, positions, tokens, mask, copies):
        """Per layer: `queries` `[p, q, d]`, `boxes` `[p, q, 4]`, `presence` `[p]`. With `copies`
        there are `2 q` queries; the second half is for the one-to-many loss."""
        p, q = len(memory), len(self.query_embed.weight)
        cells = torch.eye(self.side)
        rows = cells[:, None].expand(-1, self.side, -1).flatten(0, 1)
        columns = cells[None].expand(self.side, -1, -1).flatten(0, 1)
        cells = torch.cat([rows, columns], -1)
        keys = memory + positions
        queries, refs = self.query_embed.weight, self.reference_points.weight.sigmoid()
        if copies:
            queries, refs = queries.repeat(2, 1), refs.repeat(2, 1)
        x = torch.cat([self.presence_token.weight, queries]).to(memory.dtype).expand(p, -1, -1)
        boxes = refs.expand(p, -1, -1)
        out = []
        for layer in self.layers:
            start = boxes.detach() if out else boxes
            waves = sine(start[..., [1, 0, 2, 3]] * (2 * math.pi), self.d // 2).flatten(-2)
            places = F.pad(self.ref_point_head(waves.to(memory.dtype)), (0, 0, 1, 0))
            bias = F.pad(self.bias(start), (0, 0, 1, 0))
            x = layer(x, places, q + 1, keys, memory, cells, bias, tokens, mask)
            normed = self.norm(x[:, 1:])
            boxes = (self.bbox_embed(normed).float() + inverse_sigmoid(start)).sigmoid()
            presence = self.presence_token_head(self.presence_token_out_norm(x[:, 0]))
            out.append({"queries": normed, "boxes": boxes, "presence": presence[:, 0].float()})
        return out


class PromptMlp(ReluStack):
    def __init__(self, d, hidden):
        super().__init__(d, hidden, d)
        self.out_norm = nn.LayerNorm(d)

    def forward(self, x):
        return self.out_norm(x + super().forward(x))


class Scoring(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.prompt_mlp = PromptMlp(c["d"], c["ffn"])
        self.prompt_proj = nn.Linear(c["d"], c["d"])
        self.hs_proj = nn.Linear(c["d"], c["d"])

    def pooled(self, tokens, mask):
        weight = mask.to(tokens.dtype)[..., None]
        mixed = self.prompt_mlp(tokens)
        return (mixed * weight).sum(1) / weight.sum(1).clamp(min=1)

    def forward(self, queries, pooled):
        wanted = self.prompt_proj(pooled)[:, :, None]
        scores = self.hs_proj(queries) @ wanted / math.sqrt(queries.shape[-1])
        return scores[..., 0].float().clamp(-SCORE_LIMIT, SCORE_LIMIT)


class Transformer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.encoder = FusionEncoder(c)
        self.decoder = Decoder(c)


class Detector(nn.Module):
    """Pictures and phrases to boxes, scores and presence."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.backbone = Backbone(config)
        self.geometry_encoder = GeometryEncoder(config)
        self.transformer = Transformer(config)
        self.dot_prod_scoring = Scoring(config)
        self.positions = sine_map(config["img"] // config["patch"], config["d"])

    def image(self, pictures):
        """Normalised pictures `[n, 3, s, s]` to `[n, l, d]`."""
        return self.backbone.vision_backbone(pictures)

    def text(self, ids):
        """Ids `[p, t]` to tokens and their mask, as long as the longest phrase: what is behind its end
        is masked everywhere."""
        return self.backbone.language_backbone(ids[:, : (ids != 0).sum(1).max()])

    def ground(self, image, owner, text, text_mask, copies=False):
        """Asks prompt `i` of picture `owner[i]`. Gives the fusion encoder's output and every layer
        of the decoder with its scores `[p, q]`."""
        positions = self.positions.to(image.dtype)
        geometry = self.geometry_encoder(image, positions)[owner]
        tokens = torch.cat([text.to(image.dtype), geometry.to(image.dtype)], 1)
        seen = torch.cat([text_mask, torch.ones(len(text), 1, dtype=torch.bool)], 1)
        mask = torch.zeros(seen.shape, dtype=image.dtype).masked_fill(~seen, float("-inf"))
        mask = mask[:, None, None]
        transformer = self.transformer
        memory = transformer.encoder(image, owner, positions, tokens, mask)
        layers = transformer.decoder(memory, positions, tokens, mask, copies)
        pooled = self.dot_prod_scoring.pooled(tokens, seen)
        for layer in layers:
            layer["scores"] = self.dot_prod_scoring(layer["queries"], pooled)
        return {"memory": memory, "layers": layers}

    def export_state(self):
        """The weights under their published names."""
        return {f"detector.{name}": value for name, value in self.state_dict().items()}

    def load_exported(self, tensors, strict=True):
        """Reads weights with published names; gives the names that were not used. `strict` demands
        that every weight of this model is there."""
        own = self.state_dict()
        prefix = "detector."
        given = {k.removeprefix(prefix): v.float() for k, v in tensors.items()}
        missing = sorted(own.keys() - given.keys())
        if strict and missing:
            raise ValueError(f"the file lacks {missing}")
        self.load_state_dict({k: given.get(k, own[k]) for k in own})
        return sorted(given.keys() - own.keys())


def probabilities(layer):
    """Scores with presence, `[p, q]`."""
    return layer["scores"].sigmoid() * layer["presence"].sigmoid()[:, None]
