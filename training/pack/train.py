"""Trains pack-tiny.

    python training/pack/train.py --data DIR --fold A|B|all --out DIR [--init WEIGHTS] [--resume]

`DIR` holds `grocery/` (the photo set), `packs-train*/` (drawn packs) and, for the curve,
`packs-val/`. A batch is 48 identities with two views each; the loss draws the views of an identity
together and pushes all others away, siblings of one family among them (InfoNCE), and keeps a
learned proxy for every identity (normalised softmax). Moving averages of the weights are exported.

The same arguments give the same batches; a run that was stopped goes on with `--resume`, and ends
sooner when it is given fewer `--steps`.
"""

import argparse
import json
import math
import multiprocessing
import os
import pathlib
import time
from queue import Full

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import data
import model as pack
from evaluate import Drawn, Photos, measure

VIEW_TEMPERATURE, PROXY_TEMPERATURE, PROXY_WEIGHT = 0.07, 0.06, 0.5
KEEP_AVERAGE = 0.997


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, type=pathlib.Path)
    parser.add_argument("--fold", required=True, choices=sorted(data.HELD_OUT))
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--init", help="weights to start from")
    parser.add_argument("--resume", action="store_true", help="go on from OUT/last.pt")
    parser.add_argument("--steps", type=int, default=4300)
    parser.add_argument("--rate", type=float, default=1e-3, help="the highest learning rate")
    parser.add_argument("--warmup", type=int, default=150, help="steps up to the highest rate")
    parser.add_argument("--identities", type=int, default=48, help="of a batch; two views each")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--evaluate-every", type=int, default=300, help="0: never")
    parser.add_argument("--stop-at", type=int, help="save and leave at this step, to go on later")
    return parser.parse_args()


def produce(queue, batches, first, last):
    """Makes batches ahead of the trainer, in order."""
    os.nice(1)
    trainer = multiprocessing.parent_process()
    for number in range(first, last):
        batch = batches[number]
        while True:
            try:
                queue.put(batch, timeout=5)
                break
            except Full:
                # A trainer that was killed reads no more.
                if not trainer.is_alive():
                    queue.cancel_join_thread()
                    return


def start(args, batches):
    torch.manual_seed(args.seed)
    model = pack.PackTiny()
    if args.init:
        model = pack.load(args.init)
    else:
        pictures = np.concatenate([batches[args.steps + i][0] for i in range(3)])
        model.start_from_patches(pack.to_tensor(pictures))
    proxies = nn.Parameter(torch.randn(batches.labels, pack.DIM) * 0.05)
    return model.train(), proxies


def optimiser(model, proxies, rate):
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    decayed = [p for n, p in named if p.ndim > 1 and not n.startswith("embeddings.")]
    others = [p for n, p in named if p.ndim <= 1 or n.startswith("embeddings.")]
    groups = [
        {"params": decayed, "weight_decay": 0.05, "times": 1},
        {"params": others, "weight_decay": 0.0, "times": 1},
        {"params": [proxies], "weight_decay": 0.0, "times": 5},
    ]
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.98), fused=True)


def losses(vectors, labels, proxies):
    """InfoNCE over the views, where rows `2i` and `2i + 1` belong together, and the proxies'."""
    alike = vectors @ vectors.T / VIEW_TEMPERATURE
    alike.fill_diagonal_(-1e4)
    between_views = F.cross_entropy(alike, torch.arange(len(vectors)) ^ 1)
    to_proxies = vectors @ F.normalize(proxies, dim=-1).T / PROXY_TEMPERATURE
    return between_views, F.cross_entropy(to_proxies, labels)


def write(path, value):
    """Whole or not at all."""
    torch.save(value, path.with_suffix(".part"))
    path.with_suffix(".part").replace(path)


def main():
    args = arguments()
    torch.set_num_threads(1)
    args.out.mkdir(parents=True, exist_ok=True)
    batches = data.Batches(args.data, args.fold, pack.SIDE_PX, args.identities, args.seed)
    model, proxies = start(args, batches)
    average = {k: v.clone() for k, v in model.state_dict().items()}
    optim = optimiser(model, proxies, args.rate)
    step, spent = 0, 0.0
    last = args.out / "last.pt"
    if args.resume and last.is_file():
        saved = torch.load(last, weights_only=True)
        model.load_state_dict(saved["model"])
        proxies.data.copy_(saved["proxies"])
        optim.load_state_dict(saved["optim"])
        average, step, spent = saved["average"], saved["step"], saved["cpu_secs"]
    curve = open(args.out / "curve.jsonl", "a" if step else "w", buffering=1)
    photos, drawn = None, args.data / "packs-val"
    if args.evaluate_every:
        photos = Photos(args.data, args.fold)
    drawn = Drawn(drawn, families=24) if args.evaluate_every and drawn.is_dir() else None
    if not step:
        counts = {
            "drawn_skus": batches.photo_label,
            "photo_skus": len(batches.skus),
            "instances": len(batches.instances),
        }
        settings = {k: str(v) if isinstance(v, pathlib.Path) else v for k, v in vars(args).items()}
        curve.write(json.dumps({"settings": settings, **counts}) + "\n")

    def evaluated():
        shadow = pack.PackTiny()
        shadow.load_state_dict(average)
        return measure(shadow.eval(), photos, drawn, draws=40, fast=True, brief=True)

    def saved_now():
        state = {"model": model.state_dict(), "proxies": proxies.data, "average": average}
        write(last, {**state, "optim": optim.state_dict(), "step": step, "cpu_secs": spent})

    end = min(args.steps, args.stop_at or args.steps)
    queue = multiprocessing.Queue(6)
    maker = multiprocessing.Process(target=produce, args=(queue, batches, step, end), daemon=True)
    maker.start()
    recent = []
    while step < end:
        pictures, labels = queue.get()
        began = time.process_time()
        warm = min(1, (step + 1) / args.warmup)
        rate = args.rate * warm * (0.02 + 0.49 * (1 + math.cos(math.pi * step / args.steps)))
        for group in optim.param_groups:
            group["lr"] = rate * group["times"]
        with torch.autocast("cpu", torch.bfloat16):
            vectors = model(pack.to_tensor(pictures))
        between, proxy = losses(vectors, torch.from_numpy(labels), proxies)
        # Proxies start as noise; their say grows over the first steps.
        loss = between + PROXY_WEIGHT * min(1, step / 300) * proxy
        optim.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optim.step()
        step += 1
        keep = min(KEEP_AVERAGE, 1 - 1 / (step + 1))
        with torch.no_grad():
            torch._foreach_lerp_(list(average.values()), list(model.state_dict().values()), 1 - keep)
        spent += time.process_time() - began
        recent.append((between.item(), proxy.item()))
        if step % 50 == 0 or step == end:
            between, proxy = np.mean(recent, 0)
            recent.clear()
            row = {"step": step, "views": step * 2 * args.identities, "cpu_secs": round(spent)}
            row |= {"between_views": round(between, 4), "proxies": round(proxy, 4)}
            if args.evaluate_every and (step % args.evaluate_every == 0 or step == end):
                row |= evaluated()
            if step % 100 == 0 or step == end:
                saved_now()
            curve.write(json.dumps(row) + "\n")
            print(json.dumps(row), flush=True)
    maker.join()
    pack.save(average, args.out)


if __name__ == "__main__":
    main()
