//! [`Lanes`] in the registers of x86-64: one of 512 bits, or two of 256.

use std::arch::x86_64::{
    __m256, __m512, __m512bh, __m512i, _CMP_LT_OQ, _CMP_NLT_UQ, _MM_HINT_T0, _MM_HINT_T1, _mm_prefetch,
    _mm256_add_epi32, _mm256_add_ps, _mm256_andnot_ps, _mm256_blendv_ps, _mm256_castps_si256, _mm256_castsi256_ps,
    _mm256_cmp_ps, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_max_ps, _mm256_min_ps, _mm256_mul_ps,
    _mm256_permutevar8x32_ps, _mm256_set1_epi32, _mm256_set1_ps, _mm256_slli_epi32, _mm256_storeu_ps, _mm256_sub_ps,
    _mm512_abs_ps, _mm512_add_epi32, _mm512_add_ps, _mm512_and_si512, _mm512_castpd_ps, _mm512_castps_pd,
    _mm512_castps_si512, _mm512_castsi512_ps, _mm512_cmp_ps_mask, _mm512_cvtne2ps_pbh, _mm512_dpbf16_ps,
    _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_mask_blend_ps, _mm512_mask_loadu_ps, _mm512_mask_storeu_ps,
    _mm512_maskz_loadu_ps, _mm512_maskz_mov_ps, _mm512_max_ps, _mm512_min_ps, _mm512_mul_ps, _mm512_mullo_epi32,
    _mm512_permutexvar_epi16, _mm512_permutexvar_ps, _mm512_set_epi32, _mm512_set1_epi32, _mm512_set1_ps,
    _mm512_shuffle_f32x4, _mm512_slli_epi32, _mm512_storeu_ps, _mm512_sub_ps, _mm512_unpackhi_pd, _mm512_unpackhi_ps,
    _mm512_unpacklo_pd, _mm512_unpacklo_ps,
};

use super::lanes::{LANES, Lanes};

/// One register of 512 bits; `PAIRS`: products of bfloat16 pairs are an instruction.
#[derive(Clone, Copy)]
pub(super) struct Avx512<const PAIRS: bool>(__m512);

/// The first `n` lanes.
#[inline(always)]
fn first(n: usize) -> u16 {
    if n >= LANES { u16::MAX } else { (1 << n) - 1 }
}

