"""Writes a detector as f16 safetensors under the published names, beside its sizes and words.

    python training/shelf/export.py WEIGHTS OUT_DIR --config CONFIG --merges MERGES.txt

`WEIGHTS` is a checkpoint of `train.py` (its running average is taken) or a safetensors file.
"""

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from model import Detector, read_config
from words import read_table

LIMIT_BYTES = 12_000_000


def read_weights(path):
    """Weights with published names from a checkpoint of `train.py` or a safetensors file."""
    if Path(path).suffix == ".safetensors":
        return load_file(path)
    return torch.load(path, map_location="cpu", weights_only=True)["average"]


def write(model, out_dir, merges):
    """Writes `model.safetensors`, `config.json` and `merges.txt`; gives the size in bytes."""
    out_dir = Path(out_dir)
    out_dir.mkdir(parents=True, exist_ok=True)
    state = {k: v.half().contiguous() for k, v in sorted(model.export_state().items())}
    broken = [k for k, v in state.items() if not v.isfinite().all()]
    if broken:
        raise ValueError(f"these do not fit into f16: {broken}")
    path = out_dir / "model.safetensors"
    save_file(state, path, metadata={"format": "pt"})
    size = path.stat().st_size
    if size > LIMIT_BYTES:
        raise ValueError(f"{path} has {size} bytes, more than {LIMIT_BYTES}")
    config = {**model.config, "masks": False}
    (out_dir / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    (out_dir / "merges.txt").write_text(read_table(merges))
    return size


def main():
    args = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    args.add_argument("weights")
    args.add_argument("out_dir")
    args.add_argument("--config", required=True)
    args.add_argument("--merges", required=True)
    args = args.parse_args()
    model = Detector(read_config(args.config))
    unused = model.load_exported(read_weights(args.weights))
    print(f"left out: {len(unused)} tensors")
    print(f"{write(model, args.out_dir, args.merges)} bytes")


if __name__ == "__main__":
    main()
