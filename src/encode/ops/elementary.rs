//! eˣ and GELU of sixteen lanes, the same bits on every level.

use super::lanes::{LANES, Lanes};

/// 1.5·2²³: added to a number below 2²² it leaves the nearest integer in the lowest bits.
pub(super) const MAGIC: f32 = 12_582_912.0;

/// ln of the smallest normal number; below it eˣ is zero.
const LOWEST: f32 = -87.336_55;
/// Above it eˣ is cut; 2¹²⁸ does not fit.
const HIGHEST: f32 = 88.0;
/// ln 2 in two parts; the first has trailing zeros, so its product with an exponent is exact.
const LN2: [f32; 2] = [0.693_145_75, 1.428_606_8e-6];
/// (eʳ - 1 - r)/r² for |r| <= ln(2)/2, minimax.
const EXP: [f32; 5] = [0.5, 0.166_665_73, 0.041_666_55, 0.008_363_774, 0.001_392_692_7];

/// eˣ to 2 units in the last place; zero below [`LOWEST`]. What is not a number stays so.
///
/// # Safety
/// As of [`Lanes`].
#[inline(always)]
pub(super) unsafe fn exp<V: Lanes>(x: V) -> V {
    // SAFETY: the caller's.
    unsafe {
        let low = V::splat(LOWEST);
        let clamped = V::splat(HIGHEST).min(low.max(x));
        // x = n·ln 2 + r
        let shifted = V::splat(MAGIC).add_product(clamped, V::splat(std::f32::consts::LOG2_E));
        let n = shifted.sub(V::splat(MAGIC));
        let r = clamped.add_product(n, V::splat(-LN2[0])).add_product(n, V::splat(-LN2[1]));
        let mut p = V::splat(EXP[4]);
        for k in (0..4).rev() {
            p = V::splat(EXP[k]).add_product(p, r);
        }
        let p = V::splat(1.0).add(r.add_product(r.mul(r), p));
        p.mul(shifted.power_of_two()).zero_below(x, low)
    }
}

/// Intervals of |x| in a unit: sixteen cover 0 to 6.
const INTERVALS: f32 = 8.0 / 3.0;
/// |x|·(1 - Φ(|x|)) in the middle variable -1/2 .. 1/2 of each interval, minimax of degree 5 (error 1.3e-8); `[degree][interval]`.
#[rustfmt::skip]
const TAIL: [[f32; LANES]; 6] = [
    [0.079806425, 0.16137433, 0.16336004, 0.12426192, 0.07720925, 0.040383913, 0.018024351, 0.006912845, 0.0022871655, 0.0006543243, 0.0001620971, 3.480607e-05, 6.481989e-06, 1.047432e-06, 1.4690704e-07, 1.7887782e-08],
    [0.132051, 0.035744414, -0.025033528, -0.047476053, -0.04363131, -0.029437434, -0.015922045, -0.007138848, -0.00269672, -0.00086608226, -0.0002378017, -5.6026238e-05, -1.1355012e-05, -1.9833315e-06, -2.9895395e-07, -3.892832e-08],
    [-0.05415389, -0.040315446, -0.020264864, -0.0032883168, 0.0057250764, 0.0075363214, 0.0056682453, 0.0031760703, 0.0014236454, 0.0005260975, 0.00016282877, 4.260564e-05, 9.482185e-06, 1.8024659e-06, 2.9352654e-07, 4.1041403e-08],
    [0.0025611524, 0.0062020007, 0.0066111134, 0.0044290773, 0.0016418517, -0.00021884064, -0.00085065665, -0.00073871866, -0.000428208, -0.0001904585, -6.8278656e-05, -2.0202935e-05, -5.0009967e-06, -1.0445251e-06, -1.8514746e-07, -2.7967376e-08],
    [0.0012037042, 0.0005273469, -0.00028668332, -0.0007005451, -0.0006164581, -0.00030191275, -4.0650084e-05, 6.9190435e-05, 7.344807e-05, 4.4055534e-05, 1.9358731e-05, 6.7068404e-06, 1.8924917e-06, 4.427036e-07, 8.6795005e-08, 1.4366445e-08],
    [-7.934778e-05, -0.00017180658, -0.0001349427, -2.7904865e-05, 5.1589537e-05, 6.4472064e-05, 3.7152968e-05, 8.708622e-06, -4.520434e-06, -6.049728e-06, -3.6704882e-06, -1.5604871e-06, -5.1286486e-07, -1.3567843e-07, -2.9514407e-08, -5.347782e-09],
];

/// x·Φ(x) = max(x, 0) - |x|·(1 - Φ(|x|)), the last a table of polynomials: 3e-8 from the exact value below zero, a unit in the last place
/// or two above. What is not a number stays so.
///
/// # Safety
/// As of [`Lanes`].
#[inline(always)]
pub(super) unsafe fn gelu<V: Lanes>(x: V) -> V {
    // SAFETY: the caller's.
    unsafe {
        let t = V::splat(-0.5).add_product(x.abs(), V::splat(INTERVALS));
        let t = V::splat(15.499).min(t);
        let shifted = t.add(V::splat(MAGIC));
        let u = t.sub(shifted.sub(V::splat(MAGIC)));
        let mut p = shifted.look_up(&TAIL[5]);
        for k in (0..5).rev() {
            p = shifted.look_up(&TAIL[k]).add_product(p, u);
        }
        V::splat(0.0).max(x).sub(p)
    }
}
