//! Launches of the encoders' kernels, `kernels/encoder_elementwise.cu` and `kernels/encoder_attention.cu`: which kernel, in what shape,
//! with which arguments.
//!
//! In: buffers of whoever runs them (the encoders' tensors on a GPU, a test's on the processor) and sizes. Out: [`Launch`]es. Numbers in
//! memory are `f32` or `f16`; sums, scores and norms are `f32`.

use crate::Result;
use crate::backend::device::kernel as k;
use crate::backend::device::{Arg, Device, Kernel, Shape, index};

/// Numbers of tensors in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    /// 32 bits.
    F32,
    /// 16 bits, IEEE.
    F16,
}

/// How many blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Grid {
    Blocks(usize, usize),
    /// A thread an item.
    Items(usize),
}

/// One launch, ready for a device with buffers `B`.
#[derive(Debug)]
pub struct Launch<'a, B> {
    /// Which kernel.
    pub kernel: Kernel,
    /// Its arguments.
    pub args: Vec<Arg<'a, B>>,
    grid: Grid,
}

/// Threads of a block.
pub(crate) const BLOCK: u32 = 256;
/// `SCORE_TILE` in `kernels/encoder_attention.cu`.
pub(crate) const SCORE_TILE: usize = 32;

impl<B> Launch<'_, B> {
    /// Its shape with so many threads a block; `None` when there is nothing to do.
    ///
    /// # Errors
    /// More blocks than a grid has.
    pub fn shape(&self, block: u32) -> Result<Option<Shape>> {
        let (x, y) = match self.grid {
            Grid::Blocks(x, y) => (x, y),
            Grid::Items(n) => (n.div_ceil(block as usize), 1),
        };
        if x == 0 || y == 0 {
            return Ok(None);
        }
        Ok(Some(Shape { grid: (index(x)?, index(y)?), block }))
    }

    /// Starts it on a device that holds its buffers.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start<D: Device<Buffer = B>>(&self, device: &D) -> Result<()> {
        match self.shape(device.block(BLOCK))? {
            Some(shape) => device.launch(self.kernel, shape, &self.args),
            None => Ok(()),
        }
    }
}

fn by(element: Element, f32: Kernel, f16: Kernel) -> Kernel {
    match element {
        Element::F32 => f32,
        Element::F16 => f16,
    }
}

/// y = x + bias, with `gelu` followed by the erf GELU: x and y `[rows, width]`, bias `[width]` in `f32`.
///
/// # Errors
/// Sizes that the kernels cannot number.
pub fn bias<'a, B>(
    element: Element,
    x: &'a B,
    bias: &'a B,
    (rows, width): (usize, usize),
    gelu: bool,
    y: &'a B,
) -> Result<Launch<'a, B>> {
    let args = vec![
        Arg::In(x),
        Arg::In(bias),
        Arg::U32(index(rows)?),
        Arg::U32(index(width)?),
        Arg::U32(u32::from(gelu)),
        Arg::Out(y),
    ];
    Ok(Launch { kernel: by(element, k::ENCODER_BIAS_F32, k::ENCODER_BIAS_F16), args, grid: Grid::Items(rows * width) })
}

/// γ and β of a layer normalisation, `[width]` in `f32`, and ε.
#[derive(Debug)]
pub struct Norm<'a, B> {
    /// γ
    pub gamma: &'a B,
    /// β
    pub beta: &'a B,
    /// ε
    pub eps: f32,
}

/// y = LN(x + residual): all `[rows, width]`.
///
/// # Errors
/// Sizes that the kernels cannot number.
pub fn norm<'a, B>(
    element: Element,
    x: &'a B,
    residual: Option<&'a B>,
    norm: &Norm<'a, B>,
    (rows, width): (usize, usize),
    y: &'a B,
) -> Result<Launch<'a, B>> {
    let args = vec![
        Arg::In(x),
        Arg::In(residual.unwrap_or(x)),
        Arg::U32(u32::from(residual.is_some())),
        Arg::In(norm.gamma),
        Arg::In(norm.beta),
        Arg::U32(index(width)?),
        Arg::F32(norm.eps),
        Arg::Out(y),
    ];
    Ok(Launch { kernel: by(element, k::ENCODER_NORM_F32, k::ENCODER_NORM_F16), args, grid: Grid::Blocks(rows, 1) })
}

/// Packed texts as attention sees them.
#[derive(Debug)]
pub struct Texts<'a, B> {
    /// Where each text starts, `[texts + 1]`.
    pub offsets: &'a B,
    /// How many.
    pub texts: usize,
    /// Tokens of all.
    pub tokens: usize,
    /// Tokens of the longest.
    pub length: usize,
    /// Heads.
    pub heads: usize,
    /// Numbers of a head.
    pub head_dim: usize,
}

