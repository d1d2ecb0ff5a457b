"""Writes what the trainer makes of a few drawn packs, for the test of the Rust port.

    python training/pack/reference.py --weights DIR --packs DIR/packs-val

`--weights` holds the exported `model.safetensors` (f16) and the unrounded `model_f32.safetensors`.
Writes `tests/fixtures/pack_tiny/`: four pictures, one of them to be cropped, with their vectors by
the exported weights; and a sheet of small packs with the answers the unrounded weights give.
"""

import argparse
import hashlib
import json
import math
import pathlib

import numpy as np
import torch
from PIL import Image

import data
import model as pack
from evaluate import embed

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests/fixtures/pack_tiny"
# Width, height and, for the last, the box to cut out, in pixels.
PICTURES = [(112, 112, None), (70, 150, None), (131, 60, None), (128, 128, (20.4, 9.7, 101.2, 117.5))]
SKUS, VIEWS, TILE = 12, 3, 64


def picture(file, width, height):
    """Small on disk and the same for every decoder: few colours, no loss."""
    with Image.open(file) as image:
        image = image.convert("RGB").resize((width, height), Image.Resampling.BICUBIC)
    return image.quantize(96, dither=Image.Dither.NONE)


def square(image, box=None):
    """The box widened to whole pixels, stretched to the model's square."""
    image = image.convert("RGB")
    if box:
        x0, y0, x1, y1 = box
        image = image.crop((math.floor(x0), math.floor(y0), math.ceil(x1), math.ceil(y1)))
    side = (pack.SIDE_PX, pack.SIDE_PX)
    return np.asarray(image.resize(side, Image.Resampling.BICUBIC))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weights", required=True, type=pathlib.Path)
    parser.add_argument("--packs", required=True, type=pathlib.Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    OUT.mkdir(parents=True, exist_ok=True)
    rows = data.packs(args.packs)
    half = pack.load(args.weights / "model.safetensors")
    full = pack.load(args.weights / "model_f32.safetensors")

    pictures, squares = [], []
    step = len(rows) // len(PICTURES)
    for i, (width, height, box) in enumerate(PICTURES):
        image = picture(rows[i * step][2][0], width, height)
        name = f"pack_{i}.png"
        image.save(OUT / name, optimize=True)
        pictures.append({"file": name, "box": box})
        squares.append(square(image, box))
    for row, vector in zip(pictures, embed(half, squares)):
        row["vector"] = [round(float(v), 7) for v in vector]

    # Whole families, so that the answers hang on what tells siblings apart.
    families = sorted({family for family, _, _ in rows})[: SKUS // 2]
    chosen = [files for family, _, files in rows if family in families][:SKUS]
    sheet = Image.new("RGB", (len(chosen) * TILE, VIEWS * TILE))
    for x, files in enumerate(chosen):
        for y in range(VIEWS):
            with Image.open(files[y]) as image:
                tile = image.convert("RGB").resize((TILE, TILE), Image.Resampling.BICUBIC)
            sheet.paste(tile, (x * TILE, y * TILE))
    sheet = sheet.quantize(256, dither=Image.Dither.NONE)
    sheet.save(OUT / "sheet.png", optimize=True)
    sheet = sheet.convert("RGB")
    tiles = [
        square(sheet.crop((x * TILE, y * TILE, (x + 1) * TILE, (y + 1) * TILE)))
        for y in range(VIEWS)
        for x in range(len(chosen))
    ]
    vectors = embed(full, tiles)
    cosines = vectors[len(chosen) :] @ vectors[: len(chosen)].T
    answers = cosines.argmax(1)
    truth = np.tile(np.arange(len(chosen)), VIEWS - 1)
    weights = (args.weights / "model.safetensors").read_bytes()
    reference = {
        "weights_sha256": hashlib.sha256(weights).hexdigest(),
        "torch": torch.__version__,
        "pictures": pictures,
        "tile": TILE,
        "skus": len(chosen),
        "answers": answers.tolist(),
        "scores": [round(float(v), 5) for v in cosines.max(1)],
        "right": int((answers == truth).sum()),
    }
    (OUT / "reference.json").write_text(json.dumps(reference) + "\n")
    ordered = np.sort(cosines, 1)
    print(f"right {reference['right']} of {len(truth)}, least margin {(ordered[:, -1] - ordered[:, -2]).min():.4f}")


if __name__ == "__main__":
    main()
