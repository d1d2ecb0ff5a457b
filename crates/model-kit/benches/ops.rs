//! The fused operators beside candle's own, at the shapes of ViT-S.
#![allow(clippy::unwrap_used)]

use candle_core::{Device, Tensor};
use divan::Bencher;
use shelfscan_model_kit::ops::{
    Activation, AttentionOptions, Conv2d, LayerNorm, Linear, Mlp, attention,
};

fn main() {
    divan::main();
}

fn ramp(shape: &[usize]) -> Tensor {
    let count = shape.iter().product::<usize>();
    let data: Vec<f32> = (0..count).map(|i| (i % 97) as f32 / 48.0 - 1.0).collect();
    Tensor::from_vec(data, shape, &Device::Cpu).unwrap()
}

const TOKENS: [usize; 2] = [257, 1370];

#[divan::bench(args = TOKENS)]
fn linear(bencher: Bencher<'_, '_>, n: usize) {
    let layer = Linear::new(&ramp(&[1152, 384]), Some(&ramp(&[1152]))).unwrap();
    let x = ramp(&[n, 384]);
    bencher.bench_local(|| layer.forward(&x).unwrap());
}

#[divan::bench(args = TOKENS)]
fn linear_of_candle(bencher: Bencher<'_, '_>, n: usize) {
    let (w, b) = (ramp(&[1152, 384]).t().unwrap(), ramp(&[1152]));
    let x = ramp(&[n, 384]);
    bencher.bench_local(|| x.matmul(&w).unwrap().broadcast_add(&b).unwrap());
}

#[divan::bench(args = TOKENS)]
fn attention_6_heads_of_64(bencher: Bencher<'_, '_>, n: usize) {
    let qkv = ramp(&[1, n, 3, 6, 64]);
    let part = |i| qkv.narrow(2, i, 1).unwrap().squeeze(2).unwrap();
    let (q, k, v) = (part(0), part(1), part(2));
    let options = AttentionOptions::default();
    bencher.bench_local(|| attention(&q, &k, &v, &options).unwrap());
}

#[divan::bench(args = TOKENS)]
fn attention_of_candle(bencher: Bencher<'_, '_>, n: usize) {
    let qkv = ramp(&[3, 6, n, 64]);
    let (q, k, v) = (
        qkv.get(0).unwrap(),
        qkv.get(1).unwrap(),
        qkv.get(2).unwrap(),
    );
    bencher.bench_local(|| {
        let scores = (q.matmul(&k.t().unwrap()).unwrap() * 0.125).unwrap();
        let weights = candle_nn::ops::softmax_last_dim(&scores).unwrap();
        weights.matmul(&v).unwrap()
    });
}

#[divan::bench(args = TOKENS)]
fn mlp_with_norm_and_residual(bencher: Bencher<'_, '_>, n: usize) {
    let up = Linear::new(&ramp(&[1536, 384]), Some(&ramp(&[1536]))).unwrap();
    let down = Linear::new(&ramp(&[384, 1536]), Some(&ramp(&[384]))).unwrap();
    let mlp = Mlp::new(up, Activation::Gelu, down).unwrap();
    let norm = LayerNorm::new(&ramp(&[384]), &ramp(&[384]), 1e-6).unwrap();
    let x = ramp(&[n, 384]);
    bencher.bench_local(|| mlp.forward_residual(&x, &norm).unwrap());
}

#[divan::bench]
fn gelu(bencher: Bencher<'_, '_>) {
    let x = ramp(&[257, 1536]);
    bencher.bench_local(|| Activation::Gelu.forward(&x).unwrap());
}

#[divan::bench]
fn gelu_of_candle(bencher: Bencher<'_, '_>) {
    let x = ramp(&[257, 1536]);
    bencher.bench_local(|| x.gelu_erf().unwrap());
}

#[divan::bench]
fn conv_3x3_of_256(bencher: Bencher<'_, '_>) {
    let conv = Conv2d::new(&ramp(&[256, 256, 3, 3]), None, 1, 1).unwrap();
    let x = ramp(&[1, 256, 72, 72]);
    bencher.bench_local(|| conv.forward(&x).unwrap());
}
