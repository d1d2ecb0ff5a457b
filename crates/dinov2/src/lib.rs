//! DINOv2 in candle: crops in, unit vectors out.
