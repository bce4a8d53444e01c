//! The encoders' kernels on the processor against `math::encoder`: bias and GELU, layer normalisation, attention around products that
//! the test makes itself, in single and half precision; and whole models on the way that a GPU takes, with candle's products.
//!
//! Tolerances: single precision 2e-6 of values near 1 and 1e-5 after attention; half precision its own rounding, 2⁻¹¹ of a value.

#![allow(clippy::unwrap_used)]

mod host_cuda;

use std::path::Path;
use std::sync::Arc;

use candle_core::{CpuStorage, DType, InplaceOp1, Layout, Storage, Tensor};
use host_cuda::{HostBuffer, HostCuda};
use livingrag::Result;
use livingrag::backend::device::encoder::{self, Element, Launch, Norm, Terms, Texts};
use livingrag::backend::device::{Arg, Device};
use livingrag::encode::ops::Kernels;
use livingrag::encode::{CrossEncoder, Embedder, EncodeDevice, ModelFolder, Precision};
use livingrag::math::encoder::{attend, disentangled_score, gelu, layer_norm, relative_bucket};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Half precision and back, by the definition: the nearest of all numbers with 11 bits and an exponent of at least -14, ties to even.
fn half_bits(v: f32) -> u16 {
    let sign = ((v.to_bits() >> 16) & 0x8000) as u16;
    let a = f64::from(v.abs());
    if a.is_nan() {
        return sign | 0x7fff;
    }
    if a.is_infinite() {
        return sign | 0x7c00;
    }
    let exponent = if a == 0.0 { -14 } else { (a.log2().floor() as i32).max(-14) };
    // A multiple of 2^(exponent - 10); rounding may carry into the next exponent, which the sum of bits does by itself.
    let steps = (a / 2f64.powi(exponent - 10)).round_ties_even();
    let bits = if exponent == -14 { steps } else { steps - 1024.0 + f64::from((exponent + 15) * 1024) };
    sign | if bits >= 31_744.0 { 0x7c00 } else { bits as u16 }
}

fn half_value(bits: u16) -> f32 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let (exponent, fraction) = (i32::from((bits >> 10) & 31), f64::from(bits & 1023));
    let value = match exponent {
        31 if fraction > 0.0 => f64::NAN,
        31 => f64::INFINITY,
        0 => fraction * 2f64.powi(-24),
        _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
    };
    (sign * value) as f32
}

/// A device with arrays of one kind of number.
struct Bench {
    device: HostCuda,
    element: Element,
}

impl Bench {
    fn all(seed: u64) -> Option<[Self; 2]> {
        let of = |element| Some(Self { device: HostCuda::with_seed(seed)?, element });
        Some([of(Element::F32)?, of(Element::F16)?])
    }

    fn raw(&self, bytes: &[u8]) -> HostBuffer {
        let buffer = self.device.alloc(bytes.len()).unwrap();
        self.device.write(&buffer, 0, bytes).unwrap();
        buffer
    }

    fn f32s(&self, values: &[f32]) -> HostBuffer {
        self.raw(bytemuck::cast_slice(values))
    }

    fn u32s(&self, values: &[u32]) -> HostBuffer {
        self.raw(bytemuck::cast_slice(values))
    }

    /// As this bench's numbers lie in memory.
    fn put(&self, values: &[f32]) -> HostBuffer {
        match self.element {
            Element::F32 => self.f32s(values),
            Element::F16 => self.raw(bytemuck::cast_slice(&values.iter().map(|&v| half_bits(v)).collect::<Vec<u16>>())),
        }
    }

    fn room(&self, n: usize) -> HostBuffer {
        self.device.alloc(n * if self.element == Element::F32 { 4 } else { 2 }).unwrap()
    }

    fn get(&self, buffer: &HostBuffer, n: usize) -> Vec<f32> {
        if self.element == Element::F32 {
            let mut out = vec![0f32; n];
            self.device.read(buffer, bytemuck::cast_slice_mut(&mut out)).unwrap();
            return out;
        }
        let mut out = vec![0u16; n];
        self.device.read(buffer, bytemuck::cast_slice_mut(&mut out)).unwrap();
        out.into_iter().map(half_value).collect()
    }

