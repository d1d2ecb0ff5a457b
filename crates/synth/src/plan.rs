//! Which products stand on a shelf and where, before anything is drawn.

use serde::{Deserialize, Serialize};

use crate::{
    Result, SynthError,
    seeded::Seeded,
    shapes,
    sku::{Category, Sku},
};

/// SKUs on one shelf at most.
pub const MAX_SKUS: usize = 200;
/// Rows of one shelf at most.
pub const MAX_ROWS: u32 = 6;
/// Facings of one shelf at most.
pub const MAX_FACINGS: usize = 2_000;

/// World pixels per frame pixel at zoom 1: a little more than one keeps a frame sharp.
pub(crate) const DENSITY: f32 = 1.2;

/// What to draw. Equal plans give equal shelves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShelfPlan {
    /// Decides which product stands where and how shelf and light look.
    pub seed: u64,
    /// The products; each stands on the shelf at least once.
    pub skus: Vec<Sku>,
    /// Boards above each other, 1 to [`MAX_ROWS`]; a frame shows all of them.
    pub rows: u32,
    /// Width and height of the frames that will look at the shelf, px, 64 to 4096.
    pub frame_px: (u32, u32),
    /// Length of the shelf in frame widths, 0.5 to 12; longer when the products need it.
    pub length_frames: f32,
    /// Longest run of one product side by side, 1 to 12.
    pub longest_run: u32,
    /// Chance of an empty place before a run, 0 to 1.
    pub gap_chance: f32,
}

impl ShelfPlan {
    /// A shelf of two boards, 2.2 frame widths long.
    pub fn new(seed: u64, skus: Vec<Sku>, width_px: u32, height_px: u32) -> Self {
        Self {
            seed,
            skus,
            rows: 2,
            frame_px: (width_px, height_px),
            length_frames: 2.2,
            longest_run: 4,
            gap_chance: 0.1,
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        let bad = |text: String| Err(SynthError::OutOfRange(text));
        let (w, h) = self.frame_px;
        if !(64..=4096).contains(&w) || !(64..=4096).contains(&h) {
            return bad(format!(
                "a frame is 64 to 4096 px wide and high, not {w}x{h}"
            ));
        }
        if self.skus.is_empty() || self.skus.len() > MAX_SKUS {
            return bad(format!(
                "a shelf has 1 to {MAX_SKUS} SKUs, not {}",
                self.skus.len()
            ));
        }
        if !(1..=MAX_ROWS).contains(&self.rows) {
            return bad(format!(
                "a shelf has 1 to {MAX_ROWS} rows, not {}",
                self.rows
            ));
        }
        if !(0.5..=12.0).contains(&self.length_frames) {
            return bad(format!(
                "a shelf is 0.5 to 12 frames long, not {}",
                self.length_frames
            ));
        }
        if !(1..=12).contains(&self.longest_run) || !(0.0..=1.0).contains(&self.gap_chance) {
            return bad("runs are 1 to 12 long and the chance of a gap is 0 to 1".into());
        }
        Ok(())
    }

    /// Room for the products of a row, world px.
    pub(crate) fn pitch(&self) -> f32 {
        self.frame_px.1 as f32 * DENSITY * 0.94 / self.rows as f32
    }
}

/// Picks `count` different SKUs, about every fourth a sibling of one before it, and categories in
/// turn. Seeds at or above [`HELD_OUT_FROM`](crate::HELD_OUT_FROM) pick SKUs that no smaller seed
/// picks. At most [`MAX_SKUS`].
pub fn pick_skus(seed: u64, count: usize) -> Vec<Sku> {
    let mut rng = Seeded::of(&[0x7069_636b, seed]);
    let mut skus: Vec<Sku> = Vec::new();
    let turn = rng.below(7) as usize;
    while skus.len() < count.min(MAX_SKUS) {
        let sibling = !skus.is_empty() && rng.chance(0.25);
        let sku = if sibling {
            let of = skus[rng.below(skus.len() as u32) as usize];
            Sku::of(of.family(), rng.below(6))
        } else {
            let category = Category::ALL[(turn + skus.len()) % Category::ALL.len()];
            Sku::of(Sku::family_for(&mut rng, seed, category), 0)
        };
        if !skus.contains(&sku) {
            skus.push(sku);
        }
    }
    skus
}

/// Height of a SKU's pack against the room of a row, the same for a whole family.
pub(crate) fn stature(sku: Sku) -> f32 {
    let mut rng = Seeded::of(&[0x7374_6174, sku.family()]);
    let (low, high) = match sku.category() {
        Category::Bottle => (0.72, 0.93),
        Category::Carton => (0.68, 0.9),
        Category::Box => (0.5, 0.9),
        Category::Bag => (0.6, 0.88),
        Category::Jar => (0.4, 0.6),
        Category::Can => (0.38, 0.58),
        Category::Tub => (0.32, 0.52),
    };
    let height: f32 = rng.range(low, high);
    // A wide pack stays narrower than the row is high.
    height.min(1.05 / shapes::aspect(sku))
}

/// One pack on its place, world px.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) sku: Sku,
    pub(crate) row: u32,
    pub(crate) x: f32,
    pub(crate) w: f32,
    pub(crate) h: f32,
    /// True for the first of a run, under which a price tag hangs.
    pub(crate) leads: bool,
}

