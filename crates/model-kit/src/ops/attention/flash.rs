//! FlashAttention-2 (Dao 2023) on an NVIDIA card, where its kernels can answer.
//!
//! They sum in f32 but round the weights to the dtype of the operands before they are divided by
//! their sum, so the last digits differ from those of the other paths. They report no failure:
//! what they cannot do must not reach them, because the answer would be whatever the memory held.

use candle_core::{DType, Result, Tensor};

use super::{AttentionOptions, Sizes};

/// Largest head the method was published for.
const MAX_CHANNELS: usize = 256;
/// The kernels read 16 bytes at a time.
const ALIGNED: usize = 8;
/// Most blocks of a launch in its second and third direction.
const MAX_GRID: usize = 65_535;

/// Whether the kernels know the shapes and options. They have no bias but that of causality, whose
/// rows without a key they leave undefined.
fn knows(sizes: Sizes, dtypes: [DType; 3], options: &AttentionOptions<'_>) -> bool {
    let Sizes {
        b,
        h,
        nq,
        nk,
        d,
        dv,
    } = sizes;
    let plain = options.bias.is_none() && options.bias_fn.is_none() && options.key_mask.is_none();
    let half = matches!(dtypes[0], DType::F16 | DType::BF16) && dtypes == [dtypes[0]; 3];
    plain
        && half
        && (!options.causal || nq == nk)
        && d == dv
        && d.is_multiple_of(ALIGNED)
        && d <= MAX_CHANNELS
        && nq > 0
        && (1..=MAX_GRID).contains(&b)
        && (1..=MAX_GRID).contains(&h)
        && u32::try_from(b * nq.max(nk) * h * d).is_ok()
}

/// The tensor itself when its rows can be read where they lie, else a copy.
fn readable(t: &Tensor) -> Result<Tensor> {
    let layout = t.layout();
    let (last, strides) = (layout.stride()[3], &layout.stride()[..3]);
    let fits = |n: &usize| n.is_multiple_of(ALIGNED) && u32::try_from(*n).is_ok();
    if last == 1 && strides.iter().all(fits) && layout.start_offset().is_multiple_of(ALIGNED) {
        Ok(t.clone())
    } else {
        t.force_contiguous()
    }
}

/// Attention by the kernels; `None` where they cannot answer.
#[cfg(feature = "flash-attn")]
pub(super) fn on_card(
    (q, k, v): (&Tensor, &Tensor, &Tensor),
    scale: f64,
    options: &AttentionOptions<'_>,
    sizes: Sizes,
) -> Result<Option<Tensor>> {
    let candle_core::Device::Cuda(card) = q.device() else {
        return Ok(None);
    };
    if !knows(sizes, [q.dtype(), k.dtype(), v.dtype()], options) {
        return Ok(None);
    }
    let stream = card.cuda_stream();
    let (major, _) = stream
        .context()
        .compute_capability()
        .map_err(candle_core::Error::wrap)?;
    if major < 8 {
        return Ok(None);
    }
    candle_flash_attn::flash_attn(
        &readable(q)?,
        &readable(k)?,
        &readable(v)?,
        scale as f32,
        options.causal,
    )
    .map(Some)
}

/// Tries the flash attention kernels on a device and compares them with candle's own operators.
///
/// A program holds the kernels for one compute capability alone. On a card they were not compiled
/// for they do not run and do not say so, therefore a program asks once before it trusts them. Does
/// nothing for f32, for which they are not used, and on other devices.
///
/// # Errors
/// The kernels do not answer right: the program has to be built for this card. Candle's own.
#[cfg(feature = "flash-attn")]
pub fn check_flash_attention(device: &candle_core::Device, dtype: DType) -> Result<()> {
    for channels in (1..=MAX_CHANNELS / 32).map(|n| n * 32) {
        let (n, heads) = (70, 2);
        let waves = |step: f32| -> Result<Tensor> {
            let data: Vec<f32> = (0..n * heads * channels)
                .map(|i| (i as f32 * step).sin())
                .collect();
            Tensor::from_vec(data, (1, n, heads, channels), device)?.to_dtype(dtype)
        };
        let (q, k, v) = (waves(0.37)?, waves(0.73)?, waves(0.19)?);
        let (options, scale) = (AttentionOptions::default(), super::default_scale(channels));
        let sizes = Sizes::of(&q, &k, &v)?;
        // First, so that no memory it is given has held the right answer.
        let Some(got) = on_card((&q, &k, &v), scale, &options, sizes)? else {
            continue;
        };
        let want = super::in_blocks((&q, &k, &v), scale, &options, sizes, usize::MAX)?;
        if !alike(&got, &want)? {
            candle_core::bail!(
                "flash attention over heads of {channels} channels gives wrong numbers on this card"
            );
        }
    }
    Ok(())
}

