//! Baseline: histograms of hue and saturation, compared by the Bhattacharyya coefficient.
//!
//! Brightness is left out, because it is the store's light more than the pack's print.

use rayon::prelude::*;
use shelfscan_inference_core::RgbImage;

use super::PairScorer;
use crate::Result;

const HUES: usize = 16;
const SATURATIONS: usize = 8;

/// Compares pictures by how much of which hue and saturation they show.
#[derive(Clone, Copy, Debug, Default)]
pub struct ColourHistogram;

impl PairScorer for ColourHistogram {
    /// Square roots of the shares of each bin, `[16 * 8]`, so that a dot product compares them.
    type Features = Vec<f32>;

    fn name(&self) -> String {
        "hsv histogram".into()
    }

    fn features(&self, pictures: &[RgbImage]) -> Result<Vec<Vec<f32>>> {
        Ok(pictures.par_iter().map(histogram).collect())
    }

    fn score(&self, query: &Vec<f32>, view: &Vec<f32>) -> f32 {
        query.iter().zip(view).map(|(a, b)| a * b).sum()
    }
}

fn histogram(picture: &RgbImage) -> Vec<f32> {
    let mut counts = vec![0u32; HUES * SATURATIONS];
    for pixel in picture.pixels().chunks_exact(3) {
        let (hue, saturation) = hue_and_saturation(pixel[0], pixel[1], pixel[2]);
        let hue = ((hue * HUES as f32) as usize).min(HUES - 1);
        let saturation = ((saturation * SATURATIONS as f32) as usize).min(SATURATIONS - 1);
        counts[hue * SATURATIONS + saturation] += 1;
    }
    let total = counts.iter().sum::<u32>().max(1) as f32;
    counts.iter().map(|c| (*c as f32 / total).sqrt()).collect()
}

/// Hue as a share of the circle and saturation, both 0 to 1; grey has hue 0.
fn hue_and_saturation(r: u8, g: u8, b: u8) -> (f32, f32) {
    let (most, least) = (r.max(g).max(b), r.min(g).min(b));
    if most == least {
        return (0.0, 0.0);
    }
    let (rf, gf, bf) = (f32::from(r), f32::from(g), f32::from(b));
    let range = f32::from(most - least);
    let sixth = if most == r {
        ((gf - bf) / range).rem_euclid(6.0)
    } else if most == g {
        (bf - rf) / range + 2.0
    } else {
        (rf - gf) / range + 4.0
    };
    (sixth / 6.0, range / f32::from(most))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flat(colour: [u8; 3]) -> RgbImage {
        RgbImage::new(8, 8, colour.repeat(64)).unwrap()
    }

    #[test]
    fn hues_lie_where_the_colour_circle_has_them() {
        for (colour, hue) in [
            ([255, 0, 0], 0.0),
            ([255, 255, 0], 1.0 / 6.0),
            ([0, 255, 0], 2.0 / 6.0),
            ([0, 0, 255], 4.0 / 6.0),
            ([255, 0, 255], 5.0 / 6.0),
        ] {
            let (got, saturation) = hue_and_saturation(colour[0], colour[1], colour[2]);
            assert!((got - hue).abs() < 1e-6 && saturation == 1.0, "{colour:?}");
        }
    }

    #[test]
    fn a_darker_picture_of_one_colour_scores_one_and_another_colour_zero() {
        let method = ColourHistogram;
        let features = method
            .features(&[
                flat([200, 20, 20]),
                flat([100, 10, 10]),
                flat([20, 20, 200]),
            ])
            .unwrap();
        assert!((method.score(&features[0], &features[1]) - 1.0).abs() < 1e-6);
        assert_eq!(method.score(&features[0], &features[2]), 0.0);
    }
}
