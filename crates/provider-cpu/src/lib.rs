//! The CPU back end: SAM 3.1 and DINOv2 behind the inference contracts.
