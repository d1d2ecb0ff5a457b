//! SAM 3.1 in candle: text-prompted detection.
