//! Sine encodings of places and the rotary encoding of the image trunk.

use candle_core::{CpuStorage, DType, Device, InplaceOp1, Layout, Result, Tensor};
use rayon::prelude::*;

const TEMPERATURE: f64 = 10_000.0;

/// `t_k = 10000^(2 floor(k / 2) / n)`, the wave lengths of `n` channels.
fn wave_lengths(channels: usize) -> Vec<f32> {
    (0..channels)
        .map(|k| TEMPERATURE.powf((2 * (k / 2)) as f64 / channels as f64) as f32)
        .collect()
}

/// Appends the sine encoding of `value`, already in radians: even channels sine, odd cosine.
fn push_waves(out: &mut Vec<f32>, value: f32, lengths: &[f32]) {
    for (k, length) in lengths.iter().enumerate() {
        let angle = value / length;
        out.push(if k % 2 == 0 { angle.sin() } else { angle.cos() });
    }
}

/// Sine encoding of every cell of an `h` x `w` map, `[1, h * w, channels]`: half the channels from
/// the row, half from the column. Places run from `1 / (h + 1e-6)` to 1, times two pi.
///
/// # Errors
/// candle's own.
pub(crate) fn sine_map(
    h: usize,
    w: usize,
    channels: usize,
    dtype: DType,
    device: &Device,
) -> Result<Tensor> {
    let half = channels / 2;
    let lengths = wave_lengths(half);
    let waves = |n: usize| {
        let mut table = Vec::with_capacity(n * half);
        for i in 0..n {
            let place = (i + 1) as f32 / (n as f32 + 1e-6) * std::f32::consts::TAU;
            push_waves(&mut table, place, &lengths);
        }
        table
    };
    let (rows, cols) = (waves(h), waves(w));
    let mut out = Vec::with_capacity(h * w * channels);
    for y in 0..h {
        for x in 0..w {
            out.extend_from_slice(&rows[y * half..(y + 1) * half]);
            out.extend_from_slice(&cols[x * half..(x + 1) * half]);
        }
    }
    Tensor::from_vec(out, (1, h * w, channels), device)?.to_dtype(dtype)
}

/// Sine encoding of numbers in 0 to 1, `channels` each, one after the other.
pub(crate) fn sine_values(values: &[f32], channels: usize) -> Vec<f32> {
    let lengths = wave_lengths(channels);
    let mut out = Vec::with_capacity(values.len() * channels);
    for value in values {
        push_waves(&mut out, value * std::f32::consts::TAU, &lengths);
    }
    out
}

/// Sine encoding of how long ago something was, `channels` each: the sines of all wave lengths,
/// then the cosines.
pub(crate) fn sine_ages(ages: &[f32], channels: usize) -> Vec<f32> {
    let lengths = wave_lengths(channels / 2);
    let mut out = Vec::with_capacity(ages.len() * channels);
    for age in ages {
        out.extend(lengths.iter().map(|length| (age / length).sin()));
        out.extend(lengths.iter().map(|length| (age / length).cos()));
    }
    out
}

/// Tokens of a square of `grid` patches in squares of `side`, which has to divide it: the places in
/// rows of each token in turn.
fn window_order(grid: usize, side: usize) -> Vec<usize> {
    let count = grid / side.max(1);
    let mut order = Vec::with_capacity(grid * grid);
    for (down, across) in (0..count * count).map(|i| (i / count, i % count)) {
        for y in 0..side {
            let first = (down * side + y) * grid + across * side;
            order.extend(first..first + side);
        }
    }
    order
}

/// Rotation angles of the tokens of a square of patches.
///
/// Adjacent channels make a pair; the first half of a head's pairs turns with the column, the
/// second half with the row. Source: RoFormer (Su et al. 2021) in two dimensions.
#[derive(Clone, Debug)]
pub(crate) struct Rotary {
    /// `[tokens, head_dim / 2]`, row by row.
    cos: Vec<f32>,
    sin: Vec<f32>,
    tokens: usize,
    head_dim: usize,
}

impl Rotary {
    /// A square of `side` patches; places are multiplied by `scale`.
    pub(crate) fn new(side: usize, head_dim: usize, scale: f32) -> Self {
        let quarter = head_dim / 4;
        let speeds: Vec<f32> = (0..quarter)
            .map(|i| (1.0 / TEMPERATURE.powf((4 * i) as f64 / head_dim as f64)) as f32)
            .collect();
        let mut angles = Vec::with_capacity(side * side * 2 * quarter);
        for y in 0..side {
            for x in 0..side {
                angles.extend(speeds.iter().map(|s| x as f32 * scale * s));
                angles.extend(speeds.iter().map(|s| y as f32 * scale * s));
            }
        }
        Self {
            cos: angles.iter().map(|a| a.cos()).collect(),
            sin: angles.iter().map(|a| a.sin()).collect(),
            tokens: side * side,
            head_dim,
        }
    }

