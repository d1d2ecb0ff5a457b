"""Trains shelf-tiny on a folder of drawn scenes and exports it.

    python training/shelf/train.py --data SCENES [SCENES ..] --out RUN [--resume]

`RUN/last.pt` is the checkpoint (weights, running average, optimiser, step), `RUN/curve.jsonl` the
curve, `RUN/export` the model in the form the program reads. `--resume` goes on from the checkpoint.
The schedule runs to its end at `--steps` steps or `--minutes` of training, whichever comes first;
minutes are counted over all sittings.
"""

import argparse
import copy
import json
import math
import os
import socket
import time
from pathlib import Path

# Threads that wait for each other by spinning starve each other where cores are shared.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "0")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

import export  # noqa: E402
from data import Scenes, normalise, read_scenes  # noqa: E402
from losses import DenseLosses, Targets, decoder_loss  # noqa: E402
from model import Detector, read_config  # noqa: E402
from words import Words  # noqa: E402

HERE = Path(__file__).parent
MODEL = HERE.parent.parent / "models" / "shelf-tiny"


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--data", nargs="+", required=True, help="folders of drawn scenes")
    p.add_argument("--out", required=True, help="folder of the run")
    p.add_argument("--config", default=str(MODEL / "config.json"))
    p.add_argument("--merges", default=str(MODEL / "merges.txt"))
    p.add_argument("--init", help="weights to start from; without, the model starts fresh")
    p.add_argument("--resume", action="store_true", help="go on from RUN/last.pt")
    p.add_argument("--steps", type=int, default=6000)
    p.add_argument("--minutes", type=float, default=math.inf)
    p.add_argument("--pictures", type=int, default=3, help="pictures a step and process")
    p.add_argument("--prompts", type=int, default=4, help="prompts a picture")
    p.add_argument("--more-pictures", type=int, default=6,
                   help="pictures a step and process that only the loss over all words looks at")
    p.add_argument("--more-until", type=float, default=0.7,
                   help="share of the schedule with those")
    p.add_argument("--rate", type=float, default=6e-4)
    p.add_argument("--trunk-rate", type=float, default=8e-4)
    p.add_argument("--warm-up", type=int, default=80, help="steps, of every sitting")
    p.add_argument("--copies-until", type=float, default=0.0,
                   help="share of the schedule with the one-to-many loss")
    p.add_argument("--bias-every", type=int, default=8,
                   help="steps from one in which the box bias learns to the next: its gradient is a "
                        "fifth of a step's cost")
    p.add_argument("--average", type=float, default=0.997)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--processes", type=int, default=2,
                   help="each draws its own pictures on one core; gradients are averaged")
    p.add_argument("--workers", type=int, default=0, help="processes beside each that read pictures")
    p.add_argument("--save-every", type=int, default=100, help="steps")
    return p.parse_args()


def groups(model, dense, rate, trunk_rate):
    """Matrices are decayed, vectors and tables are not; the trunk learns at its own rate."""
    out = {}
    for name, p in [*model.named_parameters(), *dense.named_parameters()]:
        if "label_embed" in name or "points_" in name or "boxes_" in name or "img_pre_norm" in name:
            p.requires_grad_(False)
            continue
        trunk = "vision_backbone.trunk" in name
        decay = 0.03 if p.dim() > 1 and "embed" not in name and "reference" not in name else 0.0
        out.setdefault((trunk, decay), []).append(p)
    return [{"params": ps, "weight_decay": decay, "peak": trunk_rate if trunk else rate}
            for (trunk, decay), ps in out.items()]


def step_loss(model, dense, batch, copies):
    with torch.autocast("cpu", torch.bfloat16):
        image = model.image(normalise(batch["pictures"]))
        text, mask = model.text(torch.cat([batch["ids"], batch["all_words"]]))
        asked = len(batch["ids"])
        seen = image[: batch["picture_of"].max() + 1]
        found = model.ground(seen, batch["picture_of"], text[:asked], mask[:asked], copies)
        neck, prompted = dense(image, found["memory"], text[:asked], mask[:asked], text[asked:],
                               mask[asked:], batch)
    loss, log = decoder_loss(found["layers"], Targets(batch), copies)
    return loss + neck + prompted, {**log, "dense_words": neck.item(), "dense": prompted.item()}


