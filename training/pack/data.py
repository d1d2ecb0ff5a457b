"""Pictures for training and for evaluation, and which of them a fold may see.

Photos: GroceryStoreDataset (MIT), 31 packaged SKUs with several photos each, and fruit and
vegetables whose photos serve as instances of their own. Drawn packs: `cargo run --release --example
packs`, folders of views per SKU with `packs.jsonl`.
"""

import json
import pathlib

import cv2
import numpy as np
from PIL import Image

import augment

# Held out of fold A; fold B holds out every second of them. What is left of the 31 is trained on.
HELD_OUT_24 = (
    "Alpro-Blueberry-Soyghurt",
    "Alpro-Fresh-Soy-Milk",
    "Alpro-Shelf-Soy-Milk",
    "Arla-Ecological-Medium-Fat-Milk",
    "Arla-Ecological-Sour-Cream",
    "Arla-Medium-Fat-Milk",
    "Arla-Mild-Vanilla-Yoghurt",
    "Arla-Natural-Mild-Low-Fat-Yoghurt",
    "Arla-Natural-Yoghurt",
    "Arla-Sour-Cream",
    "Arla-Standard-Milk",
    "Bravo-Apple-Juice",
    "Bravo-Orange-Juice",
    "Garant-Ecological-Medium-Fat-Milk",
    "God-Morgon-Apple-Juice",
    "God-Morgon-Orange-Juice",
    "God-Morgon-Orange-Red-Grapefruit-Juice",
    "God-Morgon-Red-Grapefruit-Juice",
    "Oatly-Natural-Oatghurt",
    "Oatly-Oat-Milk",
    "Tropicana-Apple-Juice",
    "Tropicana-Juice-Smooth",
    "Tropicana-Mandarin-Morning",
    "Yoggi-Strawberry-Yoghurt",
)
HELD_OUT = {"A": HELD_OUT_24, "B": HELD_OUT_24[::2], "all": ()}

# Photos are kept this large, so that a window of half their area still has 112 px.
KEPT_SIDE_PX = 160


def photo_files(root):
    """`{class: {split: [files]}}` of the photo set, and the set of packaged SKUs."""
    base = pathlib.Path(root) / "grocery" / "dataset"
    files, packaged = {}, set()
    for split in ("train", "val", "test"):
        for file in sorted((base / split).rglob("*.jpg")):
            name = file.parent.name
            files.setdefault(name, {}).setdefault(split, []).append(file)
            if file.relative_to(base / split).parts[0] == "Packages":
                packaged.add(name)
    if not files:
        raise SystemExit(f"no photos below {base}; fetch GroceryStoreDataset into it")
    return files, packaged


def packs(folder):
    """`[(family, sku, [files])]` of drawn packs, in the order of `packs.jsonl`."""
    folder = pathlib.Path(folder)
    rows = [json.loads(line) for line in (folder / "packs.jsonl").read_text().splitlines()]
    out = []
    for row in rows:
        views = row["views"]
        if isinstance(views, int):
            files = sorted((folder / row["sku"]).glob("*.jpg"), key=lambda f: (len(f.name), f.name))
            files = files[:views]
        else:
            files = [folder / row["sku"] / str(v) for v in views]
        out.append((row["family"], row["sku"], files))
    return out


def open_square(file, side):
    """The picture stretched to a square as the product does it: Pillow's bicubic."""
    with Image.open(file) as picture:
        picture = picture.convert("RGB")
        return np.asarray(picture.resize((side, side), Image.Resampling.BICUBIC))


def decode(data):
    return cv2.imdecode(data, cv2.IMREAD_COLOR)[:, :, ::-1]


def encoded(file):
    return np.frombuffer(pathlib.Path(file).read_bytes(), np.uint8)


class Batches:
    """Batches of identities, two views each, as a function of seed and number alone.

    Drawn SKUs come in families, so that a batch holds the siblings that are hardest to tell apart.
    Two views of a photographed or drawn SKU are of two pictures; a piece of fruit has only one.
    """

    def __init__(self, root, fold, side, identities=48, seed=0):
        self.side, self.identities, self.seed = side, identities, seed
        files, packaged = photo_files(root)
        held_out = set(HELD_OUT[fold])
        keep = (KEPT_SIDE_PX, KEPT_SIDE_PX)

        def opened(file):
            return cv2.resize(decode(encoded(file)), keep, interpolation=cv2.INTER_AREA)

        def every(name):
            return [file for split in files[name].values() for file in split]

        self.skus = sorted(packaged - held_out)
        self.photos = [[opened(f) for f in every(name)] for name in self.skus]
        self.instances = [opened(f) for n in sorted(set(files) - packaged) for f in every(n)]
        families = {}
        for bank in sorted(pathlib.Path(root).glob("packs-train*")):
            for family, _, views in packs(bank):
                families.setdefault((bank.name, family), []).append([encoded(f) for f in views])
        self.families = list(families.values())
        if 0 < len(self.families) < identities:
            raise SystemExit(f"draw at least {identities} families of packs; there are {len(self.families)}")
        first = 0
        self.first_label = []
        for family in self.families:
            self.first_label.append(first)
            first += len(family)
        self.photo_label = first
        self.instance_label = first + len(self.skus)
        self.labels = self.instance_label + len(self.instances)

    def __getitem__(self, number):
        """`(pictures [2 * identities, side, side, 3], labels [2 * identities])`."""
        rng = np.random.default_rng([self.seed, number])
        views, labels = [], []

        def add(label, *two):
            views.extend(two)
            labels.extend([label, label])

        def photo(picture, least_area):
            return augment.photo_view(picture, rng, self.side, least_area)

        def drawn(data):
            return augment.drawn_view(decode(data), rng, self.side)

        share = 0.25 if len(self.skus) >= 10 else 0.12
        photos = min(len(self.skus), int(self.identities * share))
        instances = int(self.identities * 0.22)
        if not self.families:
            instances = self.identities - photos
        for i in rng.choice(len(self.skus), photos, replace=False):
            a, b = rng.choice(len(self.photos[i]), 2, replace=False)
            two = (photo(self.photos[i][n], 0.5) for n in (a, b))
            add(self.photo_label + i, *two)
        for i in rng.choice(len(self.instances), instances, replace=False):
            two = (photo(self.instances[i], 0.25) for _ in range(2))
            add(self.instance_label + i, *two)
        order = iter(rng.permutation(len(self.families)))
        while len(labels) < 2 * self.identities:
            i = next(order)
            for j, sku in enumerate(self.families[i]):
                if len(labels) == 2 * self.identities:
                    break
                a, b = rng.choice(len(sku), 2, replace=False)
                add(self.first_label[i] + j, drawn(sku[a]), drawn(sku[b]))
        return np.stack(views), np.array(labels)