    /// The same square with its tokens in squares of `side`, one after the other.
    pub(crate) fn in_windows(&self, side: usize) -> Self {
        let half = self.head_dim / 2;
        let grid = self.tokens.isqrt();
        let order = window_order(grid, side);
        let sorted = |table: &[f32]| -> Vec<f32> {
            let rows = order
                .iter()
                .filter_map(|at| table.get(at * half..(at + 1) * half));
            rows.flatten().copied().collect()
        };
        Self {
            cos: sorted(&self.cos),
            sin: sorted(&self.sin),
            ..*self
        }
    }

    /// Largest difference to a table of `[cos, sin]` pairs, or `None` when the sizes differ.
    pub(crate) fn distance(&self, table: &[[f32; 2]]) -> Option<f32> {
        if table.len() != self.cos.len() {
            return None;
        }
        let pairs = self.cos.iter().zip(&self.sin).zip(table);
        Some(pairs.fold(0f32, |worst, ((c, s), [tc, ts])| {
            worst.max((c - tc).abs()).max((s - ts).abs())
        }))
    }

    /// `(cos, sin)`, each `[tokens, head_dim / 2]`.
    pub(crate) fn tables(&self) -> Result<(Tensor, Tensor)> {
        let shape = (self.tokens, self.head_dim / 2);
        Ok((
            Tensor::from_slice(&self.cos, shape, &Device::Cpu)?,
            Tensor::from_slice(&self.sin, shape, &Device::Cpu)?,
        ))
    }

    /// Turns queries and keys of a fused projection `[b, tokens, 3, heads, head_dim]`; the values
    /// stay as they are. The rotation is done in `f32`.
    // By value, because the projection is turned in place and must not be used afterwards.
    #[allow(clippy::needless_pass_by_value)]
    pub(crate) fn apply(&self, qkv: Tensor) -> Result<Tensor> {
        let (b, n, three, heads, d) = qkv.dims5()?;
        if n != self.tokens || d != self.head_dim || three != 3 {
            candle_core::bail!(
                "rotary table of {} tokens got {:?}",
                self.tokens,
                qkv.dims()
            );
        }
        if qkv.device().is_cpu() && qkv.dtype() == DType::F32 {
            // The projection is fresh and held by no one else, so it is turned in place.
            let qkv = qkv.contiguous()?;
            qkv.inplace_op1(&Turn {
                rotary: self,
                row: 3 * heads * d,
                width: 2 * heads * d,
                tokens: n,
                places: n,
            })?;
            return Ok(qkv);
        }
        let (cos, sin) = self.tables()?;
        let spread = |t: Tensor| t.to_device(qkv.device())?.reshape((1, n, 1, 1, d / 2, 1));
        let (cos, sin) = (spread(cos)?, spread(sin)?);
        let turned = qkv.narrow(2, 0, 2)?.to_dtype(DType::F32)?;
        let pairs = turned.reshape((b, n, 2 * heads, d / 2, 2))?;
        let pairs = pairs.reshape(vec![b, n, 2, heads, d / 2, 2])?;
        let (re, im) = (pairs.narrow(5, 0, 1)?, pairs.narrow(5, 1, 1)?);
        let new_re = (re.broadcast_mul(&cos)? - im.broadcast_mul(&sin)?)?;
        let new_im = (re.broadcast_mul(&sin)? + im.broadcast_mul(&cos)?)?;
        let turned = Tensor::cat(&[&new_re, &new_im], 5)?
            .reshape((b, n, 2, heads, d))?
            .to_dtype(qkv.dtype())?;
        Tensor::cat(&[&turned, &qkv.narrow(2, 2, 1)?], 2)
    }

    /// Turns one projection `[b, n, heads, head_dim]` whose first `places` tokens are one or more
    /// whole squares, one after the other; the tokens behind them have no place and stay as they
    /// are. The rotation is done in `f32`.
    // By value, because the projection is turned in place and must not be used afterwards.
    #[allow(clippy::needless_pass_by_value)]
    pub(crate) fn turn(&self, x: Tensor, places: usize) -> Result<Tensor> {
        let (b, n, heads, d) = x.dims4()?;
        if d != self.head_dim || places > n || !places.is_multiple_of(self.tokens) {
            candle_core::bail!(
                "rotary table of {} tokens got {places} places of {:?}",
                self.tokens,
                x.dims()
            );
        }
        if x.device().is_cpu() && x.dtype() == DType::F32 {
            // The projection is fresh and held by no one else, so it is turned in place.
            let x = x.contiguous()?;
            x.inplace_op1(&Turn {
                rotary: self,
                row: heads * d,
                width: heads * d,
                tokens: n,
                places,
            })?;
            return Ok(x);
        }
        let squares = places / self.tokens;
        let (cos, sin) = self.tables()?;
        let spread = |t: Tensor| {
            let t = t.to_device(x.device())?;
            t.reshape(vec![1, 1, self.tokens, 1, d / 2, 1])
        };
        let (cos, sin) = (spread(cos)?, spread(sin)?);
        let pairs = x.narrow(1, 0, places)?.to_dtype(DType::F32)?.reshape(vec![
            b,
            squares,
            self.tokens,
            heads,
            d / 2,
            2,
        ])?;
        let (re, im) = (pairs.narrow(5, 0, 1)?, pairs.narrow(5, 1, 1)?);
        let new_re = (re.broadcast_mul(&cos)? - im.broadcast_mul(&sin)?)?;
        let new_im = (re.broadcast_mul(&sin)? + im.broadcast_mul(&cos)?)?;
        let turned = Tensor::cat(&[&new_re, &new_im], 5)?
            .reshape((b, places, heads, d))?
            .to_dtype(x.dtype())?;
        Tensor::cat(&[&turned, &x.narrow(1, places, n - places)?], 1)
    }
}