    /// A value as this bench's numbers hold it.
    fn held(&self, v: f32) -> f64 {
        f64::from(if self.element == Element::F32 { v } else { half_value(half_bits(v)) })
    }

    /// Whether `found` is `expected` but for the rounding of this bench's numbers and `relative` more.
    fn near(&self, found: f32, expected: f64, relative: f64) -> bool {
        let own = if self.element == Element::F32 { 0.0 } else { 2f64.powi(-11) };
        (f64::from(found) - expected).abs() <= (own + relative) * expected.abs().max(1.0)
    }
}

fn numbers(seed: u64, n: usize, spread: f64) -> Vec<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..n).map(|_| (spread * ((rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64 * 2.0 - 1.0)) as f32).collect()
}

/// Every number of 16 bits comes through as it is, and sums round to the nearest.
#[test]
fn half_precision_is_kept_and_rounded() {
    let Some([_, bench]) = Bench::all(1) else { return };
    let all: Vec<u16> = (0..=u16::MAX).collect();
    let (x, y) = (bench.raw(bytemuck::cast_slice(&all)), bench.room(all.len()));
    let mut out = vec![0u16; all.len()];
    for bias in [0.0f32, 1.0 / 3.0, 1e-5] {
        let b = bench.f32s(&[bias]);
        encoder::bias(Element::F16, &x, &b, (all.len(), 1), false, &y).unwrap().start(&bench.device).unwrap();
        bench.device.read(&y, bytemuck::cast_slice_mut(&mut out)).unwrap();
        for (&from, &to) in all.iter().zip(&out) {
            let expected = half_value(from) + bias;
            if expected.is_nan() {
                assert!(half_value(to).is_nan());
            } else {
                // -0 + 0 is 0.
                let same = half_bits(expected) == to || (expected == 0.0 && to & 0x7fff == 0);
                assert!(same, "{from:#x} + {bias} gave {to:#x}, not {:#x}", half_bits(expected));
            }
        }
    }
}

#[test]
fn bias_and_gelu() {
    let Some(benches) = Bench::all(2) else { return };
    let (rows, width) = (5, 70);
    let (x, b) = (numbers(1, rows * width, 6.0), numbers(2, width, 1.0));
    for bench in benches {
        let (on, bias, y) = (bench.put(&x), bench.f32s(&b), bench.room(rows * width));
        for act in [false, true] {
            encoder::bias(bench.element, &on, &bias, (rows, width), act, &y).unwrap().start(&bench.device).unwrap();
            for (i, found) in bench.get(&y, rows * width).into_iter().enumerate() {
                let sum = bench.held(x[i]) + f64::from(b[i % width]);
                let expected = if act { gelu(sum) } else { sum };
                assert!(bench.near(found, expected, 5e-7), "{:?} {act}: {found} is not {expected}", bench.element);
            }
        }
    }
}

#[test]
fn layer_normalisation_with_and_without_residual() {
    let Some(benches) = Bench::all(3) else { return };
    for bench in benches {
        for width in [1, 5, 300, 1024] {
            let rows = 3;
            let (x, r) = (numbers(3, rows * width, 4.0), numbers(4, rows * width, 2.0));
            let (gamma, beta) = (numbers(5, width, 1.5), numbers(6, width, 0.5));
            let (gamma_on, beta_on) = (bench.f32s(&gamma), bench.f32s(&beta));
            let (x_on, r_on, y) = (bench.put(&x), bench.put(&r), bench.room(rows * width));
            let norm = Norm { gamma: &gamma_on, beta: &beta_on, eps: 1e-7 };
            for residual in [None, Some(&r_on)] {
                let launch = encoder::norm(bench.element, &x_on, residual, &norm, (rows, width), &y).unwrap();
                launch.start(&bench.device).unwrap();
                let found = bench.get(&y, rows * width);
                let wide = |v: &[f32]| v.iter().map(|&v| f64::from(v)).collect::<Vec<_>>();
                for row in 0..rows {
                    let range = row * width..(row + 1) * width;
                    let sum: Vec<f64> = range
                        .clone()
                        .map(|i| bench.held(x[i]) + if residual.is_some() { bench.held(r[i]) } else { 0.0 })
                        .collect();
                    let expected = layer_norm(&sum, &wide(&gamma), &wide(&beta), 1e-7);
                    for (found, expected) in found[range].iter().zip(expected) {
                        assert!(bench.near(*found, expected, 2e-6), "width {width}: {found} is not {expected}");
                    }
                }
            }
        }
    }
}

