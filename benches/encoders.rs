//! Operations of the encoders at the shapes of DeBERTa-large (1,024 hidden, 4,096 intermediate, 16 heads, 256 buckets).
//!
//! Rates are in floating-point operations: `Gelem/s` reads GFLOP/s. Beside each linear layer stand, in the same run, `x.matmul(w)` of candle (its
//! `gemm` crate) and the peak: what the cores do when they multiply and add registers only. Attention counts Q·K, the two position
//! terms and P·V at 2·head_dim·n² each. A layer counts pairs a second; a model of 24 layers makes a twenty-fourth
//! as many. It runs 64 pairs of 30 to 250 tokens. Weights and inputs are random.
//! Run: `cargo bench --bench encoders`.

#![allow(clippy::unwrap_used, missing_docs)]

use std::hint::black_box;
use std::time::Duration;

use candle_core::{DType, Device, Tensor};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use livingrag::encode::ops::{
    Activation, DisentangledTables, LayerNorm, Linear, PositionBias, Precision, Segments, attention, fast_bf16,
};
use rayon::prelude::*;

const HIDDEN: usize = 1024;
const HEADS: usize = 16;
const BUCKETS: usize = 256;

fn random(shape: &[usize], deviation: f32) -> Tensor {
    Tensor::randn(0f32, deviation, shape, &Device::Cpu).unwrap()
}

/// `f32`, and bfloat16 where the processor has an instruction for it.
fn precisions() -> Vec<(&'static str, Precision)> {
    let mut all = vec![("f32", Precision::F32)];
    if fast_bf16() {
        all.push(("bf16", Precision::Bf16));
    }
    all
}

const STEPS: usize = 100_000;

/// 24 chains of `STEPS` fused multiply-adds on 16 lanes, all in registers.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn chains_avx512(x: f32) -> f32 {
    use std::arch::x86_64::{_mm512_add_ps, _mm512_fmadd_ps, _mm512_reduce_add_ps, _mm512_set1_ps};
    let (a, b) = (_mm512_set1_ps(black_box(x)), _mm512_set1_ps(black_box(0.999)));
    let mut acc = [_mm512_set1_ps(0.0); 24];
    for _ in 0..STEPS {
        for chain in &mut acc {
            *chain = _mm512_fmadd_ps(a, b, *chain);
        }
    }
    _mm512_reduce_add_ps(acc.into_iter().fold(_mm512_set1_ps(0.0), |sum, chain| _mm512_add_ps(sum, chain)))
}

/// As many operations on 8 lanes: 12 chains, four times as long.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn chains_avx2(x: f32) -> f32 {
    use std::arch::x86_64::{_mm256_add_ps, _mm256_cvtss_f32, _mm256_fmadd_ps, _mm256_set1_ps};
    let (a, b) = (_mm256_set1_ps(black_box(x)), _mm256_set1_ps(black_box(0.999)));
    let mut acc = [_mm256_set1_ps(0.0); 12];
    for _ in 0..4 * STEPS {
        for chain in &mut acc {
            *chain = _mm256_fmadd_ps(a, b, *chain);
        }
    }
    _mm256_cvtss_f32(acc.into_iter().fold(_mm256_set1_ps(0.0), |sum, chain| _mm256_add_ps(sum, chain)))
}

/// The chains in this processor's registers; `None` where they are of another kind.
fn chains() -> Option<fn(f32) -> f32> {
    #[cfg(target_arch = "x86_64")]
    {
        if std::arch::is_x86_feature_detected!("avx512f") {
            // SAFETY: just detected.
            return Some(|x| unsafe { chains_avx512(x) });
        }
        if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
            // SAFETY: just detected.
            return Some(|x| unsafe { chains_avx2(x) });
        }
    }
    None
}

fn bench_peak(c: &mut Criterion) {
    let Some(chains) = chains() else { return };
    let threads = rayon::current_num_threads();
    let mut group = c.benchmark_group("peak");
    group.throughput(Throughput::Elements((threads * 8 * STEPS * 24 * 16 * 2) as u64)).sample_size(20);
    group.bench_function("f32", |b| {
        b.iter(|| (0..threads * 8).into_par_iter().map(|i| chains(1.0 + i as f32)).sum::<f32>());
    });
    group.finish();
}

