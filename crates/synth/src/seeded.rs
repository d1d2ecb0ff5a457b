//! Random numbers that are the same on every machine and for ever.
//!
//! Drawn scenes are compared byte by byte between runs, so the generator is fixed here rather than
//! taken from a crate whose stream may change with its version. It is SplitMix64 (Steele, Lea and
//! Flood, "Fast splittable pseudorandom number generators", 2014).

/// A stream of random numbers that its seed alone decides.
#[derive(Clone, Debug)]
pub struct Seeded(u64);

impl Seeded {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The stream of several numbers together, such as a SKU and a view.
    pub fn of(parts: &[u64]) -> Self {
        let mut state = Self(0x5851_f42d_4c95_7f2d);
        for &part in parts {
            state.0 = state.next_u64() ^ part;
        }
        Self(state.next_u64())
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `[0, 1)`.
    pub fn unit(&mut self) -> f32 {
        (self.next_u64() >> 40) as f32 / (1u32 << 24) as f32
    }

    /// A number in `[low, high)`.
    pub fn range(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * self.unit()
    }

    /// A whole number in `0..count`; 0 when `count` is 0.
    pub fn below(&mut self, count: u32) -> u32 {
        ((u64::from(count) * (self.next_u64() >> 32)) >> 32) as u32
    }

    /// True with the given probability.
    pub fn chance(&mut self, probability: f32) -> bool {
        self.unit() < probability
    }

    /// One of `choices`, which must not be empty.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u32) as usize]
    }

    /// A number whose logarithm is even between those of `low` and `high`, both above 0.
    pub fn log_range(&mut self, low: f32, high: f32) -> f32 {
        low * (high / low).powf(self.unit())
    }

    /// The index of a choice whose chance is its share of the sum of `weights`.
    pub fn weighted(&mut self, weights: &[f32]) -> usize {
        let mut left = self.unit() * weights.iter().sum::<f32>();
        for (i, weight) in weights.iter().enumerate() {
            left -= weight;
            if left < 0.0 {
                return i;
            }
        }
        weights.len().saturating_sub(1)
    }

    /// A number from the normal distribution of mean 0 and deviation 1 (twelve uniform draws, so
    /// that it never lies beyond 6 and needs no logarithm, whose last bit differs by machine).
    pub fn normal(&mut self) -> f32 {
        (0..12).map(|_| self.unit()).sum::<f32>() - 6.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_the_stream_and_neighbours_differ() {
        let draw = |seed| {
            let mut stream = Seeded::new(seed);
            [stream.next_u64(), stream.next_u64()]
        };
        // First values of SplitMix64 for seed 0, as published with the algorithm.
        assert_eq!(draw(0)[0], 0xe220_a839_7b1d_cdaf);
        assert_ne!(draw(1), draw(2));
        assert_ne!(
            Seeded::of(&[1, 2]).next_u64(),
            Seeded::of(&[2, 1]).next_u64()
        );
    }

    #[test]
    fn normal_draws_have_the_stated_mean_and_deviation() {
        let mut stream = Seeded::new(7);
        let draws: Vec<f32> = (0..20_000).map(|_| stream.normal()).collect();
        let mean = draws.iter().sum::<f32>() / draws.len() as f32;
        let var = draws.iter().map(|d| (d - mean).powi(2)).sum::<f32>() / draws.len() as f32;
        assert!(
            mean.abs() < 0.03 && (var - 1.0).abs() < 0.05,
            "{mean} {var}"
        );
    }
}
