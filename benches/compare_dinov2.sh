#!/bin/sh
# Times DINOv2 in this port, PyTorch and candle-transformers in one run.
# Needs a Python with torch, transformers and safetensors; PYTHON names it.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cargo build --release --manifest-path "$here/Cargo.toml" --target-dir "${CARGO_TARGET_DIR:-$here/target}"
exec "${PYTHON:-python3}" "$here/compare_dinov2.py" "${CARGO_TARGET_DIR:-$here/target}/release/shelfscan-benches" "$@"
