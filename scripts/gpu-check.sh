#!/usr/bin/env bash
# Compares a CUDA build with the CPU on a machine with an NVIDIA card, and prints a table.
#
#   scripts/gpu-check.sh SHELFSCAN WEIGHTS CLIP [EMBEDDER_WEIGHTS PHOTOS]
#
# SHELFSCAN is a program built with --features cuda, WEIGHTS a SAM 3.1 checkpoint or a folder with a
# smaller model, CLIP a video; EMBEDDER_WEIGHTS a DINOv2 checkpoint and PHOTOS a folder with one
# folder of pictures per SKU. Needs bash, python3 and the driver; no Rust. Takes under ten minutes:
# each step is given a limit, all of them together 520 s, and a step that goes over it is a row that
# says so.
set -uo pipefail

if (($# < 3)); then
    sed -n '2,11s/^# \{0,1\}//p' "$0"
    exit 2
fi
shelfscan=$1 weights=$2 clip=$3 embedder=${4-} photos=${5-}
frames=${FRAMES:-40}
few=${CPU_FRAMES:-3}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
failed=0

row() { printf '%-34s %-10s %s\n' "$1" "$2" "$3"; }

# step NAME LIMIT_SECS COMMAND...: runs it quietly; a row tells of a failure.
step() {
    local name=$1 limit=$2 rc
    shift 2
    timeout "$limit" "$@" >"$out/log" 2>&1
    rc=$?
    if ((rc == 124)); then
        row "$name" "TOO SLOW" "over $limit s"
    elif ((rc != 0)); then
        row "$name" "FAILED" "$(grep -m1 -E '^(error|device|worker)' "$out/log" || tail -1 "$out/log")"
    fi
    ((rc == 0)) || failed=1
    return "$rc"
}

# scan NAME LIMIT FRAMES OPTION...: into $out/NAME.
scan() {
    local name=$1 limit=$2 n=$3
    shift 3
    step "$name" "$limit" "$shelfscan" scan "$clip" --out "$out/$name" --weights "$weights" \
        --max-frames "$n" --no-config "$@"
}

# speed NAME: frames a second of the model, without what came before the first frame.
speed() {
    python3 - "$out/$1" <<'PY'
import json, pathlib, sys
run = json.loads(next(pathlib.Path(sys.argv[1]).glob("*/run.json")).read_text())
stage = run["timings"]["stages"]["detect"]
on = run.get("runs_on", {})
ms = 1000 * stage["busy_secs"] / max(stage["items"], 1)
print(f'{ms:9.1f} ms a frame, {stage["items"]} frames  ({on.get("device")} {on.get("dtype")})')
PY
}

# same A B BOX_PX SCORE: the greatest distance of boxes and scores between two scans.
same() {
    python3 - "$out/$1" "$out/$2" "$3" "$4" <<'PY'
import json, pathlib, sys
def frames(folder):
    path = next(pathlib.Path(folder).glob("*/detections.jsonl"))
    return {f["frame_index"]: f["detections"] for f in map(json.loads, path.open())}
def iou(a, b):
    w = min(a[2], b[2]) - max(a[0], b[0])
    h = min(a[3], b[3]) - max(a[1], b[1])
    inter = max(w, 0) * max(h, 0)
    area = lambda r: (r[2] - r[0]) * (r[3] - r[1])
    return inter / (area(a) + area(b) - inter)
a, b = frames(sys.argv[1]), frames(sys.argv[2])
box_bar, score_bar = float(sys.argv[3]), float(sys.argv[4])
box = score = 0.0
pairs = lost = 0
for index in sorted(set(a) & set(b)):
    left = list(b[index])
    for one in a[index]:
        best = max(left, key=lambda o: iou(one["box"], o["box"]), default=None)
        if best is None or iou(one["box"], best["box"]) < 0.5:
            lost += 1
            continue
        left.remove(best)
        pairs += 1
        box = max(box, *(abs(x - y) for x, y in zip(one["box"], best["box"])))
        score = max(score, abs(one["score"] - best["score"]))
    lost += len(left)
ok = pairs > 0 and lost <= pairs // 100 and box <= box_bar and score <= score_bar
print(f'{"ok" if ok else "DIFFERS":10} {pairs} pairs, {lost} without one, box {box:.3f} px, score {score:.4f}')
sys.exit(not ok)
PY
}

printf '%s\n' "$(nvidia-smi --query-gpu=name,driver_version,memory.total,compute_cap --format=csv,noheader 2>/dev/null || echo 'no nvidia-smi')"
row "check" "result" "details"

scan cpu 120 "$few" --device cpu
for dtype in f32 bf16 f16; do
    scan "cuda-$dtype" 60 "$frames" --device cuda:0 --dtype "$dtype" || continue
    row "speed cuda $dtype" "" "$(speed "cuda-$dtype")"
    case $dtype in
        f32) bars=(1.0 0.01) ;; # the order of sums differs, nothing else
        *) bars=(6.0 0.15) ;;   # 8 to 11 bits of mantissa through the whole model
    esac
    if [[ -e $out/cpu ]]; then
        result=$(same cpu "cuda-$dtype" "${bars[@]}") || failed=1
        row "parity cuda $dtype with cpu" "$result" ""
    fi
done
[[ -e $out/cpu ]] && row "speed cpu f32" "" "$(speed cpu)"

if scan cuda-worker 60 "$frames" --device cuda:0 --isolate; then
    row "speed cuda f32 in a worker" "" "$(speed cuda-worker)"
    result=$(same cuda-f32 cuda-worker 0.0 0.0) || failed=1
    row "parity worker with this process" "$result" ""
fi

# A device that is not there is an error with a remedy, not a slower run.
if "$shelfscan" scan "$clip" --out "$out/none" --weights "$weights" --device cuda:99 >"$out/log" 2>&1; then
    row "card 99 is refused" "FAILED" "it was accepted"
    failed=1
else
    row "card 99 is refused" "ok" "$(grep -m1 'cuda:99' "$out/log")"
fi

if [[ -n $embedder && -n $photos ]]; then
    for device in cpu cuda:0; do
        step "enrol on $device" 40 "$shelfscan" enroll "$photos" --gallery "$out/gallery-$device" \
            --embedder-weights "$embedder" --device "$device" --no-config --json || continue
        step "judge on $device" 40 "$shelfscan" eval gallery "$photos" \
            --embedder-weights "$embedder" --device "$device" --no-config &&
            row "judge on $device" "ok" "$(grep -m1 -i dinov2 "$out/log")"
    done
fi

((failed)) && echo 'some checks failed'
exit "$failed"