// SAFETY of all methods: the trait's, that they are reached only from code compiled for these instructions.
impl<const PAIRS: bool> Lanes for Avx512<PAIRS> {
    const ROWS: usize = 14;
    const VECTORS: usize = 2;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        // SAFETY: the trait's.
        Self(unsafe { _mm512_set1_ps(x) })
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the trait's.
        Self(unsafe { _mm512_loadu_ps(from) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the trait's.
        unsafe { _mm512_storeu_ps(to, self.0) }
    }

    #[inline(always)]
    unsafe fn load_part(from: *const f32, n: usize) -> Self {
        // SAFETY: the trait's; masked lanes are not read.
        Self(unsafe { _mm512_maskz_loadu_ps(first(n), from) })
    }

    #[inline(always)]
    unsafe fn store_part(self, to: *mut f32, n: usize) {
        // SAFETY: the trait's; masked lanes are not written.
        unsafe { _mm512_mask_storeu_ps(to, first(n), self.0) }
    }

    #[inline(always)]
    unsafe fn fetch<const NEAR: bool>(from: *const f32) {
        // SAFETY: the trait's; a hint reads nothing.
        unsafe {
            if NEAR {
                _mm_prefetch::<_MM_HINT_T0>(from.cast());
            } else {
                _mm_prefetch::<_MM_HINT_T1>(from.cast());
            }
        }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: the trait's.
        Self(unsafe { _mm512_add_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        // SAFETY: the trait's.
        Self(unsafe { _mm512_sub_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        // SAFETY: the trait's.
        Self(unsafe { _mm512_mul_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn add_product(self, a: Self, b: Self) -> Self {
        // SAFETY: the trait's.
        Self(unsafe { _mm512_fmadd_ps(a.0, b.0, self.0) })
    }

    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        // SAFETY: the trait's.
        Self(unsafe { _mm512_max_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        // SAFETY: the trait's.
        Self(unsafe { _mm512_min_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn abs(self) -> Self {
        // SAFETY: the trait's.
        Self(unsafe { _mm512_abs_ps(self.0) })
    }

    #[inline(always)]
    unsafe fn power_of_two(self) -> Self {
        // SAFETY: the trait's.
        Self(unsafe {
            let biased = _mm512_add_epi32(_mm512_castps_si512(self.0), _mm512_set1_epi32(127));
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(biased))
        })
    }

    #[inline(always)]
    unsafe fn look_up(self, table: &[f32; LANES]) -> Self {
        // SAFETY: the trait's; the table holds the 16 numbers that are read.
        Self(unsafe { _mm512_permutexvar_ps(_mm512_castps_si512(self.0), _mm512_loadu_ps(table.as_ptr())) })
    }

    #[inline(always)]
    unsafe fn zero_below(self, x: Self, bound: Self) -> Self {
        // SAFETY: the trait's.
        Self(unsafe { _mm512_maskz_mov_ps(_mm512_cmp_ps_mask::<_CMP_NLT_UQ>(x.0, bound.0), self.0) })
    }

    #[inline(always)]
    unsafe fn add_pair_products(self, a: Self, b: Self) -> Self {
        // SAFETY: the trait's; the registers are reinterpreted, of equal size.
        unsafe {
            if PAIRS {
                let (a, b) =
                    (std::mem::transmute::<__m512, __m512bh>(a.0), std::mem::transmute::<__m512, __m512bh>(b.0));
                return Self(_mm512_dpbf16_ps(self.0, a, b));
            }
            let upper = _mm512_set1_epi32(0xffff_0000u32.cast_signed());
            let (a, b) = (_mm512_castps_si512(a.0), _mm512_castps_si512(b.0));
            let (a1, b1) = (_mm512_and_si512(a, upper), _mm512_and_si512(b, upper));
            let (a0, b0) = (_mm512_slli_epi32::<16>(a), _mm512_slli_epi32::<16>(b));
            let mut acc = self.0;
            for (a, b) in [(a1, b1), (a0, b0)] {
                acc = _mm512_fmadd_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), acc);
                let keep = _mm512_cmp_ps_mask::<_CMP_NLT_UQ>(_mm512_abs_ps(acc), _mm512_set1_ps(f32::MIN_POSITIVE));
                let zero = _mm512_and_si512(_mm512_castps_si512(acc), _mm512_set1_epi32(i32::MIN));
                acc = _mm512_mask_blend_ps(keep, _mm512_castsi512_ps(zero), acc);
            }
            Self(acc)
        }
    }

    #[inline(always)]
    unsafe fn round_pairs(first: Self, second: Self) -> Self {
        // SAFETY: the trait's; the registers are reinterpreted, of equal size.
        unsafe {
            if PAIRS {
                return Self(std::mem::transmute::<__m512bh, __m512>(_mm512_cvtne2ps_pbh(second.0, first.0)));
            }
            let (first, second) = (first.to_array(), second.to_array());
            let mut out = [0.0; LANES];
            for l in 0..LANES / 2 {
                out[l] = super::lanes::pair(first[2 * l], first[2 * l + 1]);
                out[l + LANES / 2] = super::lanes::pair(second[2 * l], second[2 * l + 1]);
            }
            Self::from_array(out)
        }
    }

    #[inline(always)]
    unsafe fn join_pairs(first: Self, second: Self) -> Self {
        // SAFETY: the trait's; the registers are reinterpreted, of equal size.
        unsafe {
            if PAIRS {
                let both = std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(second.0, first.0));
                // 0, 16, 1, 17, …
                let order = _mm512_add_epi32(
                    _mm512_set1_epi32(0x0010_0000),
                    _mm512_mullo_epi32(
                        _mm512_set1_epi32(0x0001_0001),
                        _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                    ),
                );
                return Self(_mm512_castsi512_ps(_mm512_permutexvar_epi16(order, both)));
            }
            let (first, second) = (first.to_array(), second.to_array());
            let mut out = [0.0; LANES];
            for l in 0..LANES {
                out[l] = super::lanes::pair(first[l], second[l]);
            }
            Self::from_array(out)
        }
    }

    #[inline(always)]
    unsafe fn transpose(rows: [Self; LANES]) -> [Self; LANES] {
        // Pairs, fours, then quarters of registers.
        // SAFETY: the trait's.
        unsafe {
            let mut a = [rows[0].0; LANES];
            for i in 0..LANES {
                a[i] = rows[i].0;
            }
            for i in 0..LANES / 2 {
                let (x, y) = (a[2 * i], a[2 * i + 1]);
                a[2 * i] = _mm512_unpacklo_ps(x, y);
                a[2 * i + 1] = _mm512_unpackhi_ps(x, y);
            }
            let mut b = a;
            for i in 0..LANES / 4 {
                let (x0, x1) = (_mm512_castps_pd(a[4 * i]), _mm512_castps_pd(a[4 * i + 1]));
                let (x2, x3) = (_mm512_castps_pd(a[4 * i + 2]), _mm512_castps_pd(a[4 * i + 3]));
                b[4 * i] = _mm512_castpd_ps(_mm512_unpacklo_pd(x0, x2));
                b[4 * i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(x0, x2));
                b[4 * i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(x1, x3));
                b[4 * i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(x1, x3));
            }
            // b[4g + c] holds column c + 4q of rows 4g .. 4g + 4 in its quarter q.
            for c in 0..4 {
                let (g0, g1, g2, g3) = (b[c], b[4 + c], b[8 + c], b[12 + c]);
                let low01 = _mm512_shuffle_f32x4::<0x44>(g0, g1);
                let high01 = _mm512_shuffle_f32x4::<0xee>(g0, g1);
                let low23 = _mm512_shuffle_f32x4::<0x44>(g2, g3);
                let high23 = _mm512_shuffle_f32x4::<0xee>(g2, g3);
                a[c] = _mm512_shuffle_f32x4::<0x88>(low01, low23);
                a[4 + c] = _mm512_shuffle_f32x4::<0xdd>(low01, low23);
                a[8 + c] = _mm512_shuffle_f32x4::<0x88>(high01, high23);
                a[12 + c] = _mm512_shuffle_f32x4::<0xdd>(high01, high23);
            }
            let mut out = rows;
            for i in 0..LANES {
                out[i] = Self(a[i]);
            }
            out
        }
    }

    #[inline(always)]
    unsafe fn slide(rows: &[*const f32; 2 * LANES - 1]) -> [Self; LANES] {
        // Lane l goes down by l rows: by 8, 4, 2 and 1 where the bit of l is set.
        // SAFETY: the trait's; every row holds 16 numbers.
        unsafe {
            let mut v = [_mm512_set1_ps(0.0); 2 * LANES - 1];
            for r in 8..2 * LANES - 1 {
                v[r] = _mm512_mask_loadu_ps(_mm512_loadu_ps(rows[r]), 0xff00, rows[r - 8]);
            }
            for r in (12..2 * LANES - 1).rev() {
                v[r] = _mm512_mask_blend_ps(0xf0f0, v[r], v[r - 4]);
            }
            for r in (14..2 * LANES - 1).rev() {
                v[r] = _mm512_mask_blend_ps(0xcccc, v[r], v[r - 2]);
            }
            for r in (15..2 * LANES - 1).rev() {
                v[r] = _mm512_mask_blend_ps(0xaaaa, v[r], v[r - 1]);
            }
            let mut out = [Self(v[0]); LANES];
            for i in 0..LANES {
                out[i] = Self(v[i + LANES - 1]);
            }
            out
        }
    }
}

/// Two registers of 256 bits.
#[derive(Clone, Copy)]
pub(super) struct Avx2(__m256, __m256);

impl Avx2 {
    /// # Safety
    /// As the trait's.
    #[inline(always)]
    unsafe fn half_power(x: __m256) -> __m256 {
        // SAFETY: the caller's.
        unsafe {
            let biased = _mm256_add_epi32(_mm256_castps_si256(x), _mm256_set1_epi32(127));
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased))
        }
    }

    /// # Safety
    /// As the trait's.
    #[inline(always)]
    unsafe fn half_look_up(x: __m256, table: &[f32; LANES]) -> __m256 {
        // SAFETY: the caller's; both halves of the table are there.
        unsafe {
            let index = _mm256_castps_si256(x);
            let low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table.as_ptr()), index);
            let high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table.as_ptr().add(8)), index);
            _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32::<28>(index)))
        }
    }
}

