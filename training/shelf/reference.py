"""Writes what the exported model answers here, for the test that the Rust port answers the same.

    python training/shelf/reference.py models/shelf-tiny tests/fixtures/shelf_tiny.json [--full RUN/last.pt]

The picture is a list of rectangles, so that both sides paint the same pixels. With `--full` the
decisions of the weights before they were rounded to f16 are kept too.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch

from data import normalise
from export import read_weights
from model import Detector, probabilities, read_config
from words import Words

PHRASES = ["product", "bottle", "cereal box", "price tag", "dog"]
THRESHOLD = 0.3


def rectangles(side, seed=11):
    """Three rows of packs with labels over boards, `[x0, y0, x1, y1, r, g, b]` in painting order."""
    rng = np.random.default_rng(seed)
    out = [[0, 0, side, side, 70, 66, 60]]
    colour = lambda low, high: rng.integers(low, high, 3).tolist()
    for row in range(3):
        floor, x = (row + 1) * side // 3 - 14, 6
        out.append([0, floor, side, floor + 10, 205, 200, 190])
        while x < side - 20:
            width, height = int(rng.integers(20, 44)), int(rng.integers(48, 88))
            base, label = colour(30, 250), colour(0, 255)
            for _ in range(int(rng.integers(1, 4))):
                right, top = min(x + width, side), floor - height
                if x >= right:
                    break
                third = height // 3
                out.append([x, top, right, floor, *base])
                out.append([min(x + 3, right), top + third, max(right - 3, x), floor - third, *label])
                out.append([x, top, right, top + 5, *[v // 2 for v in base]])
                x += width + 2
            x += int(rng.integers(2, 16))
    return out


def paint(shapes, side):
    pixels = np.zeros((side, side, 3), np.uint8)
    for x0, y0, x1, y1, *colour in shapes:
        pixels[y0:y1, x0:x1] = colour
    return pixels


@torch.no_grad()
def answers(model, words, pixels):
    model.eval()
    image = model.image(normalise(torch.from_numpy(pixels)[None]))
    text, mask = model.text(torch.tensor([words.encode(p) for p in PHRASES]))
    return model.ground(image, torch.zeros(len(PHRASES), dtype=torch.long), text, mask)["layers"][-1]


def main():
    args = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    args.add_argument("model_dir")
    args.add_argument("out")
    args.add_argument("--full", help="checkpoint the model was exported from")
    args = args.parse_args()
    folder = Path(args.model_dir)
    config = read_config(folder / "config.json")
    words, shapes = Words(folder / "merges.txt", config["ctx"]), rectangles(config["img"])
    pixels = paint(shapes, config["img"])
    model = Detector(config)
    model.load_exported(read_weights(folder / "model.safetensors"))
    found = answers(model, words, pixels)
    if args.full:
        model.load_exported(read_weights(args.full))
    decided = probabilities(answers(model, words, pixels)) > THRESHOLD
    rounded = lambda t: [round(v, 6) for v in t.flatten().tolist()]
    out = {"side": config["img"], "rectangles": shapes, "threshold": THRESHOLD, "prompts": [
        {"phrase": phrase, "ids": words.encode(phrase), "presence": round(found["presence"][i].item(), 6),
         "scores": rounded(found["scores"][i]), "boxes": rounded(found["boxes"][i]),
         "kept_before_rounding": decided[i].nonzero().flatten().tolist()}
        for i, phrase in enumerate(PHRASES)]}
    Path(args.out).write_text(json.dumps(out, separators=(",", ":")) + "\n")
    print([(p["phrase"], p["presence"], len(p["kept_before_rounding"])) for p in out["prompts"]])


if __name__ == "__main__":
    main()