/// Whether two answers are equal but for the rounding of half precision; a NaN is never.
fn alike(a: &Tensor, b: &Tensor) -> Result<bool> {
    let floats = |t: &Tensor| t.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>();
    Ok(floats(a)?
        .iter()
        .zip(&floats(b)?)
        .all(|(a, b)| (a - b).abs() <= 0.02))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{
        BiasRow,
        check::{floats, random},
    };

    const SIZES: Sizes = Sizes {
        b: 1,
        h: 16,
        nq: 5184,
        nk: 5184,
        d: 64,
        dv: 64,
    };
    const HALF: [DType; 3] = [DType::BF16; 3];

    #[test]
    fn half_precision_without_a_bias_is_for_the_kernels() {
        let none = AttentionOptions::default();
        assert!(knows(SIZES, HALF, &none));
        assert!(knows(SIZES, [DType::F16; 3], &none));
        for d in [8, 32, 72, 128, 256] {
            assert!(knows(Sizes { d, dv: d, ..SIZES }, HALF, &none), "{d}");
        }
        assert!(knows(
            Sizes {
                nk: 36_000,
                ..SIZES
            },
            HALF,
            &none
        ));
        let causal = AttentionOptions {
            causal: true,
            ..none
        };
        assert!(knows(SIZES, HALF, &causal));
    }

    #[test]
    fn whatever_the_kernels_lack_is_kept_from_them() {
        let none = AttentionOptions::default();
        for dtypes in [
            [DType::F32; 3],
            [DType::F64; 3],
            [DType::BF16, DType::BF16, DType::F16],
            [DType::F16, DType::F32, DType::F16],
        ] {
            assert!(!knows(SIZES, dtypes, &none), "{dtypes:?}");
        }
        for sizes in [
            Sizes {
                d: 20,
                dv: 20,
                ..SIZES
            },
            Sizes {
                d: 264,
                dv: 264,
                ..SIZES
            },
            Sizes { dv: 32, ..SIZES },
            Sizes { nq: 0, ..SIZES },
            Sizes { b: 0, ..SIZES },
            Sizes {
                b: 65_536,
                nq: 1,
                nk: 1,
                ..SIZES
            },
            Sizes { b: 1000, ..SIZES },
        ] {
            assert!(!knows(sizes, HALF, &none), "{sizes:?}");
        }
        let bias = random(&[1, 1, 1, 8], 1);
        let mask = random(&[1, 8], 2);
        let lazy = |_: BiasRow, _: &mut [f32]| {};
        let causal = AttentionOptions {
            causal: true,
            ..none
        };
        assert!(!knows(Sizes { nk: 5185, ..SIZES }, HALF, &causal));
        for options in [
            AttentionOptions {
                bias: Some(&bias),
                ..none
            },
            AttentionOptions {
                key_mask: Some(&mask),
                ..none
            },
            AttentionOptions {
                bias_fn: Some(&lazy),
                ..none
            },
        ] {
            assert!(!knows(SIZES, HALF, &options), "{options:?}");
        }
    }

    #[test]
    fn slices_of_a_projection_are_read_in_place_and_odd_ones_are_copied() {
        let in_place = |t: &Tensor| readable(t).unwrap().layout() == t.layout();
        let qkv = random(&[2, 5, 3, 4, 16], 1);
        for i in 0..3 {
            let part = qkv.narrow(2, i, 1).unwrap().squeeze(2).unwrap();
            assert!(in_place(&part), "{i}");
        }
        for odd in [
            random(&[2, 5, 4, 17], 2).narrow(3, 1, 16).unwrap(),
            random(&[1, 1, 1, 19], 3).narrow(3, 3, 16).unwrap(),
            random(&[2, 16, 4, 8], 4).transpose(1, 3).unwrap(),
        ] {
            assert!(!in_place(&odd));
            let copy = readable(&odd).unwrap();
            assert!(copy.is_contiguous() && copy.layout().start_offset() == 0);
            assert_eq!(floats(&copy), floats(&odd));
        }
    }

    #[test]
    fn a_wrong_number_is_told_from_a_rounded_one() {
        let a = random(&[1, 3, 2, 8], 1);
        assert!(alike(&a, &a.to_dtype(DType::BF16).unwrap()).unwrap());
        assert!(!alike(&a, &(&a + 0.1).unwrap()).unwrap());
        assert!(!alike(&(&a / 0.0).unwrap(), &a).unwrap());
    }
}
