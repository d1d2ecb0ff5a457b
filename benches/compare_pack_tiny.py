"""pack-tiny in f32: this port and PyTorch, interleaved in one run, the same weights in both.

    benches/compare_pack_tiny.sh [rounds]

Prints the least and the median time of a forward of 1 and of 16 crops of 112 px, and the ratio of
this port to PyTorch (below 1 is faster). PyTorch runs the trainer's model in inference mode.
"""

import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time

import torch

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "training/pack"))
import model as pack  # noqa: E402

WEIGHTS = ROOT / "models/pack-tiny/model.safetensors"


def pixels(batch):
    side = pack.SIDE_PX
    i = torch.arange(batch * 3 * side * side, dtype=torch.int64)
    return ((i * 7919 % 1013).float() / 506 - 1).reshape(batch, 3, side, side)


def main():
    binary, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 40
    threads = len(os.sched_getaffinity(0))
    torch.set_num_threads(threads)
    model = pack.load(WEIGHTS)
    env = {**os.environ, "RAYON_NUM_THREADS": str(threads)}
    port = subprocess.Popen(
        [binary, WEIGHTS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    )
    assert port.stdout.readline().strip() == "ready"

    def own(batch):
        port.stdin.write(f"own {pack.SIDE_PX} {batch}\n")
        port.stdin.flush()
        ms, *values = port.stdout.readline().split()
        return float(ms), torch.tensor([float(v) for v in values])

    def pytorch(batch):
        x = pixels(batch)
        start = time.perf_counter()
        result = model(x)[0]
        return (time.perf_counter() - start) * 1e3, result

    print(f"{platform.machine()}, {threads} threads, torch {torch.__version__}, f32")
    print(f"{'crops':>5} {'own min/med ms':>18} {'torch min/med ms':>18} {'own/torch min':>14} "
          f"{'own/torch med':>14} {'cosine':>10}")
    with torch.inference_mode():
        for batch in (1, 16):
            times = {"own": [], "torch": []}
            for i in range(rounds + 3):
                ours, a = own(batch)
                theirs, b = pytorch(batch)
                if i >= 3:
                    times["own"].append(ours)
                    times["torch"].append(theirs)
            least = {k: min(v) for k, v in times.items()}
            middle = {k: statistics.median(v) for k, v in times.items()}
            cosine = float(torch.nn.functional.cosine_similarity(a, b, dim=0))
            print(f"{batch:>5} {least['own']:>9.2f}/{middle['own']:>8.2f} "
                  f"{least['torch']:>9.2f}/{middle['torch']:>8.2f} "
                  f"{least['own'] / least['torch']:>14.2f} "
                  f"{middle['own'] / middle['torch']:>14.2f} {cosine:>10.6f}", flush=True)
    port.stdin.close()
    port.wait()


if __name__ == "__main__":
    main()
