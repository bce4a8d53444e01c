//! Every operation on every instruction set against the `f64` formulas of [`crate::math::encoder`], and bit for bit against each other,
//! alone and in a batch, on one thread and on several.

use candle_core::{Device, Tensor};
use proptest::prelude::*;

use super::elementary::{exp, gelu};
use super::lanes::{Body, LANES, Lanes, Unit, pair, run};
use super::panels::{COLUMNS, Panels};
use super::product::linear;
use super::{Activation, DisentangledTables, LayerNorm, PositionBias, Precision, Segments};
use crate::backend::cpu::simd::Level;
use crate::math::encoder as formulas;

/// Numbers between -1 and 1, the same each time.
fn numbers(seed: u32, n: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().copied().map(f64::from).collect()
}

/// The nearest bfloat16.
fn bf16(x: f32) -> f32 {
    f32::from_bits(pair(0.0, x).to_bits())
}

/// Runs on pools of one, two and three threads; all give the same.
fn on_any_threads(what: impl Fn() -> Vec<f32> + Send + Sync) -> Vec<f32> {
    let on = |n| rayon::ThreadPoolBuilder::new().num_threads(n).build().unwrap().install(&what);
    let (one, two, three) = (on(1), on(2), on(3));
    assert_eq!(bits(&one), bits(&two));
    assert_eq!(bits(&one), bits(&three));
    one
}

/// All functions of sixteen lanes, one after the other.
struct Everything<'a>(&'a [[f32; LANES]]);

impl Body for Everything<'_> {
    type Output = Vec<f32>;

    #[inline(always)]
    unsafe fn run<V: Lanes>(self) -> Vec<f32> {
        let mut out = Vec::new();
        let x = self.0;
        // SAFETY: the caller's; arrays hold sixteen numbers.
        unsafe {
            for (i, a) in x.iter().enumerate() {
                let (a, b) = (V::from_array(*a), V::from_array(x[(i + 1) % x.len()]));
                let c = V::from_array(x[(i + 2) % x.len()]);
                let all = [
                    a.add(b),
                    a.sub(b),
                    a.mul(b),
                    a.add_product(b, c),
                    a.max(b),
                    a.min(b),
                    a.abs(),
                    exp(a),
                    gelu(a),
                    a.zero_below(b, c),
                    a.look_up(&x[0]),
                    V::splat(a.sum()),
                    V::splat(a.largest()),
                    V::round_pairs(a, b),
                    V::join_pairs(a, b),
                    V::load_part(x[i].as_ptr(), i % 17),
                ];
                for v in all {
                    out.extend(v.to_array());
                }
                let acc = a
                    .zero_below(a.abs(), V::splat(f32::MIN_POSITIVE))
                    .add_pair_products(V::round_pairs(a, b), V::round_pairs(b, c));
                out.extend(acc.to_array());
                let mut part = [7.0; LANES];
                a.store_part(part.as_mut_ptr(), i % 17);
                out.extend(part);
            }
            for sixteen in x.chunks_exact(LANES) {
                let mut rows = [V::splat(0.0); LANES];
                for (row, from) in rows.iter_mut().zip(sixteen) {
                    *row = V::from_array(*from);
                }
                for row in V::transpose(rows) {
                    out.extend(row.to_array());
                }
            }
            for many in x.chunks_exact(2 * LANES - 1) {
                let mut rows = [x[0].as_ptr(); 2 * LANES - 1];
                for (row, from) in rows.iter_mut().zip(many) {
                    *row = from.as_ptr();
                }
                for row in V::slide(&rows) {
                    out.extend(row.to_array());
                }
            }
        }
        out
    }
}

