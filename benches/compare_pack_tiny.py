"""pack-tiny in f32: this port and PyTorch, interleaved in one run, the same weights in both.

    benches/compare_pack_tiny.sh [rounds]

Prints the least and the median time of a forward of 1 and of 16 crops of 112 px, the median time on
the processor, all threads together, and the ratios of this port to PyTorch (below 1 is faster).
PyTorch runs the trainer's model in inference mode. On a machine that others use as well, the times on
the processor are the ones to compare; `taskset -c 0` makes it one thread each.
"""

import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time

import torch

from processor import on_processor_ms

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
        before = on_processor_ms(port.pid)
        port.stdin.write(f"own {pack.SIDE_PX} {batch}\n")
        port.stdin.flush()
        ms, *values = port.stdout.readline().split()
        used = on_processor_ms(port.pid) - before
        return float(ms), used, torch.tensor([float(v) for v in values])

    def pytorch(batch):
        x = pixels(batch)
        before, start = on_processor_ms(os.getpid()), time.perf_counter()
        result = model(x)[0]
        ms = (time.perf_counter() - start) * 1e3
        return ms, on_processor_ms(os.getpid()) - before, result

    print(f"{platform.machine()}, {threads} threads, torch {torch.__version__}, f32")
    print(f"{'crops':>5} {'own min/med/cpu ms':>24} {'torch min/med/cpu ms':>24} "
          f"{'own/torch min':>14} {'med':>6} {'cpu':>6} {'cosine':>10}")
    with torch.inference_mode():
        for batch in (1, 16):
            rows = []
            for i in range(rounds + 3):
                (ours, our_cpu, a), (theirs, their_cpu, b) = own(batch), pytorch(batch)
                if i >= 3:
                    rows.append((ours, our_cpu, theirs, their_cpu))
            ours, our_cpu, theirs, their_cpu = zip(*rows)
            o = (min(ours), statistics.median(ours), statistics.median(our_cpu))
            t = (min(theirs), statistics.median(theirs), statistics.median(their_cpu))
            cosine = float(torch.nn.functional.cosine_similarity(a, b, dim=0))
            print(f"{batch:>5} {'/'.join(f'{v:.1f}' for v in o):>24} "
                  f"{'/'.join(f'{v:.1f}' for v in t):>24} {o[0] / t[0]:>14.2f} "
                  f"{o[1] / t[1]:>6.2f} {o[2] / t[2]:>6.2f} {cosine:>10.6f}", flush=True)
    port.stdin.close()
    port.wait()


if __name__ == "__main__":
    main()