class Run:
    """Everything a checkpoint holds. All processes hold the same."""

    def __init__(self, args, rank):
        torch.manual_seed(args.seed)
        self.args, self.rank, self.config = args, rank, read_config(args.config)
        self.model, self.dense = Detector(self.config), DenseLosses(self.config["d"])
        self.step, self.seconds = 0, 0.0
        if args.init:
            unused = self.model.load_exported(export.read_weights(args.init))
            self.say(f"started from {args.init}, {len(unused)} of its tensors left out")
        self.average = copy.deepcopy(self.model).requires_grad_(False)
        self.optimiser = torch.optim.AdamW(
            groups(self.model, self.dense, args.rate, args.trunk_rate), lr=args.rate,
            betas=(0.9, 0.98), fused=True)
        self.path = Path(args.out) / "last.pt"
        if args.resume:
            held = torch.load(self.path, map_location="cpu", weights_only=True)
            self.model.load_exported(held["model"])
            self.average.load_exported(held["average"])
            self.dense.load_state_dict(held["dense"])
            peaks = [group["peak"] for group in self.optimiser.param_groups]
            self.optimiser.load_state_dict(held["optimiser"])
            for group, peak in zip(self.optimiser.param_groups, peaks):
                group["peak"] = peak
            self.step, self.seconds = held["step"], held["seconds"]
        # Of this sitting, which may come with other rates and so warms up anew.
        self.first = self.step
        self.parent = os.getppid()

    def say(self, text):
        if self.rank == 0:
            print(text, flush=True)

    def save(self):
        if self.rank > 0:
            return
        held = {"model": self.model.export_state(), "average": self.average.export_state(),
                "dense": self.dense.state_dict(), "optimiser": self.optimiser.state_dict(),
                "step": self.step, "seconds": self.seconds}
        part = self.path.with_suffix(".part")
        torch.save(held, part)
        part.replace(self.path)

    def box_bias(self):
        decoder = self.model.transformer.decoder
        return decoder.boxRPB_embed_x, decoder.boxRPB_embed_y

    def progress(self):
        return min(1.0, max(self.step / self.args.steps, self.seconds / 60 / self.args.minutes))

    def set_rate(self, progress):
        factor = 0.5 * (1 + math.cos(math.pi * progress))
        factor = max(factor, 0.01) * min(1.0, (self.step - self.first + 1) / self.args.warm_up)
        for group in self.optimiser.param_groups:
            group["lr"] = group["peak"] * factor

    @torch.no_grad()
    def update_average(self):
        keep = min(self.args.average, (1 + self.step) / (10 + self.step))
        ours, theirs = self.average.parameters(), self.model.parameters()
        torch._foreach_lerp_(list(ours), [p.detach() for p in theirs], 1 - keep)

    def batches(self, scenes, words, seed, more):
        args = self.args
        data = Scenes(scenes, words, self.config, args.pictures, more, args.prompts, seed, self.step)
        return iter(DataLoader(data, batch_size=None, num_workers=args.workers,
                               prefetch_factor=4 if args.workers else None))

    def share(self, parameters, seconds):
        """Averages gradients, and the time that decides the schedule, over the processes."""
        if self.args.processes == 1:
            return seconds
        held = [p.grad for p in parameters if p.grad is not None]
        flat = torch.cat([g.reshape(-1) for g in held] + [torch.tensor([seconds])])
        dist.all_reduce(flat)
        flat /= self.args.processes
        at = 0
        for g in held:
            g.copy_(flat[at : at + g.numel()].view_as(g))
            at += g.numel()
        return flat[-1].item()

    def train(self, scenes):
        args = self.args
        words = Words(args.merges, self.config["ctx"])
        seed = [args.seed, self.rank]
        more = args.more_pictures if self.progress() < args.more_until else 0
        loader = self.batches(scenes, words, seed, more)
        parameters = [p for g in self.optimiser.param_groups for p in g["params"]]
        sums, since, cpu = {}, time.monotonic(), time.process_time()
        name = "curve.jsonl" if self.rank == 0 else os.devnull
        with open(self.path.parent / name, "a") as curve:
            while (progress := self.progress()) < 1:
                if os.getppid() != self.parent:
                    raise SystemExit("the trainer was ended from outside")
                begun = time.monotonic()
                if more and progress >= args.more_until:
                    more, loader = 0, self.batches(scenes, words, seed, 0)
                self.set_rate(progress)
                for stack in self.box_bias():
                    stack.requires_grad_(self.step % args.bias_every == 0)
                loss, log = step_loss(self.model, self.dense, next(loader),
                                      progress < args.copies_until)
                if not loss.isfinite():
                    raise ValueError(f"the loss is {loss.item()} at step {self.step}")
                loss.backward()
                spent = self.share(parameters, time.monotonic() - begun)
                norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0)
                self.optimiser.step()
                self.optimiser.zero_grad(set_to_none=True)
                self.update_average()
                self.step += 1
                self.seconds += spent
                for key, value in {**log, "loss": loss.item(), "norm": norm.item()}.items():
                    sums[key] = sums.get(key, 0.0) + value
                if self.step % 25 == 0:
                    row = {key: round(value / 25, 4) for key, value in sums.items()}
                    now, now_cpu = time.monotonic(), time.process_time()
                    row = {"step": self.step, "minutes": round(self.seconds / 60, 2), **row,
                           "cpu_share": round((now_cpu - cpu) / (now - since), 2),
                           "progress": round(progress, 4)}
                    sums, since, cpu = {}, now, now_cpu
                    print(json.dumps(row), file=curve, flush=True)
                if self.step % args.save_every == 0:
                    self.save()
        self.save()


def run(rank, args):
    torch.set_num_threads(1)
    if args.processes > 1:
        dist.init_process_group("gloo", rank=rank, world_size=args.processes)
    scenes = read_scenes(args.data)
    state = Run(args, rank)
    state.say(f"{len(scenes)} scenes, step {state.step}")
    state.train(scenes)
    if rank == 0:
        size = export.write(state.average, Path(args.out) / "export", args.merges)
        state.say(f"{size} bytes in {args.out}/export")
    if args.processes > 1:
        dist.destroy_process_group()


def main():
    args = arguments()
    Path(args.out).mkdir(parents=True, exist_ok=True)
    if args.processes == 1:
        run(0, args)
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(probe.getsockname()[1]))
    torch.multiprocessing.spawn(run, (args,), args.processes)


if __name__ == "__main__":
    main()
