//! Answers timing requests on standard input, one a line, so that a script can interleave engines.
//!
//! `shelfscan-benches <checkpoint> [<checkpoint with head>]` loads DINOv2 into this port and, with
//! the second file, ViT-S/14 into candle-transformers. Requests are `own|candle <side> <batch>`; the
//! answer is the time of one forward in milliseconds and the first numbers of the class token.

use std::io::{BufRead, Write};

use anyhow::{Context, Result, bail};
use candle_core::{DType, Device, Module, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::dinov2 as theirs;
use shelfscan_dinov2::{Dinov2, LoadOptions};

fn pixels(batch: usize, side: usize) -> Result<Tensor> {
    let data: Vec<f32> = (0..batch * 3 * side * side)
        .map(|i| ((i * 7919 % 1013) as f32 / 506.0) - 1.0)
        .collect();
    Ok(Tensor::from_vec(
        data,
        (batch, 3, side, side),
        &Device::Cpu,
    )?)
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let (own, with_head) = match args.as_slice() {
        [_, own] => (own, None),
        [_, own, with_head] => (own, Some(with_head)),
        _ => bail!("usage: shelfscan-benches <checkpoint> [<checkpoint with head>]"),
    };
    let device = Device::Cpu;
    let own = Dinov2::load(own, LoadOptions::default(), DType::F32, &device)?;
    let theirs = with_head
        .map(|file| {
            let tensors = candle_core::safetensors::load(file, &device)?;
            theirs::vit_small(VarBuilder::from_tensors(tensors, DType::F32, &device))
        })
        .transpose()?;
    let mut out = std::io::stdout();
    writeln!(out, "ready")?;
    out.flush()?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let mut words = line.split_whitespace();
        let engine = words.next().context("no engine")?;
        let side: usize = words.next().context("no side")?.parse()?;
        let batch: usize = words.next().context("no batch")?.parse()?;
        let input = pixels(batch, side)?;
        let start = std::time::Instant::now();
        let class = match engine {
            "own" => own.forward(&input)?.class,
            // Its model takes one picture at a time.
            "candle" => {
                let theirs = theirs.as_ref().context("no checkpoint with a head")?;
                let rows = (0..batch)
                    .map(|i| class_token(theirs, &input.narrow(0, i, 1)?))
                    .collect::<Result<Vec<_>>>()?;
                Tensor::cat(&rows, 0)?
            }
            other => bail!("unknown engine {other}"),
        };
        let ms = start.elapsed().as_secs_f64() * 1e3;
        let head: Vec<String> = class
            .get(0)?
            .to_vec1::<f32>()?
            .iter()
            .map(|v| format!("{v:.6}"))
            .collect();
        writeln!(out, "{ms:.3} {}", head.join(" "))?;
        out.flush()?;
    }
    Ok(())
}

/// The class token, through the head: the script writes a head that passes it on.
fn class_token(model: &theirs::DinoVisionTransformer, x: &Tensor) -> Result<Tensor> {
    Ok(model.forward(x)?.narrow(1, 0, 384)?)
}