#[test]
fn every_unit_gives_the_same_bits() {
    let mut x: Vec<[f32; LANES]> = Vec::new();
    for (i, scale) in [1.0, 8.0, 100.0, 1e4, 1e-3, 1e30, 1e-30, 1e-38].into_iter().enumerate() {
        x.extend(numbers(i as u32, 8 * LANES).as_chunks().0.iter().map(|row: &[f32; LANES]| row.map(|v| v * scale)));
    }
    let odd = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        87.33,
        -87.34,
        88.5,
        -5.99,
        6.0,
        1e38,
        -1e38,
        f32::MIN_POSITIVE,
        1e-40,
        2.5,
        0.375,
        3e-39,
    ];
    x.push(odd);
    x.push([f32::INFINITY; LANES]);
    x.push([f32::NEG_INFINITY; LANES]);
    let all: Vec<Vec<f32>> = Unit::all()
        .into_iter()
        // SAFETY: units of this processor.
        .map(|unit| unsafe { run(unit, Everything(&x)) })
        .collect();
    for (unit, found) in Unit::all().iter().zip(&all) {
        for (i, (a, b)) in all[0].iter().zip(found).enumerate() {
            let same = a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
            assert!(same, "{unit:?} at {i}: {a:e} is not {b:e}");
        }
        assert_eq!(all[0].len(), found.len());
    }
}

struct Map<'a>(&'a [f32], bool);

impl Body for Map<'_> {
    type Output = Vec<f32>;

    #[inline(always)]
    unsafe fn run<V: Lanes>(self) -> Vec<f32> {
        let mut out = Vec::new();
        for sixteen in self.0.as_chunks::<LANES>().0 {
            // SAFETY: the caller's.
            unsafe {
                let x = V::from_array(*sixteen);
                out.extend(if self.1 { gelu(x) } else { exp(x) }.to_array());
            }
        }
        out
    }
}

#[test]
fn exp_and_gelu_against_the_formulas() {
    let x: Vec<f32> = (-120_000..120_000).map(|i| i as f32 * 0.000_731).collect();
    // SAFETY: the unit of this processor.
    let (e, g) = unsafe { (run(Unit::detect(), Map(&x, false)), run(Unit::detect(), Map(&x, true))) };
    for (i, &x) in x.iter().enumerate() {
        let (wide, exact) = (f64::from(x), f64::from(x).exp());
        let error = (f64::from(e[i]) - exact).abs();
        assert!(error <= 1.3e-7 * exact || x < -87.3 && e[i] == 0.0, "exp({x}) is {}, not {exact}", e[i]);
        let exact = formulas::gelu(wide);
        let error = (f64::from(g[i]) - exact).abs();
        assert!(error <= 5e-8 + 1.2e-7 * exact.abs(), "gelu({x}) is {}, not {exact}", g[i]);
    }
    let nan = [f32::NAN; LANES];
    for unit in Unit::all() {
        // SAFETY: units of this processor.
        let found = unsafe { [run(unit, Map(&nan, false)), run(unit, Map(&nan, true))].concat() };
        assert!(found.iter().all(|v| v.is_nan()), "what is not a number stays so");
    }
}

#[test]
fn pairs_round_to_the_nearest_even() {
    let up = |x: f32| f32::from_bits(x.to_bits() + 0x8000);
    // Halfway between two neighbours: the even one.
    assert_eq!(bf16(up(1.0)), 1.0);
    assert_eq!(bf16(f32::from_bits(0x3f81_8000)), f32::from_bits(0x3f82_0000));
    assert_eq!(bf16(f32::from_bits(0x3f80_8001)), f32::from_bits(0x3f81_0000));
    assert_eq!(bf16(1e-40), 0.0);
    assert!(bf16(f32::NAN).is_nan() && bf16(f32::INFINITY).is_infinite());
}

struct Case {
    rows: usize,
    inputs: usize,
    outputs: usize,
    x: Vec<f32>,
    w: Vec<f32>,
    bias: Vec<f32>,
}

impl Case {
    fn new(rows: usize, inputs: usize, outputs: usize, scale: f32) -> Self {
        let x = numbers(1, rows * inputs).iter().map(|v| v * scale).collect();
        let mut bias = numbers(3, outputs);
        bias.resize(outputs.next_multiple_of(COLUMNS), 0.0);
        Self { rows, inputs, outputs, x, w: numbers(2, inputs * outputs), bias }
    }