/// What attention over packed texts takes.
struct Case {
    lengths: Vec<usize>,
    heads: usize,
    dim: usize,
    /// c2p, p2c, relative bias.
    terms: [bool; 3],
}

const BUCKETS: usize = 8;
const POSITIONS: usize = 32;

impl Case {
    fn offsets(&self) -> Vec<u32> {
        let mut at = 0;
        std::iter::once(0)
            .chain(self.lengths.iter().map(|&n| {
                at += n as u32;
                at
            }))
            .collect()
    }

    fn scale(&self) -> f32 {
        let products = 1 + usize::from(self.terms[0]) + usize::from(self.terms[1]);
        (1.0 / ((self.dim * products) as f64).sqrt()) as f32
    }

    /// Row of the tables for d.
    fn row(d: i64) -> usize {
        (relative_bucket(d, BUCKETS, POSITIONS) + BUCKETS as i64).clamp(0, 2 * BUCKETS as i64 - 1) as usize
    }

    /// Runs the kernels, and what lies between them in single precision, with texts laid out `length` long; out: `[tokens, heads·dim]`.
    fn run(&self, bench: &Bench, qkv: &[f32], kr: &[f32], qr: &[f32], bias: &[f32], length: usize) -> Vec<f32> {
        let (texts, heads, dim) = (self.lengths.len(), self.heads, self.dim);
        let offsets = self.offsets();
        let tokens = offsets[texts] as usize;
        let offsets_on = bench.u32s(&offsets);
        let of = Texts { offsets: &offsets_on, texts, tokens, length, heads, head_dim: dim };
        let qkv_on = bench.put(qkv);
        let n = texts * heads * length;
        let parts = [bench.room(n * dim), bench.room(n * dim), bench.room(n * dim)];
        let launch = encoder::split(bench.element, &qkv_on, &of, self.scale(), parts.each_ref()).unwrap();
        launch.start(&bench.device).unwrap();
        let [q, k, v] = parts.each_ref().map(|part| bench.get(part, n * dim));

        // The products: rows of `a` with rows of `b`, each head and text by itself.
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f32>();
        let mut qk = vec![0f32; n * length];
        for (at, qk) in qk.chunks_exact_mut(length).enumerate() {
            let group = at / length * length;
            for (j, qk) in qk.iter_mut().enumerate() {
                *qk = dot(&q[at * dim..][..dim], &k[(group + j) * dim..][..dim]);
            }
        }
        // Only the rows of the tables that this length needs.
        let reach = length as i64 - 1;
        let (first, last) = (Self::row(-reach), Self::row(reach));
        let table = last + 1 - first;
        let with = |side: &[f32], rows: &[f32], scale: f32| -> Vec<f32> {
            let mut out = Vec::with_capacity(n * table);
            for at in 0..n {
                let head = at / length / texts;
                for row in first..=last {
                    let row = &rows[(head * 2 * BUCKETS + row) * dim..][..dim];
                    out.push(scale * dot(&side[at * dim..][..dim], row));
                }
            }
            out
        };
        let c2p = bench.put(&with(&q, kr, 1.0));
        let p2c = bench.put(&with(&k, qr, self.scale()));
        // From here on rows repeat.
        let far = 33i64;
        assert_eq!((Self::row(far), Self::row(-far)), (2 * BUCKETS - 1, 0));
        let rows = bench.u32s(&(-far..=far).map(|d| Self::row(d) as u32).collect::<Vec<_>>());
        let bias_on = bench.f32s(bias);
        let terms = Terms {
            c2p: self.terms[0].then_some(&c2p),
            p2c: self.terms[1].then_some(&p2c),
            rows: Some(&rows),
            far: far as usize,
            first_row: first,
            table,
            bias: self.terms[2].then_some(&bias_on),
            span: bias.len() / heads / 2,
        };
        let (qk_on, weights, sums) = (bench.put(&qk), bench.room(n * length), bench.f32s(&vec![f32::NAN; n]));
        let launch = encoder::weights(bench.element, &qk_on, &terms, &of, &weights, &sums).unwrap();
        launch.start(&bench.device).unwrap();
        let weights = bench.get(&weights, n * length);
        assert!(weights.iter().all(|w| (0.0..=1.0).contains(w)), "weights are not between 0 and 1");

        let mut context = vec![0f32; n * dim];
        for (at, context) in context.chunks_exact_mut(dim).enumerate() {
            let group = at / length * length;
            for (j, &w) in weights[at * length..][..length].iter().enumerate() {
                for (c, &v) in context.iter_mut().zip(&v[(group + j) * dim..][..dim]) {
                    *c += w * v;
                }
            }
        }
        let (context, out) = (bench.put(&context), bench.room(tokens * heads * dim));
        encoder::join(bench.element, &context, &sums, &of, &out).unwrap().start(&bench.device).unwrap();
        bench.get(&out, tokens * heads * dim)
    }
}

