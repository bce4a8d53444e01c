//! Sixteen `f32` lanes in whatever registers a processor has, and one way to run a body under them.
//!
//! Every operation gives the same bits on every level, so a body written over [`Lanes`] does too: the level changes speed only.

use std::array::from_fn;
use std::sync::OnceLock;

use crate::backend::cpu::simd::Level;

/// Lanes of one vector.
pub(super) const LANES: usize = 16;

/// The instructions an operation is compiled for: a [`Level`], and whether products of bfloat16 pairs are among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unit {
    pub(super) level: Level,
    pub(super) pairs: bool,
}

impl Unit {
    /// The best of this processor.
    pub(super) fn detect() -> Self {
        static UNIT: OnceLock<Unit> = OnceLock::new();
        *UNIT.get_or_init(|| {
            let level = Level::detect();
            #[cfg(target_arch = "x86_64")]
            let pairs = level == Level::Avx512
                && std::arch::is_x86_feature_detected!("avx512bf16")
                && std::arch::is_x86_feature_detected!("avx512vl");
            #[cfg(not(target_arch = "x86_64"))]
            let pairs = false;
            Unit { level, pairs }
        })
    }

    /// Every unit of this processor, for tests.
    #[cfg(test)]
    pub(super) fn all() -> Vec<Self> {
        let best = Self::detect();
        let levels = [Level::Portable, Level::Avx2, Level::Avx512].into_iter().filter(|&l| l <= best.level);
        let mut all: Vec<_> = levels.map(|level| Unit { level, pairs: false }).collect();
        if best.pairs {
            all.push(best);
        }
        all
    }
}

/// Work to be compiled for each unit. `run` must be `#[inline(always)]`, and so must all that it calls per number, without closures:
/// only then are they compiled for the unit's instructions.
pub(super) trait Body {
    type Output;
    /// # Safety
    /// The processor has the instructions of `V`; and what the body asks of its own fields.
    unsafe fn run<V: Lanes>(self) -> Self::Output;
}

