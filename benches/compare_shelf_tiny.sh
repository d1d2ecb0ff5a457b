#!/bin/sh
# Times a frame through shelf-tiny with 2x2 tiles in this port and in PyTorch f32 in one run.
# Needs a Python with torch, numpy, pillow, scipy and safetensors; PYTHON names it.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/.."
cargo build --release --workspace --example tiny_frame
exec "${PYTHON:-python3}" "$here/compare_shelf_tiny.py" "${CARGO_TARGET_DIR:-target}/release/examples/tiny_frame" "$@"