    fn on(&self, unit: Unit, precision: Precision, act: Activation) -> Vec<f32> {
        linear(unit, &self.x, self.inputs, &Panels::new(&self.w, self.inputs, precision), &self.bias, act)
    }

    /// By the formula, and the sum of the products' magnitudes.
    fn exact(&self, precision: Precision, act: Activation, t: usize, o: usize) -> (f64, f64) {
        let round = |v: f32| f64::from(if precision == Precision::Bf16 { bf16(v) } else { v });
        let (x, w) = (&self.x[t * self.inputs..][..self.inputs], &self.w[o * self.inputs..][..self.inputs]);
        let products = x.iter().zip(w).map(|(x, w)| round(*x) * round(*w));
        let (sum, size) = products.fold((0.0, 0.0), |(sum, size), p| (sum + p, size + p.abs()));
        let sum = sum + f64::from(self.bias[o]);
        (if act == Activation::Gelu { formulas::gelu(sum) } else { sum }, size + 1.0)
    }

    fn check(&self) {
        for precision in [Precision::F32, Precision::Bf16] {
            for act in [Activation::None, Activation::Gelu] {
                let y = on_any_threads(|| self.on(Unit::detect(), precision, act));
                for (i, &found) in y.iter().enumerate() {
                    let (exact, size) = self.exact(precision, act, i / self.outputs, i % self.outputs);
                    let error = (f64::from(found) - exact).abs();
                    assert!(error <= 2e-6 * size, "{precision:?} {act:?} at {i}: {found} is not {exact}");
                }
                for unit in Unit::all() {
                    assert_eq!(bits(&self.on(unit, precision, act)), bits(&y), "{unit:?} {precision:?} {act:?}");
                }
                // A row alone has the bits that it has among others.
                for t in [0, self.rows / 2, self.rows - 1] {
                    let x = self.x[t * self.inputs..][..self.inputs].to_vec();
                    let alone = Self { rows: 1, x, w: self.w.clone(), bias: self.bias.clone(), ..*self };
                    let alone = alone.on(Unit::detect(), precision, act);
                    assert_eq!(bits(&alone), bits(&y[t * self.outputs..][..self.outputs]), "row {t}");
                }
            }
        }
    }
}

#[test]
fn linear_layers_of_several_blocks() {
    Case::new(31, 1100, 70, 1.0).check();
    Case::new(3, 2500, 33, 1.0).check();
    Case::new(300, 40, 3, 1.0).check();
    Case::new(1, 1, 1, 1.0).check();
    Case::new(17, 64, 32, 1e4).check();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn linear_layers_of_any_shape(rows in 1usize..60, inputs in 1usize..90, outputs in 1usize..80) {
        Case::new(rows, inputs, outputs, 1.0).check();
    }

    #[test]
    fn norms_of_any_shape(rows in 1usize..9, width in 1usize..80, scale in -4i32..5, seed in any::<u32>()) {
        let scale = 10f32.powi(scale);
        let x: Vec<f32> = numbers(seed, rows * width).iter().map(|v| v * scale).collect();
        let residual = numbers(seed ^ 1, rows * width);
        let (gamma, beta) = (numbers(5, width), numbers(6, width));
        let tensor = |v: &[f32]| Tensor::new(v, &Device::Cpu).unwrap();
        let norm = LayerNorm::new(&tensor(&gamma), &tensor(&beta), 1e-7).unwrap();
        let y = on_any_threads(|| norm.host_rows(Unit::detect(), &x, Some(&residual)).unwrap());
        for unit in Unit::all() {
            prop_assert_eq!(bits(&norm.host_rows(unit, &x, Some(&residual)).unwrap()), bits(&y));
        }
        for t in 0..rows {
            let row = t * width..(t + 1) * width;
            let sum: Vec<f32> = x[row.clone()].iter().zip(&residual[row.clone()]).map(|(x, r)| x + r).collect();
            prop_assert_eq!(bits(&norm.host_rows(Unit::detect(), &sum, None).unwrap()), bits(&y[row.clone()]));
            let exact = formulas::layer_norm(&wide(&sum), &wide(&gamma), &wide(&beta), 1e-7);
            let size = sum.iter().fold(0f32, |m, v| m.max(v.abs()));
            let mean = sum.iter().sum::<f32>() / width as f32;
            let spread = sum.iter().fold(0f32, |m, v| m.max((v - mean).abs()));
            // A row of equal numbers loses all digits to its mean.
            let tolerance = 1e-5 + 4e-6 * f64::from(size / spread.max(1e-30)).min(1e6);
            for (found, exact) in y[row].iter().zip(&exact) {
                prop_assert!(found.is_finite() && (f64::from(*found) - exact).abs() < tolerance, "{} is not {}", found, exact);
            }
        }
    }
}

