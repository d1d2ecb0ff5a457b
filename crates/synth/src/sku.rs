//! What a SKU is: a category, a family, a variant, and from these its shape and print.

use serde::{Deserialize, Serialize};

use crate::{print::Design, seeded::Seeded};

/// The kinds of product the generator draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Category {
    /// A folding box of cardboard.
    Box,
    /// A bottle of plastic or glass.
    Bottle,
    /// A tin or a drinks can.
    Can,
    /// A glass jar with a lid.
    Jar,
    /// A gable-top or brick carton.
    Carton,
    /// A bag or pouch of film.
    Bag,
    /// A tub with a lid.
    Tub,
}

impl Category {
    /// All categories, in the order in which families take them in turn.
    pub const ALL: [Self; 7] = [
        Self::Box,
        Self::Bottle,
        Self::Can,
        Self::Jar,
        Self::Carton,
        Self::Bag,
        Self::Tub,
    ];

    /// The word for it, as a prompt would say it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Box => "box",
            Self::Bottle => "bottle",
            Self::Can => "can",
            Self::Jar => "jar",
            Self::Carton => "carton",
            Self::Bag => "bag",
            Self::Tub => "tub",
        }
    }
}

/// The word for a price tag, which is an object of a scene but no product.
pub const PRICE_TAG: &str = "price tag";

/// Variants a family has at most; the SKU number is `family * VARIANTS + variant`.
pub const VARIANTS: u64 = 10;

/// Seeds and families from here on are kept for validation: nothing drawn from a smaller seed
/// ever shows one of their SKUs.
pub const HELD_OUT_FROM: u64 = 1_000_000;

/// One SKU of the drawn world: its number says everything about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sku(pub u64);

impl Sku {
    /// The SKU of a family and a variant (taken modulo [`VARIANTS`]).
    pub fn of(family: u64, variant: u32) -> Self {
        Self(
            family
                .wrapping_mul(VARIANTS)
                .wrapping_add(u64::from(variant) % VARIANTS),
        )
    }

    /// The family: SKUs of one brand, shape and layout.
    pub fn family(self) -> u64 {
        self.0 / VARIANTS
    }

    /// The variant within the family.
    pub fn variant(self) -> u32 {
        (self.0 % VARIANTS) as u32
    }

    /// The category, which families take in turn.
    pub fn category(self) -> Category {
        Category::ALL[(self.family() % Category::ALL.len() as u64) as usize]
    }

    /// What a shopper would call it: brand and words, such as `Proovy ZAMOR`. Two SKUs may share it.
    pub fn title(self) -> String {
        self.design().title()
    }

    /// A name for files and tables that no other SKU has, such as `proovy-zamor-3800782`.
    pub fn slug(self) -> String {
        let words = self.title().to_lowercase().replace(' ', "-");
        format!("{words}-{}", self.0)
    }

    /// A family of `category` picked by `rng` from the side of [`HELD_OUT_FROM`] on which `seed` lies.
    pub(crate) fn family_for(rng: &mut Seeded, seed: u64, category: Category) -> u64 {
        let step = Category::ALL.len() as u64;
        let place = Category::ALL
            .iter()
            .position(|&c| c == category)
            .unwrap_or(0) as u64;
        let base = if seed < HELD_OUT_FROM {
            0
        } else {
            HELD_OUT_FROM
        };
        let first = base.div_ceil(step) * step;
        // The last families below the bound are left out so that none crosses it.
        first + rng.next_u64() % (HELD_OUT_FROM / step - 1) * step + place
    }

    pub(crate) fn design(self) -> Design {
        Design::new(self.family(), self.variant())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn training_and_validation_never_share_a_family() {
        let families = |seed: u64| -> Vec<u64> {
            let mut rng = Seeded::new(seed);
            (0..5_000)
                .map(|i| Sku::family_for(&mut rng, seed, Category::ALL[i % 7]))
                .collect()
        };
        assert!(families(1).iter().all(|&f| f < HELD_OUT_FROM));
        assert!(families(HELD_OUT_FROM).iter().all(|&f| f >= HELD_OUT_FROM));
    }

    #[test]
    fn a_family_is_picked_of_the_category_that_was_asked_for() {
        let mut rng = Seeded::new(5);
        for seed in [0, HELD_OUT_FROM + 3] {
            for category in Category::ALL {
                for variant in 0..3 {
                    let sku = Sku::of(Sku::family_for(&mut rng, seed, category), variant);
                    assert_eq!((sku.category(), sku.variant()), (category, variant));
                }
            }
        }
    }

    #[test]
    fn names_are_fit_for_files_and_differ_between_siblings() {
        let skus = (0..200).flat_map(|family| (0..3).map(move |v| Sku::of(family, v)));
        let slugs: BTreeSet<String> = skus.map(Sku::slug).collect();
        assert_eq!(slugs.len(), 600);
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        assert!(slugs.iter().all(|s| s.chars().all(plain)), "{slugs:?}");
    }
}