fn bench_linear(c: &mut Criterion) {
    for (inputs, outputs, act) in [
        (HIDDEN, 3 * HIDDEN, Activation::None),
        (HIDDEN, 4 * HIDDEN, Activation::Gelu),
        (4 * HIDDEN, HIDDEN, Activation::None),
    ] {
        let (weight, bias) = (random(&[outputs, inputs], 0.02), random(&[outputs], 0.02));
        let transposed = weight.t().unwrap().contiguous().unwrap();
        let mut group = c.benchmark_group(format!("linear {inputs} to {outputs}"));
        for tokens in [64usize, 512, 1536, 4096] {
            let x = random(&[tokens, inputs], 1.0);
            group.throughput(Throughput::Elements((2 * tokens * inputs * outputs) as u64)).sample_size(10);
            for (name, precision) in precisions() {
                let layer = Linear::new(&weight, &bias, precision).unwrap();
                group.bench_function(BenchmarkId::new(name, tokens), |b| {
                    b.iter(|| black_box(layer.forward(&x, act).unwrap()));
                });
            }
            group.bench_function(BenchmarkId::new("candle matmul, bias and activation left out", tokens), |b| {
                b.iter(|| black_box(x.matmul(&transposed).unwrap()));
            });
        }
        group.finish();
    }
}

fn tables() -> DisentangledTables {
    let table = || random(&[HEADS, 2 * BUCKETS, HIDDEN / HEADS], 1.0);
    DisentangledTables::new(Some(table()), Some(table()), BUCKETS, 512).unwrap()
}

fn bench_attention(c: &mut Criterion) {
    let tables = tables();
    let mut group = c.benchmark_group("attention");
    for length in [32usize, 128, 256, 512] {
        let texts = 2048 / length;
        let segments = Segments::new(&vec![length; texts]);
        let qkv = random(&[segments.total(), 3 * HIDDEN], 1.0);
        group.throughput(Throughput::Elements((4 * 2 * texts * length * length * HIDDEN) as u64)).sample_size(10);
        for (name, precision) in precisions() {
            group.bench_function(BenchmarkId::new(name, length), |b| {
                let bias = PositionBias::Disentangled(&tables);
                b.iter(|| black_box(attention(&qkv, &segments, HEADS, &bias, precision).unwrap()));
            });
        }
    }
    group.finish();
}

fn bench_layer(c: &mut Criterion) {
    let tables = tables();
    let ones = Tensor::ones(HIDDEN, DType::F32, &Device::Cpu).unwrap();
    let norm = LayerNorm::new(&ones, &ones, 1e-7).unwrap();
    // 64 pairs of 30 to 250 tokens, longest first, in batches of at most 1,536 tokens.
    let mut batches = vec![Vec::new()];
    let mut tokens = 0;
    for i in 0..64usize {
        let length = 250 - i * 220 / 63;
        if tokens + length > 1536 {
            batches.push(Vec::new());
            tokens = 0;
        }
        batches.last_mut().unwrap().push(length);
        tokens += length;
    }
    let batches: Vec<Segments> = batches.iter().map(|lengths| Segments::new(lengths)).collect();
    let inputs: Vec<Tensor> = batches.iter().map(|s| random(&[s.total(), HIDDEN], 1.0)).collect();
    let mut group = c.benchmark_group("layer, 64 pairs of 30 to 250 tokens");
    group.throughput(Throughput::Elements(64)).sample_size(10).measurement_time(Duration::from_secs(15));
    for (name, precision) in precisions() {
        let linear = |outputs: usize, inputs: usize| {
            Linear::new(&random(&[outputs, inputs], 0.02), &random(&[outputs], 0.02), precision).unwrap()
        };
        let (qkv, out) = (linear(3 * HIDDEN, HIDDEN), linear(HIDDEN, HIDDEN));
        let (up, down) = (linear(4 * HIDDEN, HIDDEN), linear(HIDDEN, 4 * HIDDEN));
        group.bench_function(name, |b| {
            b.iter(|| {
                for (segments, x) in batches.iter().zip(&inputs) {
                    let bias = PositionBias::Disentangled(&tables);
                    let qkv = qkv.forward(x, Activation::None).unwrap();
                    let context = attention(&qkv, segments, HEADS, &bias, precision).unwrap();
                    let y = norm.forward_residual(&out.forward(&context, Activation::None).unwrap(), x).unwrap();
                    let inner = up.forward(&y, Activation::Gelu).unwrap();
                    black_box(norm.forward_residual(&down.forward(&inner, Activation::None).unwrap(), &y).unwrap());
                }
            });
        });
    }
    group.finish();
}

criterion_group!(benches, bench_peak, bench_linear, bench_attention, bench_layer);
criterion_main!(benches);
