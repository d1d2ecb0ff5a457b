//! Clock and random weights of the full-size examples.

use std::{path::Path, time::Instant};

use candle_core::DType;
use shelfscan_model_kit::weights::{SafetensorsWriter, TensorSpec};

/// Wall and processor seconds between laps, and the most memory held so far.
pub(crate) struct Clock {
    wall: Instant,
    cpu: f64,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self {
            wall: Instant::now(),
            cpu: cpu_secs(),
        }
    }

    pub(crate) fn lap(&mut self, what: &str) {
        let (wall, cpu) = (self.wall.elapsed().as_secs_f64(), cpu_secs() - self.cpu);
        println!(
            "{what:40} {wall:8.2} s wall {cpu:8.2} s cpu {:6.2} GiB peak",
            peak_gib()
        );
        *self = Self::start();
    }
}

/// Processor seconds of this process, from Linux's `/proc`; 0 elsewhere.
fn cpu_secs() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let rest = stat.rsplit(')').next().unwrap_or_default();
    let ticks: f64 = rest
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|t| t.parse::<f64>().ok())
        .sum();
    ticks / 100.0
}

fn peak_gib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let kib: f64 = line
        .and_then(|l| l.split_whitespace().next())
        .and_then(|n| n.parse().ok())
        .unwrap_or(0.0);
    kib / f64::from(1 << 20)
}

/// Small random numbers, ones for the scales of norms, so that activations stay in range.
pub(crate) fn make_checkpoint(
    path: &Path,
    layout: &[TensorSpec],
) -> shelfscan_model_kit::Result<()> {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    SafetensorsWriter::new(DType::BF16).write(path, layout, |i, out| {
        let spec = &layout[i];
        if spec.shape.len() == 1 && spec.key.ends_with("weight") {
            out.fill(1.0);
            return;
        }
        let inputs: usize = spec.shape.iter().skip(1).product();
        let scale = 1.0 / (inputs.max(1) as f32).sqrt().max(16.0);
        for v in out {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *v = ((state >> 40) as f32 / (1u64 << 23) as f32 - 1.0) * scale;
        }
    })
}