/// One attention: heads, numbers a head, lengths of the texts.
struct Attend {
    heads: usize,
    dim: usize,
    lengths: Vec<usize>,
    qkv: Vec<f32>,
}

impl Attend {
    fn new(heads: usize, dim: usize, lengths: &[usize], scale: f32) -> Self {
        let n = lengths.iter().sum::<usize>() * 3 * heads * dim;
        let qkv = numbers(lengths.iter().sum::<usize>() as u32, n).iter().map(|v| v * scale).collect();
        Self { heads, dim, lengths: lengths.to_vec(), qkv }
    }

    fn on(&self, unit: Unit, bias: &PositionBias, precision: Precision) -> Vec<f32> {
        let segments = Segments::new(&self.lengths);
        super::attention::on_host(unit, &self.qkv, &segments, self.heads, bias, precision)
    }

    /// Text `i` alone.
    fn alone(&self, i: usize) -> Self {
        let width = 3 * self.heads * self.dim;
        let rows = Segments::new(&self.lengths).rows(i);
        let qkv = self.qkv[rows.start * width..rows.end * width].to_vec();
        Self { lengths: vec![self.lengths[i]], qkv, ..*self }
    }

    /// By the formulas, one row of one head.
    fn exact(&self, text: usize, head: usize, i: usize, bias: &PositionBias) -> Vec<f64> {
        let hidden = self.heads * self.dim;
        let rows = Segments::new(&self.lengths).rows(text);
        let part = |part: usize, t: usize| {
            wide(&self.qkv[(rows.start + t) * 3 * hidden + part * hidden + head * self.dim..][..self.dim])
        };
        let table = |t: Option<&Tensor>, row: usize| {
            t.map(|t| wide(&t.get(head).unwrap().get(row).unwrap().to_vec1::<f32>().unwrap()))
        };
        let scores: Vec<f64> = (0..rows.len())
            .map(|j| {
                let (q, k, d) = (part(0, i), part(1, j), i as i64 - j as i64);
                match bias {
                    PositionBias::None => formulas::disentangled_score(&q, &k, None, None),
                    PositionBias::Relative { table } => {
                        let span = (table.dims()[1] / 2) as i64;
                        let entry = (d.clamp(-span, span) + span) as usize;
                        let entry = table.get(head).unwrap().get(entry).unwrap().to_scalar::<f32>().unwrap();
                        formulas::disentangled_score(&q, &k, None, None) + f64::from(entry)
                    }
                    PositionBias::Disentangled(tables) => {
                        let (kr, qr) = (table(tables.keys(), tables.row(d)), table(tables.queries(), tables.row(d)));
                        formulas::disentangled_score(&q, &k, kr.as_deref(), qr.as_deref())
                    }
                }
            })
            .collect();
        let values: Vec<Vec<f64>> = (0..rows.len()).map(|j| part(2, j)).collect();
        formulas::attend(&scores, &values)
    }