/// Turns the front of every row of a projection.
struct Turn<'a> {
    rotary: &'a Rotary,
    /// Floats of a token.
    row: usize,
    /// Floats of a token that are turned.
    width: usize,
    /// Tokens of one item of the batch, and how many of them have a place.
    tokens: usize,
    places: usize,
}

impl InplaceOp1 for Turn<'_> {
    fn name(&self) -> &'static str {
        "rotary"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        let (Some((start, end)), CpuStorage::F32(data)) = (layout.contiguous_offsets(), storage)
        else {
            candle_core::bail!("the rotary encoding needs contiguous f32");
        };
        let Rotary {
            cos,
            sin,
            tokens,
            head_dim,
        } = self.rotary;
        let half = head_dim / 2;
        data[start..end]
            .par_chunks_mut(self.row)
            .enumerate()
            .with_min_len(64)
            .for_each(|(at, row)| {
                let place = at % self.tokens;
                if place >= self.places {
                    return;
                }
                let token = place % tokens;
                let (cos, sin) = (&cos[token * half..][..half], &sin[token * half..][..half]);
                for head in row[..self.width].chunks_exact_mut(*head_dim) {
                    let pairs = head.as_chunks_mut::<2>().0;
                    for ((pair, c), s) in pairs.iter_mut().zip(cos).zip(sin) {
                        let [re, im] = *pair;
                        *pair = [re * c - im * s, re * s + im * c];
                    }
                }
            });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_taken_row_by_row_and_their_tokens_too() {
        assert_eq!(
            window_order(4, 2),
            [0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15]
        );
    }

    #[test]
    fn turning_in_place_equals_turning_with_tensor_operators() {
        let rotary = Rotary::new(3, 8, 0.5);
        let values: Vec<f32> = (0..2 * 9 * 3 * 2 * 8)
            .map(|i| (i as f32 * 0.37).sin())
            .collect();
        let qkv = Tensor::from_vec(values, (2, 9, 3, 2, 8), &Device::Cpu).unwrap();
        let wide = qkv.to_dtype(DType::F64).unwrap();
        let want = rotary.apply(wide).unwrap().to_dtype(DType::F32).unwrap();
        let got = rotary.apply(qkv.copy().unwrap()).unwrap();
        let gap = (got - want).unwrap().abs().unwrap().flatten_all().unwrap();
        assert!(gap.max(0).unwrap().to_scalar::<f32>().unwrap() < 1e-6);
    }

    #[test]
    fn squares_turn_alike_and_tokens_without_a_place_stay() {
        let rotary = Rotary::new(3, 8, 1.0);
        let values: Vec<f32> = (0..2 * 20 * 2 * 8)
            .map(|i| (i as f32 * 0.21).cos())
            .collect();
        let x = Tensor::from_vec(values, (2, 20, 2, 8), &Device::Cpu).unwrap();
        let got = rotary.turn(x.copy().unwrap(), 18).unwrap();
        let wide = rotary.turn(x.to_dtype(DType::F64).unwrap(), 18).unwrap();
        let gap = (&got - wide.to_dtype(DType::F32).unwrap()).unwrap();
        let gap = gap.abs().unwrap().flatten_all().unwrap();
        assert!(gap.max(0).unwrap().to_scalar::<f32>().unwrap() < 1e-6);
        let part = |t: &Tensor, from: usize, n: usize| -> Vec<f32> {
            let t = t.narrow(1, from, n).unwrap();
            t.flatten_all().unwrap().to_vec1().unwrap()
        };
        assert_eq!(part(&got, 18, 2), part(&x, 18, 2));
        let second = rotary.turn(x.narrow(1, 9, 9).unwrap(), 9).unwrap();
        assert_eq!(part(&got, 9, 9), part(&second, 0, 9));
        assert!(
            rotary.turn(x, 10).is_err(),
            "a part of a square has no places"
        );
    }

    #[test]
    fn a_rotation_keeps_lengths() {
        let rotary = Rotary::new(2, 4, 1.0);
        let gap = rotary
            .cos
            .iter()
            .zip(&rotary.sin)
            .map(|(c, s)| (c * c + s * s - 1.0).abs());
        assert!(gap.fold(0f32, f32::max) < 1e-6);
    }
}
