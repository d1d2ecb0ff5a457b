"""Losses of the detector.

The decoder is trained as SAM 3's is described: every layer is matched to the objects one to one
(Hungarian method on class, corner distance and GIoU) and, on a second copy of the queries, one to
many. Two dense losses that only training has make the words count early: one on the fusion encoder's
output for the prompt asked, one on the neck's output for all words at once.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
from scipy.optimize import linear_sum_assignment

from model import to_corners
from words import CLASSES, PRODUCT, TAG

NO_OBJECT = -1.0


def area(boxes):
    return (boxes[..., 2:] - boxes[..., :2]).clamp(min=0).prod(-1)


def iou_giou(a, b):
    """IoU and generalised IoU of corner boxes that broadcast against each other."""
    low, high = torch.maximum(a[..., :2], b[..., :2]), torch.minimum(a[..., 2:], b[..., 2:])
    both = (high - low).clamp(min=0).prod(-1)
    either = area(a) + area(b) - both + 1e-7
    hull = torch.maximum(a[..., 2:], b[..., 2:]) - torch.minimum(a[..., :2], b[..., :2])
    hull = hull.prod(-1) + 1e-7
    iou = both / either
    return iou, iou - (hull - either) / hull


def to_centres(corners):
    low, high = corners[..., :2], corners[..., 2:]
    return torch.cat([(low + high) / 2, high - low], -1)


def focal(logits, target, alpha=0.25):
    """Focal loss per element (Lin et al. 2017, gamma 2)."""
    p = logits.sigmoid()
    miss = torch.where(target > 0, 1 - p, p)
    weight = torch.where(target > 0, alpha, 1 - alpha) * miss**2
    return weight * F.binary_cross_entropy_with_logits(logits, target, reduction="none")


class Targets:
    """Objects of each prompt, padded: `boxes` `[p, g, 4]` corners, `real` `[p, g]`."""

    def __init__(self, batch):
        wanted = [batch["images"][p["picture"]]["boxes"][p["objects"]] for p in batch["prompts"]]
        longest = max(1, max(len(w) for w in wanted))
        self.counts = [len(w) for w in wanted]
        self.boxes = torch.stack([F.pad(w, (0, 0, 0, longest - len(w)), value=0.5) for w in wanted])
        self.real = torch.arange(longest)[None] < torch.tensor(self.counts)[:, None]
        self.present = self.real.any(1).float()


@torch.no_grad()
def match_one_to_one(scores, boxes, targets):
    """Indices `(prompt, query, object)` of the cheapest assignment of each prompt."""
    p = scores.sigmoid()
    hit, miss = 0.25 * (1 - p) ** 2 * -(p + 1e-8).log(), 0.75 * p**2 * -(1 - p + 1e-8).log()
    _, giou = iou_giou(to_corners(boxes)[:, :, None], targets.boxes[:, None])
    away = torch.cdist(boxes, to_centres(targets.boxes), p=1)
    cost = (2 * (hit - miss)[..., None] + 5 * away - 2 * giou).numpy()
    parts = []
    for i, count in enumerate(targets.counts):
        if count:
            query, thing = linear_sum_assignment(cost[i, :, :count])
            parts.append(torch.tensor([[i] * len(query), query.tolist(), thing.tolist()]))
    return torch.cat(parts, 1) if parts else torch.zeros(3, 0, dtype=torch.long)


@torch.no_grad()
def match_one_to_many(scores, boxes, targets, most=4, alpha=0.3, least=0.24):
    """As above, with up to `most` queries an object, judged by `score^alpha iou^(1 - alpha)`."""
    iou, _ = iou_giou(to_corners(boxes)[:, :, None], targets.boxes[:, None])
    value = scores.sigmoid()[..., None].clamp(min=1e-4) ** alpha * iou ** (1 - alpha)
    value = value.masked_fill(~targets.real[:, None], NO_OBJECT)
    best, at = value.topk(most, 1)
    good = best > least
    good[:, 0] = True
    kept = torch.zeros_like(value, dtype=torch.bool).scatter(1, at, good)
    kept &= (iou > 0.05) & targets.real[:, None]
    best, thing = value.masked_fill(~kept, NO_OBJECT).max(2)
    prompt, query = (best > 0).nonzero(as_tuple=True)
    return torch.stack([prompt, query, thing[prompt, query]])


def box_loss(boxes, wanted):
    """L1 and GIoU of matched boxes, and their IoU without gradient."""
    iou, giou = iou_giou(to_corners(boxes), wanted)
    away = (boxes - to_centres(wanted)).abs().sum(-1)
    return 5 * away.sum() + 2 * (1 - giou).sum(), iou.detach()


def decoder_loss(layers, targets, copies):
    """Mean over the layers of class, box and presence losses."""
    total, log = 0.0, {}
    queries = layers[0]["scores"].shape[1] // (2 if copies else 1)
    for layer in layers:
        for half in range(2 if copies else 1):
            part = slice(half * queries, (half + 1) * queries)
            scores, boxes = layer["scores"][:, part], layer["boxes"][:, part]
            match = match_one_to_many if half else match_one_to_one
            prompt, query, thing = match(scores.detach(), boxes.detach(), targets)
            count = max(1, len(prompt))
            boxed, iou = box_loss(boxes[prompt, query], targets.boxes[prompt, thing])
            goal = torch.zeros_like(scores)
            goal[prompt, query] = iou.clamp(min=0.15)
            weight = torch.where(goal > 0, 1.0, 0.5 * scores.detach().sigmoid() ** 2)
            entropy = F.binary_cross_entropy_with_logits(scores, goal, reduction="none")
            classed = 3 * (weight * entropy).sum() / count
            total = total + classed + boxed / count
            if half == 0:
                log = {"class": classed.item(), "box": boxed.item() / count}
        presence = F.binary_cross_entropy_with_logits(layer["presence"], targets.present)
        total = total + 3 * presence
        log["presence"] = presence.item()
    return total / len(layers), log


class DenseHead(nn.Module):
    """A heat map of `cells . words` and the distances to the four sides, thrown away after training."""

    def __init__(self, d, width=64):
        super().__init__()
        self.cells, self.words = nn.Linear(d, width), nn.Linear(d, width)
        self.norm = nn.LayerNorm(d)
        self.bias = nn.Parameter(torch.tensor(-4.0))
        self.sides = nn.Linear(d, 4)
        nn.init.zeros_(self.sides.weight)
        nn.init.constant_(self.sides.bias, -3.0)

    def forward(self, image, words):
        """`image` `[b, l, d]`, `words` `[k, d]` or `[b, 1, d]`: heat `[b, l, k]`, sides `[b, l, 4]`."""
        image = self.norm(image)
        heat = self.cells(image) @ self.words(words).transpose(-1, -2) / 8
        return heat.float() + self.bias, self.sides(image).float().clamp(max=1).exp()

    @staticmethod
    def loss(heat, sides, heat_goal, owner_boxes, inside):
        """Focal loss on the heat; L1 and GIoU of the boxes of the cells `inside` an object."""
        count = inside.sum().clamp(min=1)
        heated = 2 * focal(heat, heat_goal).sum() / heat_goal.sum().clamp(min=1)
        side = round(sides.shape[1] ** 0.5)
        place = (torch.arange(side) + 0.5) / side
        y, x = torch.meshgrid(place, place, indexing="ij")
        place = torch.stack([x, y], -1).view(1, -1, 2).expand(len(sides), -1, -1)[inside]
        found, wanted = sides[inside], owner_boxes[inside]
        boxes = torch.cat([place - found[:, :2], place + found[:, 2:]], -1)
        _, giou = iou_giou(boxes, wanted)
        away = (boxes - wanted).abs().sum(-1)
        return heated + ((1 - giou).sum() + 2 * away.sum()) / count


class DenseLosses(nn.Module):
    """The two dense losses. `all_words` looks at the neck's output, before any prompt entered."""

    def __init__(self, d):
        super().__init__()
        self.all_words = DenseHead(d)
        self.asked = DenseHead(d)

    def forward(self, image, memory, text, text_mask, all_words, all_mask, batch):
        owner = torch.stack([i["owner"] for i in batch["images"]])
        inside = owner >= 0
        boxes = torch.stack([
            i["boxes"][i["owner"].clamp(min=0)] if len(i["boxes"]) else torch.zeros(owner.shape[1], 4)
            for i in batch["images"]])
        kind = torch.stack([
            i["classes"][i["owner"].clamp(min=0)] if len(i["classes"]) else i["owner"]
            for i in batch["images"]])
        goal = F.one_hot(kind.clamp(min=0), len(CLASSES)).float()
        goal[..., CLASSES.index(PRODUCT)] = (kind != CLASSES.index(TAG)).float()
        goal = goal * inside[..., None]
        heat, sides = self.all_words(image, mean(all_words, all_mask))
        neck = DenseHead.loss(heat, sides, goal, boxes, inside)
        neck = neck + word_loss(heat, kind, owner, inside)

        at = batch["picture_of"]
        wanted = torch.tensor([p["class"] for p in batch["prompts"]])
        goal = goal[at].gather(2, wanted.clamp(min=0).view(-1, 1, 1).expand(-1, goal.shape[1], 1))
        goal = goal * (wanted >= 0).view(-1, 1, 1)
        heat, sides = self.asked(memory, mean(text, text_mask)[:, None])
        asked = DenseHead.loss(heat, sides, goal, boxes[at], goal[..., 0] > 0)
        return neck, asked


def word_loss(heat, kind, owner, inside):
    """Cross-entropy between the words at the cells inside objects, every object counting the same."""
    objects = owner + torch.arange(len(owner))[:, None] * (owner.max() + 1)
    objects = objects[inside]
    if not len(objects):
        return heat.sum() * 0
    cells = torch.bincount(objects)[objects]
    first = CLASSES.index(PRODUCT) + 1
    each = F.cross_entropy(heat[inside][:, first:], kind[inside] - first, reduction="none")
    return (each / cells).sum() / (1 / cells).sum()


def mean(tokens, mask):
    """Mean of the tokens that are no padding, `[p, d]`."""
    weight = mask.to(tokens.dtype)[..., None]
    return (tokens * weight).sum(1) / weight.sum(1)
