"""Centres and scales what a model gives out, by the pictures it was trained on.

    python training/pack/standardise.py --data DIR --fold B --weights FOLDER --out FOLDER

Every number of a vector gets mean 0 and spread 1 over the photos of the fold's training SKUs and the
pieces of fruit. Without it the vectors of all photos share a direction, the light of a shop, which
raises the cosine of a pack with a stranger. Both are part of the last norm's weight and bias, so the
structure stays as it was. Nothing held out is looked at.
"""

import argparse

import numpy as np
import torch

import data
import model as pack
from evaluate import embed

FRUIT = 600


class BeforeLength(torch.nn.Module):
    """The vectors before they are brought to length 1."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model.layernorm(self.model.encoder(self.model.embeddings(x))[:, 0])


def training_photos(root, fold, seed=0):
    """Two lists of pictures: of the packaged SKUs trained on, and of some fruit."""
    files, packaged = data.photo_files(root)

    def every(names):
        return [f for n in sorted(names) for split in files[n].values() for f in split]

    fruit = every(set(files) - packaged)
    chosen = np.random.default_rng(seed).choice(len(fruit), FRUIT, replace=False)
    return [[data.open_square(f, pack.SIDE_PX) for f in group] for group in (
        every(packaged - set(data.HELD_OUT[fold])), [fruit[i] for i in chosen])]


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--data", required=True)
    p.add_argument("--fold", choices=sorted(data.HELD_OUT), required=True)
    p.add_argument("--weights", required=True)
    p.add_argument("--out", required=True)
    args = p.parse_args()
    torch.set_num_threads(1)
    model = pack.load(args.weights)
    whole = BeforeLength(model)
    vectors = [embed(whole, pictures) for pictures in training_photos(args.data, args.fold)]
    middle = torch.from_numpy(np.mean([v.mean(0) for v in vectors], axis=0))
    spread = torch.from_numpy(np.concatenate(vectors).std(0))
    norm = model.layernorm
    with torch.no_grad():
        norm.weight /= spread
        norm.bias.sub_(middle).div_(spread)
    pack.save(model.state_dict(), args.out)


if __name__ == "__main__":
    main()
