"""Measures a detector on drawn scenes and on photographs of shelves.

    python training/shelf/evaluate.py MODEL_DIR --scenes VALIDATION [--photos SHELVES] [--weights RUN/last.pt]

Finds go the way they go in the program: probability over a low bar, greedy removal of what overlaps a
better find by more than half of the smaller box, tiles merged at their seams; `product_all_queries` has
the duplicates too, as DETRs are measured. AP is COCO's (101
points, 100 finds a picture); recall counts objects found at an IoU of at least 0.5.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from data import normalise, of_class, read_scenes
from export import read_weights
from model import Detector, probabilities, read_config, to_corners
from words import CATEGORIES, CLASSES, PRODUCT, TAG, Words

LOWEST = 0.02
MOST = 100
OVERLAP = 0.5
IOUS = np.arange(0.5, 1.0, 0.05)
# Of `crates/sam3/src/tiles.rs`.
TILE_OVERLAP = 0.25
CUT_MARGIN_PX = 3.0
ALIGNED = 0.6


def areas(boxes):
    return (boxes[..., 2] - boxes[..., 0]).clip(0) * (boxes[..., 3] - boxes[..., 1]).clip(0)


def shared(a, b):
    low, high = np.maximum(a[..., :2], b[..., :2]), np.minimum(a[..., 2:], b[..., 2:])
    return (high - low).clip(0).prod(-1)


def iou(a, b):
    both = shared(a[:, None], b[None])
    return both / (areas(a)[:, None] + areas(b)[None] - both + 1e-9)


def iom(a, b):
    return shared(a, b) / np.maximum(np.minimum(areas(a), areas(b)), 1e-9)


def distinct(boxes, scores):
    """Indices of what stays, best first."""
    kept = []
    for i in np.argsort(-scores, kind="stable"):
        if not kept or (iom(boxes[kept], boxes[i]) <= OVERLAP).all():
            kept.append(i)
    return np.array(kept, int)


def without_duplicates(boxes, scores):
    kept = distinct(boxes, scores)
    return boxes[kept], scores[kept]


class Asker:
    """A model and the features of its phrases."""

    def __init__(self, model, words, phrases, narrow):
        self.model, self.narrow = model.eval(), narrow
        self.ids = torch.tensor([words.encode(p) for p in phrases])

    @torch.no_grad()
    def __call__(self, pixels):
        """`uint8` `[s, s, 3]` to per phrase `(boxes [k, 4] in 0 to 1, scores)`, duplicates and all."""
        with torch.autocast("cpu", torch.bfloat16, enabled=self.narrow):
            text, mask = self.model.text(self.ids)
            image = self.model.image(normalise(torch.from_numpy(pixels)[None]))
            owner = torch.zeros(len(self.ids), dtype=torch.long)
            last = self.model.ground(image, owner, text, mask)["layers"][-1]
        scores = probabilities(last).numpy()
        boxes = to_corners(last["boxes"]).clamp(0, 1).float().numpy()
        out = []
        for p in range(len(self.ids)):
            over = np.flatnonzero(scores[p] > LOWEST)
            over = over[np.argsort(-scores[p][over], kind="stable")]
            out.append((boxes[p][over], scores[p][over]))
        return out

    def distinct(self, pixels):
        """The same without duplicates, as the program answers."""
        return [without_duplicates(*found) for found in self(pixels)]


def matched(boxes, truth, threshold):
    """For each find, best first, the object it is the first to match, or -1."""
    overlaps = iou(boxes, truth) if len(truth) else np.zeros((len(boxes), 0))
    taken, out = np.zeros(len(truth), bool), np.full(len(boxes), -1)
    for d in range(len(boxes)):
        free = np.where(taken, -1, overlaps[d])
        if len(free) and free.max() >= threshold:
            out[d] = free.argmax()
            taken[out[d]] = True
    return out


def precision(finds, truths):
    """`{"ap50", "ap", "recall", "f1", "at"}` over pictures; `at` is the score of the best F1."""
    total = sum(map(len, truths))
    scores = np.concatenate([s[:MOST] for _, s in finds]) if finds else np.zeros(0)
    order = np.argsort(-scores, kind="stable")
    values = []
    for threshold in IOUS:
        right = [matched(b[:MOST], t, threshold) >= 0 for (b, _), t in zip(finds, truths)]
        right = np.concatenate(right)[order] if len(scores) else np.zeros(0, bool)
        hits = np.cumsum(right)
        exact = hits / np.arange(1, len(hits) + 1)
        recall = hits / max(total, 1)
        if threshold == IOUS[0] and len(hits):
            f1 = 2 * exact * recall / np.maximum(exact + recall, 1e-9)
            best = int(f1.argmax())
            first = {"recall": float(recall[-1]), "f1": float(f1[best]),
                     "at": float(scores[order][best]), "p_at": float(exact[best]),
                     "r_at": float(recall[best])}
        hull = np.maximum.accumulate(exact[::-1])[::-1]
        at = np.searchsorted(recall, np.linspace(0, 1, 101), side="left")
        values.append(np.mean([hull[i] if i < len(hull) else 0.0 for i in at]))
    if not len(scores):
        first = {"recall": 0.0, "f1": 0.0, "at": 1.0, "p_at": 0.0, "r_at": 0.0}
    return {"ap50": float(values[0]), "ap": float(np.mean(values)), **first}


def drawn(asker_for, scenes, side):
    names = [PRODUCT, *CATEGORIES, TAG]
    ask = asker_for(names)
    finds, truths = {n: [] for n in names}, {n: [] for n in names}
    fills, every = [], []
    for path, boxes, classes in scenes:
        picture = Image.open(path).convert("RGB")
        scale = np.float32([*picture.size] * 2)
        pixels = np.asarray(picture.resize((side, side), Image.BILINEAR))
        answers = ask(pixels)
        every.append(answers[0])
        for name, found in zip(names, answers):
            finds[name].append(without_duplicates(*found))
            truths[name].append(boxes[of_class(classes, CLASSES.index(name))] / scale)
        fills += box_fills(path, finds[PRODUCT][-1], boxes, classes, scale)
    out = {"scenes": len(scenes), "product": precision(finds[PRODUCT], truths[PRODUCT]),
           "product_all_queries": precision(every, truths[PRODUCT]),
           "price tag": precision(finds[TAG], truths[TAG]), "box_fill_iou": float(np.mean(fills))}
    words, absent_best, present_best = {}, [], []
    for name in CATEGORIES:
        there = [i for i, t in enumerate(truths[name]) if len(t)]
        tops = [max(f[1], default=0.0) for f in finds[name]]
        words[name] = precision([finds[name][i] for i in there], [truths[name][i] for i in there])
        words[name]["pictures"] = len(there)
        present_best += [tops[i] for i in there]
        absent_best += [t for i, t in enumerate(tops) if not len(truths[name][i])]
    out["words"] = words
    out["words_ap50"] = float(np.mean([w["ap50"] for w in words.values()]))
    present_best, absent_best = np.array(present_best), np.array(absent_best)
    out["absent"] = {f"{t:.2f}": [float((absent_best <= t).mean()), float((present_best > t).mean())]
                     for t in np.arange(0.1, 0.75, 0.05)}
    return out


def box_fills(path, found, boxes, classes, scale):
    """IoU of the filled box of each matched find with the visible pixels of its object."""
    index = np.flatnonzero(of_class(classes, 0))
    pairs = matched(found[0], boxes[index] / scale, 0.5)
    ids = np.asarray(Image.open(Path(path).with_suffix(".png")))
    truth = object_ids(path)
    out = []
    for d, thing in enumerate(pairs):
        if thing < 0 or found[1][d] < 0.3:
            continue
        mask = ids == truth[index[thing]]
        x0, y0, x1, y1 = np.rint(found[0][d] * scale).astype(int)
        inside = mask[y0:y1, x0:x1].sum()
        out.append(inside / (mask.sum() + (x1 - x0) * (y1 - y0) - inside))
    return out


_ids = {}


def object_ids(path):
    """Ids of the objects of a scene in the order of its line."""
    folder = Path(path).parent
    if folder not in _ids:
        lines = (folder / "scenes.jsonl").read_text().splitlines()
        scenes = map(json.loads, lines)
        _ids[folder] = {Path(s["file"]).stem: [o["id"] for o in s["objects"]] for s in scenes}
    return _ids[folder][Path(path).stem]


def spans(side, count):
    length = min(side, int(np.ceil(side / (1 + (count - 1) * (1 - TILE_OVERLAP)))))
    return [((side - length) * i // max(count - 1, 1), length) for i in range(count)]


def cut_sides(box, tile, width, height):
    x, y, w, h = tile
    return [x > 0 and box[0] - x < CUT_MARGIN_PX, y > 0 and box[1] - y < CUT_MARGIN_PX,
            x + w < width and x + w - box[2] < CUT_MARGIN_PX,
            y + h < height and y + h - box[3] < CUT_MARGIN_PX]


def known(kept, box):
    return any(iom(box, other) > OVERLAP for other, _ in kept)


def belongs(sides, piece, other_sides, other):
    if iom(piece, other) > OVERLAP:
        return True
    if shared(piece, other) <= 0:
        return False

    def share(a0, a1, b0, b1):
        return max(min(a1, b1) - max(a0, b0), 0) / max(max(a1, b1) - min(a0, b0), 1e-6)

    across = (sides[0] and other_sides[2]) or (sides[2] and other_sides[0])
    down = (sides[1] and other_sides[3]) or (sides[3] and other_sides[1])
    return (across and share(piece[1], piece[3], other[1], other[3]) > ALIGNED) or (
        down and share(piece[0], piece[2], other[0], other[2]) > ALIGNED)


def merge(found, width, height):
    """Finds `(tile, box, score)` of all tiles to whole objects, best first."""
    whole, pieces = [], []
    for tile, box, score in found:
        sides = cut_sides(box, tile, width, height)
        (pieces if any(sides) else whole).append((sides, box, score))
    kept = []
    for _, box, score in sorted(whole, key=lambda f: -f[2]):
        if not known(kept, box):
            kept.append((box, score))
    pieces = [p for p in pieces if not known(kept, p[1])]
    joined = []
    for sides, box, score in sorted(pieces, key=lambda p: -areas(p[1])):
        for other in joined:
            if belongs(sides, box, other[0], other[1]):
                other[1] = np.concatenate([np.minimum(box[:2], other[1][:2]),
                                           np.maximum(box[2:], other[1][2:])])
                other[2] = max(other[2], score)
                for a, b in [(0, 2), (1, 3), (2, 0), (3, 1)]:
                    other[0][a] = other[0][a] and not sides[b]
                break
        else:
            joined.append([list(sides), box, score])
    for _, box, score in sorted(joined, key=lambda j: -j[2]):
        if not known(kept, box):
            kept.append((box, score))
    return sorted(kept, key=lambda f: -f[1])


def photographs(asker_for, folder, side, tiles):
    ask = asker_for([PRODUCT])
    truth = json.loads((Path(folder) / "annotations.json").read_text())
    product = next(c["id"] for c in truth["categories"] if c["name"] == PRODUCT)
    finds, truths = [], []
    for entry in truth["images"]:
        if PRODUCT not in entry["annotated_categories"]:
            continue
        mine = [a for a in truth["annotations"]
                if a["image_id"] == entry["id"] and a["category_id"] == product]
        corners = [([x, y, x + w, y + h], a.get("iscrowd", 0))
                   for a in mine for x, y, w, h in [a["bbox"]]]
        real = np.array([b for b, crowd in corners if not crowd], float).reshape(-1, 4)
        ignored = np.array([b for b, crowd in corners if crowd], float).reshape(-1, 4)
        picture = Image.open(Path(folder) / entry["file_name"]).convert("RGB")
        width, height = picture.size
        found = []
        for y, h in spans(height, tiles):
            for x, w in spans(width, tiles):
                part = picture.resize((side, side), Image.BILINEAR, box=(x, y, x + w, y + h))
                boxes, scores = ask.distinct(np.asarray(part))[0]
                boxes = boxes * [w, h, w, h] + [x, y, x, y]
                found += [((x, y, w, h), b, s) for b, s in zip(boxes, scores)]
        kept = merge(found, width, height)
        kept = [(b, s) for b, s in kept if not len(ignored)
                or (shared(b, ignored) / max(areas(b), 1e-9)).max() <= OVERLAP
                or (iou(b[None], real).max(initial=0) >= 0.5)]
        finds.append((np.array([b for b, _ in kept]).reshape(-1, 4), np.array([s for _, s in kept])))
        truths.append(real)
    return {"photos": len(truths), "objects": sum(map(len, truths)), **precision(finds, truths)}


def rounded(value):
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    if isinstance(value, list):
        return [rounded(v) for v in value]
    return round(value, 4) if isinstance(value, float) else value


def main():
    args = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    args.add_argument("model_dir")
    args.add_argument("--weights", help="other weights for the sizes and words of MODEL_DIR")
    args.add_argument("--scenes")
    args.add_argument("--count", type=int, default=320)
    args.add_argument("--photos")
    args.add_argument("--tiles", type=int, default=2)
    args.add_argument("--narrow", action="store_true", help="bf16, faster")
    args.add_argument("--out")
    args = args.parse_args()
    torch.set_num_threads(1)
    folder = Path(args.model_dir)
    config = read_config(folder / "config.json")
    model = Detector(config)
    model.load_exported(read_weights(args.weights or folder / "model.safetensors"))
    words = Words(folder / "merges.txt", config["ctx"])
    asker_for = lambda phrases: Asker(model, words, phrases, args.narrow)
    out = {}
    if args.scenes:
        scenes = read_scenes([args.scenes])[: args.count]
        out["drawn"] = drawn(asker_for, scenes, config["img"])
    if args.photos:
        out["photos"] = photographs(asker_for, args.photos, config["img"], args.tiles)
    text = json.dumps(rounded(out), indent=1)
    print(text)
    if args.out:
        Path(args.out).write_text(text + "\n")


if __name__ == "__main__":
    main()
