"""shelf-tiny in f32: this port and PyTorch, interleaved in one run, the same weights in both.

    benches/compare_shelf_tiny.sh PICTURE [rounds]

Prints the least and the median time of a frame of 1280x720 pixels with 2x2 tiles and one phrase, from
pixels to finds, the median time on the processor, all threads together, and the ratios of this port
to PyTorch (below 1 is faster). PyTorch runs the trainer's model in inference mode over the four tiles
as one batch; the phrase is encoded once on either side.
"""

import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch
from PIL import Image

from processor import on_processor_ms

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "training/shelf"))
from data import normalise  # noqa: E402
from evaluate import distinct, merge, spans  # noqa: E402
from export import read_weights  # noqa: E402
from model import Detector, probabilities, read_config, to_corners  # noqa: E402
from words import Words  # noqa: E402

MODEL = ROOT / "models/shelf-tiny"
WIDTH, HEIGHT = 1280, 720
THRESHOLD = 0.5


class Torch:
    def __init__(self):
        self.config = read_config(MODEL / "config.json")
        self.model = Detector(self.config).eval()
        self.model.load_exported(read_weights(MODEL / "model.safetensors"))
        words = Words(MODEL / "merges.txt", self.config["ctx"])
        self.text, self.mask = self.model.text(torch.tensor([words.encode("product")]))

    def frame(self, picture):
        side = self.config["img"]
        tiles = [(x, y, w, h) for y, h in spans(HEIGHT, 2) for x, w in spans(WIDTH, 2)]
        parts = [picture.resize((side, side), Image.BILINEAR, box=(x, y, x + w, y + h))
                 for x, y, w, h in tiles]
        image = self.model.image(normalise(torch.from_numpy(np.stack([np.asarray(p) for p in parts]))))
        text, mask = self.text.expand(len(tiles), -1, -1), self.mask.expand(len(tiles), -1)
        last = self.model.ground(image, torch.arange(len(tiles)), text, mask)["layers"][-1]
        scores, boxes = probabilities(last).numpy(), to_corners(last["boxes"]).clamp(0, 1).numpy()
        found = []
        for tile, s, b in zip(tiles, scores, boxes):
            over = np.flatnonzero(s > THRESHOLD)
            x, y, w, h = tile
            for i in over[distinct(b[over], s[over])] if len(over) else []:
                found.append((tile, b[i] * [w, h, w, h] + [x, y, x, y], s[i]))
        return merge(found, WIDTH, HEIGHT)


def main():
    binary, picture = sys.argv[1:3]
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 20
    threads = len(os.sched_getaffinity(0))
    torch.set_num_threads(threads)
    picture = Image.open(picture).convert("RGB").resize((WIDTH, HEIGHT), Image.BILINEAR)
    with tempfile.NamedTemporaryFile() as raw, torch.inference_mode():
        raw.write(picture.tobytes())
        raw.flush()
        port = subprocess.Popen(
            [binary, MODEL, raw.name, str(WIDTH), str(HEIGHT)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "RAYON_NUM_THREADS": str(threads)})
        assert port.stdout.readline().strip() == "ready"
        theirs = Torch()
        rows = []
        for i in range(rounds + 2):
            before = on_processor_ms(port.pid)
            port.stdin.write("\n")
            port.stdin.flush()
            ms, count, best = port.stdout.readline().split()
            own = (float(ms), on_processor_ms(port.pid) - before)
            before, start = on_processor_ms(os.getpid()), time.perf_counter()
            found = theirs.frame(picture)
            ms = (time.perf_counter() - start) * 1e3
            if i >= 2:
                rows.append((*own, ms, on_processor_ms(os.getpid()) - before))
        port.stdin.close()
        port.wait()
    own, own_cpu, torch_ms, torch_cpu = zip(*rows)
    o = (min(own), statistics.median(own), statistics.median(own_cpu))
    t = (min(torch_ms), statistics.median(torch_ms), statistics.median(torch_cpu))
    print(f"{platform.machine()}, {threads} threads, torch {torch.__version__}, f32, {rounds} rounds")
    print(f"own min/med/cpu ms   {'/'.join(f'{v:.1f}' for v in o)}, {count} finds, best {best}")
    print(f"torch min/med/cpu ms {'/'.join(f'{v:.1f}' for v in t)}, {len(found)} finds, "
          f"best {max((s for _, s in found), default=0):.4f}")
    print(f"own/torch            {'/'.join(f'{a / b:.2f}' for a, b in zip(o, t))}")


if __name__ == "__main__":
    main()