#[test]
fn attention_agrees_with_the_reference() {
    let lengths = vec![3, 1, 0, 37, 32, 64, 0];
    let (heads, dim) = (2, 8);
    let tokens: usize = lengths.iter().sum();
    let hidden = heads * dim;
    let qkv = numbers(11, tokens * 3 * hidden, 2.0);
    let (kr, qr) = (numbers(12, heads * 2 * BUCKETS * dim, 1.5), numbers(13, heads * 2 * BUCKETS * dim, 1.5));
    let span = 9;
    let bias = numbers(14, heads * (2 * span + 1), 2.0);
    for terms in [[false; 3], [true, true, false], [true, false, false], [false, true, false], [false, false, true]] {
        let case = Case { lengths: lengths.clone(), heads, dim, terms };
        let mut first: [Option<Vec<f32>>; 2] = [None, None];
        // Other seeds draw other blocks and orders; a longer layout adds nothing but zeros.
        for (seed, length) in [(1, 64), (2, 64), (3, 70)] {
            let Some(benches) = Bench::all(seed) else { return };
            for (bench, first) in benches.iter().zip(&mut first) {
                let found = case.run(bench, &qkv, &kr, &qr, &bias, length);
                assert_eq!(first.get_or_insert_with(|| found.clone()), &found, "{terms:?}: bits depend on the layout");
                let held = |at: usize| (0..dim).map(|c| bench.held(qkv[at + c])).collect::<Vec<f64>>();
                let table = |of: &[f32], head: usize, d: i64| -> Vec<f64> {
                    of[(head * 2 * BUCKETS + Case::row(d)) * dim..][..dim].iter().map(|&v| f64::from(v)).collect()
                };
                let offsets = case.offsets();
                for (text, &n) in lengths.iter().enumerate() {
                    for head in 0..heads {
                        let at = |i: usize, part: usize| {
                            held((offsets[text] as usize + i) * 3 * hidden + part * hidden + head * dim)
                        };
                        let values: Vec<Vec<f64>> = (0..n).map(|j| at(j, 2)).collect();
                        for i in 0..n {
                            let scores: Vec<f64> = (0..n)
                                .map(|j| {
                                    let d = i as i64 - j as i64;
                                    let kr = terms[0].then(|| table(&kr, head, d));
                                    let qr = terms[1].then(|| table(&qr, head, d));
                                    let s = disentangled_score(&at(i, 0), &at(j, 1), kr.as_deref(), qr.as_deref());
                                    let near = d.clamp(-(span as i64), span as i64) + span as i64;
                                    let bias = f64::from(bias[head * (2 * span + 1) + near as usize]);
                                    if terms[2] { s + bias } else { s }
                                })
                                .collect();
                            let expected = attend(&scores, &values);
                            let row = (offsets[text] as usize + i) * hidden + head * dim;
                            // In half precision scores up to 20 are off by up to 0.01 each.
                            let off = if bench.element == Element::F32 { 1e-5 } else { 2e-2 };
                            for (found, expected) in found[row..].iter().zip(&expected) {
                                let near = bench.near(*found, *expected, off);
                                assert!(near, "{terms:?} text {text} token {i}: {found} is not {expected}");
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The kernels on the processor, over candle's tensors: what a GPU does but for its products.
struct OnHost(HostCuda);

impl std::fmt::Debug for OnHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OnHost")
    }
}

/// The bytes of a tensor's numbers.
fn tensor_bytes(tensor: &Tensor) -> Vec<u8> {
    let numbers = tensor.flatten_all().unwrap();
    match tensor.dtype() {
        DType::F32 => bytemuck::cast_slice(&numbers.to_vec1::<f32>().unwrap()).to_vec(),
        DType::U32 => bytemuck::cast_slice(&numbers.to_vec1::<u32>().unwrap()).to_vec(),
        // Exact: every half is a single.
        DType::F16 => {
            let wide = numbers.to_dtype(DType::F32).unwrap().to_vec1::<f32>().unwrap();
            bytemuck::cast_slice(&wide.iter().map(|&v| half_bits(v)).collect::<Vec<u16>>()).to_vec()
        }
        other => panic!("no kernel takes {other:?}"),
    }
}

/// Puts the numbers of a tensor into another's own memory.
struct Fill(Tensor);

impl InplaceOp1 for Fill {
    fn name(&self) -> &'static str {
        "fill"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> candle_core::Result<()> {
        let (from, to) = layout.contiguous_offsets().unwrap();
        let (source, _) = self.0.storage_and_layout();
        match (storage, &*source) {
            (CpuStorage::F32(all), Storage::Cpu(CpuStorage::F32(new))) => all[from..to].copy_from_slice(new),
            (CpuStorage::F16(all), Storage::Cpu(CpuStorage::F16(new))) => all[from..to].copy_from_slice(new),
            _ => panic!("no kernel writes this"),
        }
        Ok(())
    }
}

impl Kernels for OnHost {
    fn start(&self, launch: &Launch<'_, Tensor>) -> Result<()> {
        let Self(device) = self;
        let bytes = |arg: &Arg<'_, Tensor>| match arg {
            Arg::In(tensor) | Arg::Out(tensor) => {
                assert!(tensor.is_contiguous());
                tensor_bytes(tensor)
            }
            _ => Vec::new(),
        };
        let mut held: Vec<Vec<u8>> = launch.args.iter().map(bytes).collect();
        let buffers: Vec<HostBuffer> = held
            .iter()
            .map(|bytes| {
                let buffer = device.alloc(bytes.len()).unwrap();
                device.write(&buffer, 0, bytes).unwrap();
                buffer
            })
            .collect();
        let args: Vec<Arg<'_, HostBuffer>> = launch
            .args
            .iter()
            .zip(&buffers)
            .map(|(arg, buffer)| match *arg {
                Arg::In(_) => Arg::In(buffer),
                Arg::Out(_) => Arg::Out(buffer),
                Arg::U32(v) => Arg::U32(v),
                Arg::F32(v) => Arg::F32(v),
                Arg::F64(v) => Arg::F64(v),
            })
            .collect();
        let Some(shape) = launch.shape(device.block(256))? else { return Ok(()) };
        device.launch(launch.kernel, shape, &args)?;
        for ((arg, buffer), bytes) in launch.args.iter().zip(&buffers).zip(&mut held) {
            let Arg::Out(tensor) = arg else { continue };
            device.read(buffer, bytes)?;
            let wide: Vec<f32> = match tensor.dtype() {
                DType::F32 => bytemuck::cast_slice(bytes).to_vec(),
                _ => bytemuck::cast_slice::<u8, u16>(bytes).iter().map(|&bits| half_value(bits)).collect(),
            };
            let new = Tensor::from_vec(wide, tensor.shape(), &candle_core::Device::Cpu);
            new.and_then(|new| tensor.inplace_op1(&Fill(new.to_dtype(tensor.dtype())?))).unwrap();
        }
        Ok(())
    }
}

fn on_host() -> Option<EncodeDevice> {
    let kernels = OnHost(HostCuda::with_seed(5)?);
    Some(EncodeDevice::with_kernels(candle_core::Device::Cpu, Arc::new(kernels), "the kernels on the processor"))
}

fn case(name: &str) -> (ModelFolder, serde_json::Value) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/encoders").join(name);
    let expected = std::fs::read_to_string(folder.join("expected.json")).unwrap();
    (ModelFolder::open(&folder).unwrap(), serde_json::from_str(&expected).unwrap())
}

fn largest_difference(found: &[f32], expected: &serde_json::Value) -> f64 {
    let expected = expected.as_array().unwrap();
    assert_eq!(found.len(), expected.len());
    found.iter().zip(expected).map(|(a, b)| (f64::from(*a) - b.as_f64().unwrap()).abs()).fold(0.0, f64::max)
}

/// The way of a GPU through whole models, every family and every kind of position term: logits of Hugging Face transformers.
#[test]
fn logits_of_whole_models_are_those_of_transformers() {
    let Some(device) = on_host() else { return };
    for name in ["bert", "deberta_v3", "deberta_conv", "deberta_p2c", "deberta_no_buckets", "mpnet", "roberta"] {
        let (folder, expected) = case(name);
        let rows = expected["pairs"].as_array().unwrap();
        let pairs: Vec<(&str, &str)> =
            rows.iter().map(|r| (r["premise"].as_str().unwrap(), r["hypothesis"].as_str().unwrap())).collect();
        // Half precision rounds hidden states of size 1 to 2⁻¹¹, several times a layer.
        for (precision, tolerance) in [(Precision::F32, 2e-5), (Precision::F16, 1e-2)] {
            let model = CrossEncoder::load(&folder, &device, precision).unwrap();
            let scores = model.score(&pairs, &mut |_| {}).unwrap();
            for (i, row) in rows.iter().enumerate() {
                let difference = largest_difference(scores.row(i), &row["logits"]);
                assert!(difference < tolerance, "{name}, {precision:?}, pair {i}: {difference}");
            }
            let alone = model.score(&pairs[1..2], &mut |_| {}).unwrap();
            let near = alone.row(0).iter().zip(scores.row(1)).all(|(a, b)| f64::from((a - b).abs()) < tolerance / 2.0);
            assert!(near, "{name}, {precision:?}: alone and in a batch");
        }
    }
}

#[test]
fn vectors_of_whole_models_are_those_of_sentence_transformers() {
    let Some(device) = on_host() else { return };
    for name in ["bert_mean", "mpnet_mean"] {
        let (folder, expected) = case(name);
        let rows = expected["texts"].as_array().unwrap();
        let texts: Vec<&str> = rows.iter().map(|r| r["text"].as_str().unwrap()).collect();
        let model = Embedder::load(&folder, &device, Precision::F32).unwrap();
        let embedded = model.embed(&texts, &mut |_| {}).unwrap();
        for (row, vector) in rows.iter().zip(embedded.vectors.chunks_exact(model.dim())) {
            let difference = largest_difference(vector, &row["vector"]);
            assert!(difference < 2e-6, "{name}, {:?}: {difference}", row["text"]);
        }
    }
}

/// A precision that a place lacks is refused before weights are read.
#[test]
fn places_refuse_precisions_they_lack() {
    let (folder, _) = case("bert");
    let on_processor = CrossEncoder::load(&folder, &EncodeDevice::cpu(), Precision::F16).err().unwrap();
    assert!(on_processor.to_string().contains("precision f16 is for GPUs"), "{on_processor}");
    let Some(device) = on_host() else { return };
    let on_gpu = CrossEncoder::load(&folder, &device, Precision::Bf16).err().unwrap();
    assert!(on_gpu.to_string().contains("precision bf16 is for CPUs"), "{on_gpu}");
}