// SAFETY of all methods: as above.
impl Lanes for Avx2 {
    const ROWS: usize = 6;
    const VECTORS: usize = 1;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        // SAFETY: the trait's.
        unsafe { Self(_mm256_set1_ps(x), _mm256_set1_ps(x)) }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the trait's.
        unsafe { Self(_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the trait's.
        unsafe {
            _mm256_storeu_ps(to, self.0);
            _mm256_storeu_ps(to.add(8), self.1);
        }
    }

    #[inline(always)]
    unsafe fn load_part(from: *const f32, n: usize) -> Self {
        let mut out = [0.0; LANES];
        // SAFETY: the trait's: n <= 16 numbers are there.
        unsafe {
            std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), n);
            Self::load(out.as_ptr())
        }
    }

    #[inline(always)]
    unsafe fn store_part(self, to: *mut f32, n: usize) {
        // SAFETY: the trait's: n <= 16 numbers fit.
        unsafe { std::ptr::copy_nonoverlapping(self.to_array().as_ptr(), to, n) };
    }

    #[inline(always)]
    unsafe fn fetch<const NEAR: bool>(from: *const f32) {
        // SAFETY: the trait's; a hint reads nothing.
        unsafe {
            if NEAR {
                _mm_prefetch::<_MM_HINT_T0>(from.cast());
            } else {
                _mm_prefetch::<_MM_HINT_T1>(from.cast());
            }
        }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: the trait's.
        unsafe { Self(_mm256_add_ps(self.0, other.0), _mm256_add_ps(self.1, other.1)) }
    }

    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        // SAFETY: the trait's.
        unsafe { Self(_mm256_sub_ps(self.0, other.0), _mm256_sub_ps(self.1, other.1)) }
    }

    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        // SAFETY: the trait's.
        unsafe { Self(_mm256_mul_ps(self.0, other.0), _mm256_mul_ps(self.1, other.1)) }
    }

    #[inline(always)]
    unsafe fn add_product(self, a: Self, b: Self) -> Self {
        // SAFETY: the trait's.
        unsafe { Self(_mm256_fmadd_ps(a.0, b.0, self.0), _mm256_fmadd_ps(a.1, b.1, self.1)) }
    }

    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        // SAFETY: the trait's.
        unsafe { Self(_mm256_max_ps(self.0, other.0), _mm256_max_ps(self.1, other.1)) }
    }

    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        // SAFETY: the trait's.
        unsafe { Self(_mm256_min_ps(self.0, other.0), _mm256_min_ps(self.1, other.1)) }
    }

    #[inline(always)]
    unsafe fn abs(self) -> Self {
        // SAFETY: the trait's.
        unsafe {
            let sign = _mm256_set1_ps(-0.0);
            Self(_mm256_andnot_ps(sign, self.0), _mm256_andnot_ps(sign, self.1))
        }
    }

    #[inline(always)]
    unsafe fn power_of_two(self) -> Self {
        // SAFETY: the trait's.
        unsafe { Self(Self::half_power(self.0), Self::half_power(self.1)) }
    }

    #[inline(always)]
    unsafe fn look_up(self, table: &[f32; LANES]) -> Self {
        // SAFETY: the trait's.
        unsafe { Self(Self::half_look_up(self.0, table), Self::half_look_up(self.1, table)) }
    }

    #[inline(always)]
    unsafe fn zero_below(self, x: Self, bound: Self) -> Self {
        // SAFETY: the trait's.
        unsafe {
            Self(
                _mm256_andnot_ps(_mm256_cmp_ps::<_CMP_LT_OQ>(x.0, bound.0), self.0),
                _mm256_andnot_ps(_mm256_cmp_ps::<_CMP_LT_OQ>(x.1, bound.1), self.1),
            )
        }
    }
}