    /// Rows of all texts near `at` of their length against the formulas; every unit, thread number and batch gives the same bits.
    fn check(&self, bias: &PositionBias, precision: Precision, tolerance: f64) {
        let out = on_any_threads(|| self.on(Unit::detect(), bias, precision));
        assert!(out.iter().all(|v| v.is_finite()));
        let hidden = self.heads * self.dim;
        let segments = Segments::new(&self.lengths);
        for text in 0..segments.len() {
            let rows = segments.rows(text);
            if rows.is_empty() {
                continue;
            }
            let own = &out[rows.start * hidden..rows.end * hidden];
            let alone = self.alone(text);
            for unit in Unit::all() {
                if unit.level != Level::Portable || rows.len() < 130 {
                    assert_eq!(bits(&alone.on(unit, bias, precision)), bits(own), "{unit:?}, text {text}");
                }
            }
            let n = rows.len();
            let mut some = vec![0, 1, n / 3, n / 2, 255, n.saturating_sub(2), n.saturating_sub(1)];
            some.retain(|&i| i < n);
            for i in some {
                for head in 0..self.heads {
                    let exact = self.exact(text, head, i, bias);
                    for (c, exact) in exact.iter().enumerate() {
                        let found = f64::from(own[i * hidden + head * self.dim + c]);
                        assert!((found - exact).abs() < tolerance, "text {text} row {i}: {found} is not {exact}");
                    }
                }
            }
        }
    }
}

/// Both tables, of `2·buckets` rows.
fn tables(
    heads: usize,
    dim: usize,
    buckets: usize,
    max_positions: usize,
    (c2p, p2c): (bool, bool),
) -> DisentangledTables {
    let table = |seed| {
        let shape = (heads, 2 * buckets, dim);
        Tensor::from_vec(numbers(seed, heads * 2 * buckets * dim), shape, &Device::Cpu).unwrap()
    };
    DisentangledTables::new(c2p.then(|| table(8)), p2c.then(|| table(9)), buckets, max_positions).unwrap()
}

#[test]
fn attention_of_deberta() {
    let all = tables(2, 64, 256, 512, (true, true));
    let case = Attend::new(2, 64, &[1, 7, 129, 300, 512, 30], 1.5);
    case.check(&PositionBias::Disentangled(&all), Precision::F32, 5e-6);
    case.check(&PositionBias::Disentangled(&all), Precision::Bf16, 3e-2);
}

#[test]
fn attention_beyond_the_positions_and_with_one_table() {
    let case = Attend::new(1, 20, &[3, 75, 260], 1.0);
    for which in [(true, true), (true, false), (false, true)] {
        for (buckets, max_positions) in [(8, 32), (16, 64), (4, 0), (100, 0), (2, 9), (1, 0), (5, 40)] {
            let tables = tables(1, 20, buckets, max_positions, which);
            case.check(&PositionBias::Disentangled(&tables), Precision::F32, 5e-6);
        }
    }
}

#[test]
fn attention_without_and_with_a_table_of_distances() {
    let case = Attend::new(3, 32, &[1, 40, 0, 129, 17], 1.0);
    case.check(&PositionBias::None, Precision::F32, 5e-6);
    case.check(&PositionBias::None, Precision::Bf16, 2e-2);
    for span in [0usize, 3, 60, 200] {
        let table = Tensor::from_vec(numbers(4, 3 * (2 * span + 1)), (3, 2 * span + 1), &Device::Cpu).unwrap();
        case.check(&PositionBias::Relative { table: &table }, Precision::F32, 5e-6);
    }
}

#[test]
fn huge_scores_give_no_nan() {
    // Scores of about ±1e4 and beyond: one weight is 1, the others 0.
    let all = tables(1, 16, 16, 64, (true, true));
    for scale in [50.0, 300.0] {
        let mut case = Attend::new(1, 16, &[5, 90], scale);
        // v stays near 1.
        for row in case.qkv.chunks_exact_mut(48) {
            row[32..].iter_mut().for_each(|v| *v /= scale);
        }
        case.check(&PositionBias::Disentangled(&all), Precision::F32, 2e-2);
        case.check(&PositionBias::None, Precision::F32, 2e-2);
    }
}

#[test]
fn what_is_not_a_number_is_not_hidden() {
    let mut case = Attend::new(1, 16, &[20], 1.0);
    case.qkv[48 * 3 + 16] = f32::NAN;
    let out = case.on(Unit::detect(), &PositionBias::None, Precision::F32);
    assert!(out.iter().all(|v| v.is_nan()), "every row reads the damaged key");
}
