"""Drawn scenes to training samples.

A folder of scenes holds `NNNNNN.jpg` and `scenes.jsonl`, one line a picture:
`{"file": NNNNNN, "objects": [{"id", "category", "sku", "box": [x0, y0, x1, y1], "visible"}]}` with boxes
in pixels. `read_scenes` takes one folder or several.
"""

import json
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps

from words import CATEGORIES, CLASSES, NEVER_THERE, PRODUCT, SYNONYMS, TAG

CLASS_OF = {name: i for i, name in enumerate(CLASSES)}
# Parts of an object smaller than this share of it are left out when a crop cuts it.
LEFT_OF_OBJECT = 0.3
SMALLEST = 0.008


def read_scenes(folders):
    """`[(path, boxes [k, 4] in pixels, classes [k])]` in the order of the files."""
    out = []
    for folder in folders:
        with open(Path(folder) / "scenes.jsonl") as file:
            for line in file:
                scene = json.loads(line)
                boxes = [o["box"] for o in scene["objects"]]
                classes = [CLASS_OF[o["category"]] for o in scene["objects"]]
                out.append((str((Path(folder) / scene["file"]).with_suffix(".jpg")),
                            np.array(boxes, np.float32).reshape(-1, 4),
                            np.array(classes, np.int64)))
    return out


def normalise(pictures):
    """`uint8` `[n, s, s, 3]` to `f32` `[n, 3, s, s]` in -1 to 1."""
    return pictures.permute(0, 3, 1, 2).float() / 127.5 - 1


def shrunk(picture, side, x0, y0, w, h):
    """A window that reaches beyond the picture on all sides; around it are the picture's own colours,
    washed out."""
    canvas = picture.resize((3, 3), Image.BOX).resize((side, side), Image.BICUBIC)
    scale = np.array([side / w, side / h])
    size = np.maximum(1, np.round(np.array(picture.size) * scale)).astype(int)
    at = np.round(np.array([-x0, -y0]) * scale).astype(int)
    canvas.paste(picture.resize(tuple(size.tolist()), Image.BILINEAR), tuple(at.tolist()))
    return canvas


def augment(picture, boxes, classes, side, rng, zoom=0.4, smallest_crop=0.35, shrink=0.3,
            largest_window=1.6):
    """A random crop or a window larger than the picture, flip and change of colour. Gives the picture
    `[s, s, 3]`, boxes in 0 to 1, classes, and the classes of which an object was cut away so far that it
    no longer counts."""
    width, height = picture.size
    x0 = y0 = 0.0
    w, h = float(width), float(height)
    kind = rng.random()
    if kind < zoom:
        share = rng.uniform(smallest_crop, 1)
        w = width * share
        h = height * float(np.clip(share * np.exp(rng.normal(0, 0.2)), smallest_crop, 1))
        x0, y0 = rng.uniform(0, width - w), rng.uniform(0, height - h)
    elif kind < zoom + shrink:
        share = rng.uniform(1, largest_window)
        w = width * share
        h = height * float(np.clip(share * np.exp(rng.normal(0, 0.15)), 1, largest_window))
        x0, y0 = rng.uniform(width - w, 0), rng.uniform(height - h, 0)
    if w > width or h > height:
        picture = shrunk(picture, side, x0, y0, w, h)
    else:
        picture = picture.resize((side, side), Image.BILINEAR, box=(x0, y0, x0 + w, y0 + h))
    origin, size = np.float32([x0, y0, x0, y0]), np.float32([w, h, w, h])
    placed = (boxes - origin) / size
    inside = placed.clip(0, 1)
    area = lambda b: (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])
    sides = inside[:, 2:] - inside[:, :2]
    keep = (area(inside) >= LEFT_OF_OBJECT * area(placed)) & (sides >= SMALLEST).all(1)
    seen_in_part = set(classes[~keep & (sides > 0).all(1)].tolist())
    boxes, classes = inside[keep], classes[keep]
    if rng.random() < 0.5:
        picture = ImageOps.mirror(picture)
        boxes = boxes[:, [2, 1, 0, 3]] * np.float32([-1, 1, -1, 1]) + np.float32([1, 0, 1, 0])
    pixels = np.asarray(picture)
    if rng.random() < 0.5:
        gain = rng.uniform(0.7, 1.3) * (1 + rng.uniform(-0.1, 0.1, 3)).astype(np.float32)
        pixels = (pixels * gain + np.float32(rng.uniform(-15, 15))).clip(0, 255).astype(np.uint8)
    elif rng.random() < 0.1:
        pixels = np.asarray(ImageOps.grayscale(picture))[..., None].repeat(3, 2)
    return np.ascontiguousarray(pixels), boxes.astype(np.float32), classes, seen_in_part