/// Heads apart: qkv `[tokens, 3·heads·head_dim]` to q·scale, k and v, each `[heads, texts, length, head_dim]`, 0 past a text's end.
///
/// # Errors
/// Sizes that the kernels cannot number.
pub fn split<'a, B>(
    element: Element,
    qkv: &'a B,
    texts: &Texts<'a, B>,
    scale: f32,
    [q, key, v]: [&'a B; 3],
) -> Result<Launch<'a, B>> {
    let args = vec![
        Arg::In(qkv),
        Arg::In(texts.offsets),
        Arg::U32(index(texts.texts)?),
        Arg::U32(index(texts.heads)?),
        Arg::U32(index(texts.head_dim)?),
        Arg::U32(index(texts.length)?),
        Arg::F32(scale),
        Arg::Out(q),
        Arg::Out(key),
        Arg::Out(v),
    ];
    let items = texts.texts * texts.heads * texts.length * texts.head_dim;
    Ok(Launch { kernel: by(element, k::ENCODER_SPLIT_F32, k::ENCODER_SPLIT_F16), args, grid: Grid::Items(items) })
}

/// Position terms of scores, already multiplied and scaled.
#[derive(Debug)]
pub struct Terms<'a, B> {
    /// Q·Kr, `[heads, texts, length, table]`.
    pub c2p: Option<&'a B>,
    /// K·Qr, `[heads, texts, length, table]`, a row a key.
    pub p2c: Option<&'a B>,
    /// Row of the tables for the distance d = i - j, at d + far: `[2·far + 1]`.
    pub rows: Option<&'a B>,
    /// See `rows`.
    pub far: usize,
    /// The row that is column 0 of `c2p` and `p2c`.
    pub first_row: usize,
    /// Columns of `c2p` and `p2c`.
    pub table: usize,
    /// A number for each head and d, `[heads, 2·span + 1]` in `f32`.
    pub bias: Option<&'a B>,
    /// See `bias`.
    pub span: usize,
}

/// exp(score - maximum) and its sum over each row: qk and weights `[heads, texts, length, length]`, sums `[heads, texts, length]` in
/// `f32`.
///
/// # Errors
/// Sizes that the kernels cannot number.
pub fn weights<'a, B>(
    element: Element,
    qk: &'a B,
    terms: &Terms<'a, B>,
    texts: &Texts<'a, B>,
    weights: &'a B,
    sums: &'a B,
) -> Result<Launch<'a, B>> {
    let there =
        u32::from(terms.c2p.is_some()) | u32::from(terms.p2c.is_some()) << 1 | u32::from(terms.bias.is_some()) << 2;
    // What a model lacks is never read.
    let args = vec![
        Arg::In(qk),
        Arg::In(terms.c2p.unwrap_or(qk)),
        Arg::In(terms.p2c.unwrap_or(qk)),
        Arg::U32(there),
        Arg::In(terms.rows.unwrap_or(texts.offsets)),
        Arg::U32(index(terms.far)?),
        Arg::U32(index(terms.first_row)?),
        Arg::U32(index(terms.table)?),
        Arg::In(terms.bias.unwrap_or(qk)),
        Arg::U32(index(terms.span)?),
        Arg::In(texts.offsets),
        Arg::U32(index(texts.texts)?),
        Arg::U32(index(texts.length)?),
        Arg::Out(weights),
        Arg::Out(sums),
    ];
    let grid = Grid::Blocks(texts.texts * texts.heads, texts.length.div_ceil(SCORE_TILE));
    Ok(Launch { kernel: by(element, k::ENCODER_WEIGHTS_F32, k::ENCODER_WEIGHTS_F16), args, grid })
}

/// Heads together: context `[heads, texts, length, head_dim]` over its sums to `[tokens, heads·head_dim]`.
///
/// # Errors
/// Sizes that the kernels cannot number.
pub fn join<'a, B>(
    element: Element,
    context: &'a B,
    sums: &'a B,
    texts: &Texts<'a, B>,
    out: &'a B,
) -> Result<Launch<'a, B>> {
    let args = vec![
        Arg::In(context),
        Arg::In(sums),
        Arg::In(texts.offsets),
        Arg::U32(index(texts.texts)?),
        Arg::U32(index(texts.heads)?),
        Arg::U32(index(texts.head_dim)?),
        Arg::U32(index(texts.length)?),
        Arg::Out(out),
    ];
    let grid = Grid::Items(texts.tokens * texts.heads * texts.head_dim);
    Ok(Launch { kernel: by(element, k::ENCODER_JOIN_F32, k::ENCODER_JOIN_F16), args, grid })
}