/// Puts runs of products on the rows; returns the places and the length used.
pub(crate) fn places(plan: &ShelfPlan) -> Result<(Vec<Place>, f32)> {
    let mut rng = Seeded::of(&[0x706c_6163, plan.seed]);
    let room = plan.pitch() * 0.86;
    let wanted = plan.frame_px.0 as f32 * DENSITY * plan.length_frames;
    let mut order = plan.skus.clone();
    for i in (1..order.len()).rev() {
        order.swap(i, rng.below(i as u32 + 1) as usize);
    }
    let mut ends = vec![0.0f32; plan.rows as usize];
    let mut last: Vec<Option<Sku>> = vec![None; plan.rows as usize];
    let mut places = Vec::new();
    let mut due = order.iter();
    loop {
        // Each product once, then whatever fills the rows.
        let shortest = (0..ends.len())
            .min_by(|&a, &b| ends[a].total_cmp(&ends[b]))
            .unwrap_or(0);
        let sku = match due.next() {
            Some(&sku) => sku,
            None if ends[shortest] >= wanted => break,
            None => plan.skus[rng.below(plan.skus.len() as u32) as usize],
        };
        if last[shortest] == Some(sku) && plan.skus.len() > 1 {
            continue;
        }
        last[shortest] = Some(sku);
        let h = room * stature(sku);
        let w = h * shapes::aspect(sku);
        let x = &mut ends[shortest];
        if rng.chance(plan.gap_chance) {
            *x += room * rng.range(0.15, 0.45);
        }
        let run = 1 + rng.below(plan.longest_run);
        for i in 0..run {
            if i > 0 && *x + w > wanted {
                break;
            }
            places.push(Place {
                sku,
                row: shortest as u32,
                x: *x,
                w,
                h,
                leads: i == 0,
            });
            *x += w * (1.0 + rng.range(0.01, 0.05)) + 1.0;
        }
        *x += room * rng.range(0.0, 0.05);
        if places.len() > MAX_FACINGS {
            return Err(SynthError::OutOfRange(format!(
                "the shelf holds more than {MAX_FACINGS} packs; plan fewer rows or a shorter shelf"
            )));
        }
    }
    places.sort_by(|a, b| a.row.cmp(&b.row).then(a.x.total_cmp(&b.x)));
    let length = ends.iter().fold(wanted, |a, &b| a.max(b));
    Ok((places, length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HELD_OUT_FROM;

    #[test]
    fn every_product_has_a_place_and_no_two_packs_share_one() {
        let plan = ShelfPlan::new(4, pick_skus(4, 14), 960, 540);
        let (places, length) = places(&plan).unwrap();
        for sku in &plan.skus {
            assert!(places.iter().any(|p| p.sku == *sku), "{sku:?}");
        }
        for pair in places.windows(2) {
            let (a, b) = (pair[0], pair[1]);
            assert!(a.row < b.row || a.x + a.w <= b.x, "{a:?} {b:?}");
            assert!(a.x + a.w <= length + 1.0);
        }
        assert!(places.iter().all(|p| p.h <= plan.pitch() * 0.86 * 0.94));
    }

    #[test]
    fn picked_skus_differ_repeat_and_stay_on_their_side_of_the_bound() {
        let skus = pick_skus(9, 40);
        assert_eq!(skus, pick_skus(9, 40));
        let mut unique = skus.clone();
        unique.sort();
        unique.dedup();
        assert_eq!(unique.len(), 40);
        assert!(skus.iter().all(|s| s.family() < HELD_OUT_FROM));
        assert!(
            pick_skus(HELD_OUT_FROM, 40)
                .iter()
                .all(|s| s.family() >= HELD_OUT_FROM)
        );
        assert_eq!(pick_skus(1, MAX_SKUS * 10).len(), MAX_SKUS);
    }

    type Change = fn(&mut ShelfPlan);

    #[test]
    fn a_plan_out_of_range_says_which_range() {
        let plan = ShelfPlan::new(1, pick_skus(1, 3), 960, 540);
        let changes: [(Change, &str); 6] = [
            (|p| p.skus.clear(), "1 to 200 SKUs"),
            (|p| p.rows = 0, "1 to 6 rows"),
            (|p| p.frame_px.0 = 20, "64 to 4096 px"),
            (|p| p.length_frames = f32::NAN, "0.5 to 12 frames"),
            (|p| p.longest_run = 0, "1 to 12"),
            (|p| p.gap_chance = 2.0, "0 to 1"),
        ];
        for (change, said) in changes {
            let mut bad = plan.clone();
            change(&mut bad);
            let error = bad.check().unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn a_shelf_of_more_packs_than_the_cap_is_refused() {
        // The narrowest packs on the longest shelf of the flattest frame.
        let narrow: Vec<Sku> = pick_skus(2, MAX_SKUS)
            .into_iter()
            .filter(|&sku| stature(sku) * shapes::aspect(sku) < 0.3)
            .collect();
        let plan = ShelfPlan {
            rows: 6,
            length_frames: 12.0,
            longest_run: 12,
            gap_chance: 0.0,
            ..ShelfPlan::new(2, narrow, 4096, 96)
        };
        let error = places(&plan).unwrap_err().to_string();
        assert!(error.contains("more than 2000 packs"), "{error}");
    }
}