def owners(boxes, grid):
    """For each cell of the grid the object whose middle it lies in, the smallest one where there
    are several, or -1: `[grid * grid]`."""
    owner = np.full((grid, grid), -1, np.int64)
    centre = (np.arange(grid) + 0.5) / grid
    sizes = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    for k in np.argsort(-sizes, kind="stable"):
        middle, half = (boxes[k, :2] + boxes[k, 2:]) / 2, (boxes[k, 2:] - boxes[k, :2]) * 0.3
        spans = []
        for axis in range(2):
            hit = np.flatnonzero(np.abs(centre - middle[axis]) <= half[axis])
            nearest = min(grid - 1, int(middle[axis] * grid))
            spans.append(hit if len(hit) else np.array([nearest]))
        owner[np.ix_(spans[1], spans[0])] = k
    return owner.reshape(-1)


def phrase_for(name, rng):
    names = SYNONYMS[name]
    return names[0] if rng.random() < 0.6 else names[rng.integers(len(names))]


def choose_prompts(classes, seen_in_part, count, rng):
    """`count` pairs of class index (-1: nothing of the kind is ever drawn) and phrase. The first asks for
    "product" mostly, every second one for what is not there, the others for a word that is."""
    have = sorted(set(classes.tolist()))
    absent = [CLASS_OF[n] for n in [*CATEGORIES, TAG]
              if CLASS_OF[n] not in have and CLASS_OF[n] not in seen_in_part]
    out = []
    for slot in range(count):
        missing = slot % 2 == 1 if slot < 2 else rng.random() < 0.3
        if slot == 0 and rng.random() < 0.9:
            out.append((CLASS_OF[PRODUCT], phrase_for(PRODUCT, rng)))
        elif missing or not have:
            if absent and rng.random() < 0.85:
                wanted = absent[rng.integers(len(absent))]
                out.append((wanted, phrase_for(CLASSES[wanted], rng)))
            else:
                out.append((-1, NEVER_THERE[rng.integers(len(NEVER_THERE))]))
        else:
            wanted = have[rng.integers(len(have))]
            out.append((wanted, phrase_for(CLASSES[wanted], rng)))
    return out


def of_class(classes, wanted):
    """Which objects a prompt of this class asks for."""
    if wanted == CLASS_OF[PRODUCT]:
        return classes != CLASS_OF[TAG]
    return classes == wanted


class Scenes(torch.utils.data.IterableDataset):
    """Batches without end; `seed` and the number of the first batch decide everything. Behind the
    `pictures` that are asked about come `more` that only the loss over all words looks at."""

    def __init__(self, scenes, words, config, pictures, more, prompts, seed, first=0):
        self.scenes, self.words, self.config = scenes, words, config
        self.pictures, self.more, self.prompts = pictures, more, prompts
        self.seed, self.first = seed, first

    def __iter__(self):
        torch.set_num_threads(1)
        step = self.first
        while True:
            yield self.batch(step)
            step += 1

    def batch(self, step):
        rng = np.random.default_rng([*self.seed, step])
        side = self.config["img"]
        grid = side // self.config["patch"]
        pictures, images, prompts = [], [], []
        chosen = rng.integers(len(self.scenes), size=self.pictures + self.more)
        for picture, index in enumerate(chosen):
            path, boxes, classes = self.scenes[index]
            pixels, boxes, classes, cut = augment(Image.open(path).convert("RGB"), boxes, classes,
                                                  side, rng)
            pictures.append(pixels)
            images.append({"boxes": torch.from_numpy(boxes), "classes": torch.from_numpy(classes),
                           "owner": torch.from_numpy(owners(boxes, grid))})
            asked = self.prompts if picture < self.pictures else 0
            for wanted, phrase in choose_prompts(classes, cut, asked, rng):
                prompts.append({"picture": picture, "class": wanted,
                                "ids": self.words.encode(phrase),
                                "objects": torch.from_numpy(of_class(classes, wanted))})
        # One phrase of every class, for the loss that shows all words to every cell.
        all_words = [self.words.encode(phrase_for(name, rng)) for name in CLASSES]
        return {
            "pictures": torch.from_numpy(np.stack(pictures)),
            "images": images,
            "prompts": prompts,
            "ids": torch.tensor([p["ids"] for p in prompts]),
            "picture_of": torch.tensor([p["picture"] for p in prompts]),
            "all_words": torch.tensor(all_words),
        }
