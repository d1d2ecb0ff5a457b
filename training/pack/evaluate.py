"""Measures weights on held-out photos and on drawn packs that training never saw.

    python training/pack/evaluate.py --data DIR --weights FOLDER --fold B --out figures.json

Photos: `k` views are drawn from the photo set's train split, all photos of its test and val splits
are the queries, and a SKU scores by its best view; means over 100 draws. Drawn packs: the first half
of a SKU's views may be enrolled, the second half are the queries. With `--fold all` every photographed
SKU was trained on, so only the drawn packs are measured.
"""

import argparse
import json
import pathlib

import numpy as np
import torch

import data
import model as pack
from protocol import Retrieval, protocol, thresholds


def embed(model, pictures, fast=False):
    """Unit vectors `[n, 192]`; `fast` trades the third digit for time."""
    out = []
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=fast):
        for i in range(0, len(pictures), 64):
            out.append(model(pack.to_tensor(np.stack(pictures[i : i + 64]))).numpy())
    return np.concatenate(out)


class Photos:
    """The held-out SKUs of a fold."""

    def __init__(self, root, fold):
        files, _ = data.photo_files(root)
        self.held_out = data.HELD_OUT[fold]

        def opened(name, splits):
            wanted = [f for s in splits for f in files[name].get(s, [])]
            return [data.open_square(f, pack.SIDE_PX) for f in wanted]

        self.gallery = {n: opened(n, ["train"]) for n in self.held_out}
        self.queries = {n: opened(n, ["test", "val"]) for n in self.held_out}

    def retrieval(self, model, fast=False):
        return Retrieval(
            {n: embed(model, p, fast) for n, p in self.gallery.items()},
            {n: embed(model, p, fast) for n, p in self.queries.items()},
        )


class Drawn:
    """Drawn packs of families that training never saw."""

    def __init__(self, folder, families=None):
        rows = data.packs(folder)
        kept = sorted({family for family, _, _ in rows})[:families]
        rows = sorted((sku, family, files) for family, sku, files in rows if family in set(kept))
        self.pictures = {
            sku: [data.open_square(f, pack.SIDE_PX) for f in files] for sku, _, files in rows
        }
        self.groups = [
            [i for i, (_, family, _) in enumerate(rows) if family == wanted] for wanted in kept
        ]

    def retrieval(self, model, fast=False):
        vectors = {sku: embed(model, p, fast) for sku, p in self.pictures.items()}
        return Retrieval(
            {sku: v[: len(v) // 2] for sku, v in vectors.items()},
            {sku: v[len(v) // 2 :] for sku, v in vectors.items()},
        )


def measure(model, photos, drawn, draws=100, fast=False, brief=False):
    """The figures of one set of weights; `brief` gives those of 12 SKUs alone."""
    out = {}
    if photos and photos.held_out:
        found = photos.retrieval(model, fast)
        count = len(photos.held_out)
        section = {"skus": count, "queries": len(found.cosines)}
        section["12 skus"] = protocol(found, 12, draws)
        if count > 12 and not brief:
            section[f"{count} skus"] = protocol(found, count, max(5, draws // 5))
        elif count == 12:
            section["8 skus, 4 strangers"] = protocol(found, 8, draws)
        if not brief:
            enrolled = min(12, count * 2 // 3)
            for k in (2, 4):
                section[f"thresholds, {k} views"] = thresholds(found, enrolled, k, draws)
        out["photos"] = section
    if drawn:
        found = drawn.retrieval(model, fast)
        section = {"skus": len(found.names), "queries": len(found.cosines)}
        section["12 skus"] = protocol(found, 12, draws)
        section["12 skus in sibling pairs"] = protocol(found, 12, draws, groups=drawn.groups)
        if not brief:
            siblings = {"groups": drawn.groups, "siblings": "strangers"}
            section["12 skus, their siblings strangers"] = protocol(found, 12, draws, **siblings)
            for k in (2, 4):
                section[f"thresholds, {k} views"] = thresholds(found, 12, k, draws)
        out["drawn"] = section
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, type=pathlib.Path)
    parser.add_argument("--weights", required=True)
    parser.add_argument("--fold", required=True, choices=sorted(data.HELD_OUT))
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    drawn = args.data / "packs-val"
    figures = {"fold": args.fold, "draws": args.draws} | measure(
        pack.load(args.weights),
        Photos(args.data, args.fold),
        Drawn(drawn) if drawn.is_dir() else None,
        args.draws,
    )
    text = json.dumps(figures, indent=1)
    print(text)
    if args.out:
        args.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