/// Runs a body under a unit's instructions.
///
/// # Safety
/// `unit` comes from [`Unit::detect`] or [`Unit::all`]; and what the body asks of its fields.
pub(super) unsafe fn run<B: Body>(unit: Unit, body: B) -> B::Output {
    // SAFETY: the unit was detected, and the body's needs are the caller's.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        match unit {
            Unit { level: Level::Avx512, pairs: true } => return run_avx512_pairs(body),
            Unit { level: Level::Avx512, pairs: false } => return run_avx512(body),
            Unit { level: Level::Avx2, .. } => return run_avx2(body),
            Unit { level: Level::Portable, .. } => {}
        }
        body.run::<[f32; LANES]>()
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16,avx2,fma")]
unsafe fn run_avx512_pairs<B: Body>(body: B) -> B::Output {
    // SAFETY: as in `run`.
    unsafe { body.run::<super::lanes_x86::Avx512<true>>() }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx2,fma")]
unsafe fn run_avx512<B: Body>(body: B) -> B::Output {
    // SAFETY: as in `run`.
    unsafe { body.run::<super::lanes_x86::Avx512<false>>() }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn run_avx2<B: Body>(body: B) -> B::Output {
    // SAFETY: as in `run`.
    unsafe { body.run::<super::lanes_x86::Avx2>() }
}

/// Sixteen lanes. All implementations give the same bits.
///
/// # Safety
/// Methods are called only from code compiled for the implementation's instructions; pointers are valid for what is read or written.
pub(super) trait Lanes: Copy {
    /// Rows of a register tile, and its vectors a row.
    const ROWS: usize;
    const VECTORS: usize;

    unsafe fn splat(x: f32) -> Self;
    unsafe fn load(from: *const f32) -> Self;
    unsafe fn store(self, to: *mut f32);
    /// The first `n` lanes, zero in the others.
    unsafe fn load_part(from: *const f32, n: usize) -> Self;
    /// Writes the first `n` lanes.
    unsafe fn store_part(self, to: *mut f32, n: usize);

    unsafe fn add(self, other: Self) -> Self;
    unsafe fn sub(self, other: Self) -> Self;
    unsafe fn mul(self, other: Self) -> Self;
    /// self + a·b, rounded once.
    unsafe fn add_product(self, a: Self, b: Self) -> Self;
    /// The larger; `other` when either is not a number.
    unsafe fn max(self, other: Self) -> Self;
    /// The smaller; `other` when either is not a number.
    unsafe fn min(self, other: Self) -> Self;
    unsafe fn abs(self) -> Self;
    /// 2ⁿ, where n is in the lowest bits of the lane as [`super::elementary::MAGIC`] leaves it.
    unsafe fn power_of_two(self) -> Self;
    /// `table[n]`, where n is in the lowest four bits of the lane.
    unsafe fn look_up(self, table: &[f32; LANES]) -> Self;
    /// Zero in lanes where x < bound.
    unsafe fn zero_below(self, x: Self, bound: Self) -> Self;

    /// Hints that the line at `from` is needed soon (`NEAR`: in the first-level cache). Any address will do.
    #[inline(always)]
    unsafe fn fetch<const NEAR: bool>(_from: *const f32) {}

    #[inline(always)]
    unsafe fn to_array(self) -> [f32; LANES] {
        let mut out = [0.0; LANES];
        // SAFETY: the array takes what is written; the rest is the caller's.
        unsafe { self.store(out.as_mut_ptr()) };
        out
    }

    #[inline(always)]
    unsafe fn from_array(from: [f32; LANES]) -> Self {
        // SAFETY: the array holds what is read; the rest is the caller's.
        unsafe { Self::load(from.as_ptr()) }
    }

    /// self + a₁·b₁ + a₀·b₀ of pairs of bfloat16 (a₀ in the lower half of a lane): two fused steps, first the upper product, then the
    /// lower, subnormal results flushed to zero. These are the sums of the `vdpbf16ps` instruction for a `self` that is not subnormal,
    /// which these sums never are.
    #[inline(always)]
    unsafe fn add_pair_products(self, a: Self, b: Self) -> Self {
        // SAFETY: the caller's.
        let (mut acc, a, b) = unsafe { (self.to_array(), a.to_array(), b.to_array()) };
        for l in 0..LANES {
            let (a, b) = (a[l].to_bits(), b[l].to_bits());
            let upper = |w: u32| f32::from_bits(w & 0xffff_0000);
            let lower = |w: u32| f32::from_bits(w << 16);
            acc[l] = flushed(lower(a).mul_add(lower(b), flushed(upper(a).mul_add(upper(b), acc[l]))));
        }
        // SAFETY: the caller's.
        unsafe { Self::from_array(acc) }
    }

    /// Thirty-two consecutive numbers as sixteen pairs of bfloat16: nearest, ties to even, subnormals as zero.
    #[inline(always)]
    unsafe fn round_pairs(first: Self, second: Self) -> Self {
        // SAFETY: the caller's.
        let (first, second) = unsafe { (first.to_array(), second.to_array()) };
        let mut out = [0.0; LANES];
        for l in 0..LANES / 2 {
            out[l] = pair(first[2 * l], first[2 * l + 1]);
            out[l + LANES / 2] = pair(second[2 * l], second[2 * l + 1]);
        }
        // SAFETY: the caller's.
        unsafe { Self::from_array(out) }
    }

    /// Pairs of bfloat16 of two rows: lane l of `first` below lane l of `second`, rounded as in [`Lanes::round_pairs`].
    #[inline(always)]
    unsafe fn join_pairs(first: Self, second: Self) -> Self {
        // SAFETY: the caller's.
        let (first, second) = unsafe { (first.to_array(), second.to_array()) };
        let mut out = [0.0; LANES];
        for l in 0..LANES {
            out[l] = pair(first[l], second[l]);
        }
        // SAFETY: the caller's.
        unsafe { Self::from_array(out) }
    }

    /// `out[i][l] = rows[l][i]`.
    #[inline(always)]
    unsafe fn transpose(rows: [Self; LANES]) -> [Self; LANES] {
        let mut from = [[0.0; LANES]; LANES];
        let mut out = rows;
        // SAFETY: the caller's; the arrays take and hold what is written and read.
        unsafe {
            for l in 0..LANES {
                rows[l].store(from[l].as_mut_ptr());
            }
            for i in 0..LANES {
                let mut row = [0.0; LANES];
                for l in 0..LANES {
                    row[l] = from[l][i];
                }
                out[i] = Self::load(row.as_ptr());
            }
        }
        out
    }

    /// Lanes of rows that slide: `out[i][l] = rows[i + 15 - l][l]`.
    #[inline(always)]
    unsafe fn slide(rows: &[*const f32; 2 * LANES - 1]) -> [Self; LANES] {
        // SAFETY: the caller's; every row holds sixteen numbers.
        unsafe {
            let mut out = [Self::splat(0.0); LANES];
            for i in 0..LANES {
                let mut row = [0.0; LANES];
                for l in 0..LANES {
                    row[l] = *rows[i + LANES - 1 - l].add(l);
                }
                out[i] = Self::load(row.as_ptr());
            }
            out
        }
    }

    /// All lanes added as a fixed tree (16 → 8 → 4 → 2 → 1).
    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        // SAFETY: the caller's.
        let mut acc = unsafe { self.to_array() };
        let mut width = LANES / 2;
        while width > 0 {
            for l in 0..width {
                acc[l] += acc[l + width];
            }
            width /= 2;
        }
        acc[0]
    }

    /// The largest lane; lanes after the first that are not numbers are passed over.
    #[inline(always)]
    unsafe fn largest(self) -> f32 {
        // SAFETY: the caller's.
        let acc = unsafe { self.to_array() };
        let mut largest = acc[0];
        for x in acc {
            if x > largest {
                largest = x;
            }
        }
        largest
    }
}

/// Zero instead of a subnormal number.
#[inline(always)]
fn flushed(x: f32) -> f32 {
    if x.abs() < f32::MIN_POSITIVE { f32::from_bits(x.to_bits() & 0x8000_0000) } else { x }
}

/// Two numbers as bfloat16 in one word, the first in the lower half.
#[inline(always)]
pub(super) fn pair(first: f32, second: f32) -> f32 {
    f32::from_bits(bf16(first) >> 16 | bf16(second) & 0xffff_0000)
}

/// The nearest bfloat16 in the upper half of the word.
#[inline(always)]
fn bf16(x: f32) -> u32 {
    let bits = flushed(x).to_bits();
    if x.is_nan() { bits | 0x0040_0000 } else { bits.wrapping_add(0x7fff + (bits >> 16 & 1)) }
}

impl Lanes for [f32; LANES] {
    const ROWS: usize = 6;
    const VECTORS: usize = 1;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        [x; LANES]
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller's.
        unsafe { from.cast::<Self>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller's.
        unsafe { to.cast::<Self>().write_unaligned(self) }
    }

    #[inline(always)]
    unsafe fn load_part(from: *const f32, n: usize) -> Self {
        let mut out = [0.0; LANES];
        // SAFETY: the caller's: n <= 16 numbers are there.
        unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), n) };
        out
    }

    #[inline(always)]
    unsafe fn store_part(self, to: *mut f32, n: usize) {
        // SAFETY: the caller's: n <= 16 numbers fit.
        unsafe { std::ptr::copy_nonoverlapping(self.as_ptr(), to, n) };
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        from_fn(|l| self[l] + other[l])
    }

    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        from_fn(|l| self[l] - other[l])
    }

    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        from_fn(|l| self[l] * other[l])
    }

    #[inline(always)]
    unsafe fn add_product(self, a: Self, b: Self) -> Self {
        from_fn(|l| a[l].mul_add(b[l], self[l]))
    }

    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        from_fn(|l| if self[l] > other[l] { self[l] } else { other[l] })
    }

    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        from_fn(|l| if self[l] < other[l] { self[l] } else { other[l] })
    }

    #[inline(always)]
    unsafe fn abs(self) -> Self {
        self.map(f32::abs)
    }

    #[inline(always)]
    unsafe fn power_of_two(self) -> Self {
        self.map(|x| f32::from_bits(x.to_bits().wrapping_add(127) << 23))
    }

    #[inline(always)]
    unsafe fn look_up(self, table: &[f32; LANES]) -> Self {
        self.map(|x| table[x.to_bits() as usize % LANES])
    }

    #[inline(always)]
    unsafe fn zero_below(self, x: Self, bound: Self) -> Self {
        from_fn(|l| if x[l] < bound[l] { 0.0 } else { self[l] })
    }
}
