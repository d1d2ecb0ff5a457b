//! Tiles of a large picture, and finds of several tiles brought back together.
//!
//! A full shelf bay holds more packs than the model has queries, and small packs vanish when a
//! large picture is squeezed to the model's input. Tiles overlap, so that whatever is smaller than
//! the overlap lies whole in one of them.

use std::fmt;

use shelfscan_inference_core::{BoxXyxy, Mask};

/// Share of a tile's side that neighbours have in common.
const OVERLAP: f32 = 0.25;
/// A box this close to an inner tile border, in pixels of the source, was probably cut by it.
const CUT_MARGIN_PX: f32 = 3.0;
/// Finds whose overlap is more than this share of the smaller one are the same thing.
const SAME: f32 = 0.5;
/// Pieces of one object line up across the seam at least this well.
const ALIGNED: f32 = 0.6;
/// Tiles along a side at most.
pub(crate) const MAX_SIDE: u32 = 8;

/// How a picture is cut before it is looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tiling {
    /// It is not.
    #[default]
    Off,
    /// Into this many columns and rows, 1 to 8 each.
    Grid {
        /// Tiles side by side.
        columns: u32,
        /// Tiles on top of each other.
        rows: u32,
    },
    /// The whole picture and the tiles of a grid, brought together: large objects are seen whole,
    /// small ones near.
    Layers {
        /// Tiles side by side.
        columns: u32,
        /// Tiles on top of each other.
        rows: u32,
    },
    /// The whole picture first; then into as many tiles as make the usual object large enough, or
    /// when the model ran out of queries.
    Auto,
}

impl fmt::Display for Tiling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Auto => f.write_str("auto"),
            Self::Grid { columns, rows } => write!(f, "{columns}x{rows}"),
            Self::Layers { columns, rows } => write!(f, "whole+{columns}x{rows}"),
        }
    }
}

/// A tile in whole source pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tile {
    pub(crate) x: u32,
    pub(crate) y: u32,
    pub(crate) width: u32,
    pub(crate) height: u32,
}

impl Tile {
    pub(crate) fn region(&self) -> BoxXyxy {
        BoxXyxy::from_xywh(
            self.x as f32,
            self.y as f32,
            self.width as f32,
            self.height as f32,
        )
    }
}

/// Overlapping tiles that cover a picture, row by row.
pub(crate) fn tiles(width: u32, height: u32, columns: u32, rows: u32) -> Vec<Tile> {
    let (across, down) = (spans(width, columns), spans(height, rows));
    let mut out = Vec::with_capacity(across.len() * down.len());
    for &(y, height) in &down {
        out.extend(across.iter().map(|&(x, width)| Tile {
            x,
            y,
            width,
            height,
        }));
    }
    out
}

/// The tiles of a grid behind the whole picture.
pub(crate) fn layers(width: u32, height: u32, columns: u32, rows: u32) -> Vec<Tile> {
    let mut out = tiles(width, height, 1, 1);
    if (columns, rows) != (1, 1) {
        out.extend(tiles(width, height, columns, rows));
    }
    out
}

/// Starts and lengths along one axis.
fn spans(side: u32, count: u32) -> Vec<(u32, u32)> {
    let count = count.clamp(1, MAX_SIDE).min(side.max(1));
    let parts = 1.0 + (count - 1) as f32 * (1.0 - OVERLAP);
    let length = ((side as f32 / parts).ceil() as u32).clamp(1, side);
    (0..count)
        .map(|i| {
            let start = u64::from(side - length) * u64::from(i);
            ((start / u64::from(count - 1).max(1)) as u32, length)
        })
        .collect()
}

/// A find in source pixels.
#[derive(Clone, Debug)]
pub(crate) struct Find {
    pub(crate) prompt: usize,
    pub(crate) score: f32,
    pub(crate) bbox: BoxXyxy,
    pub(crate) mask: Option<Mask>,
}

impl Find {
    fn iom(&self, other: &Self) -> f32 {
        match (&self.mask, &other.mask) {
            (Some(a), Some(b)) if a.area() > 0 && b.area() > 0 => a.iom(b),
            _ => self.bbox.iom(&other.bbox),
        }
    }
}

/// Which sides of a box lie on a tile border that is no picture border: left, top, right, bottom.
fn cut_sides(bbox: &BoxXyxy, tile: &Tile, width: u32, height: u32) -> [bool; 4] {
    let region = tile.region();
    [
        tile.x > 0 && bbox.x0 - region.x0 < CUT_MARGIN_PX,
        tile.y > 0 && bbox.y0 - region.y0 < CUT_MARGIN_PX,
        tile.x + tile.width < width && region.x1 - bbox.x1 < CUT_MARGIN_PX,
        tile.y + tile.height < height && region.y1 - bbox.y1 < CUT_MARGIN_PX,
    ]
}

/// Brings the finds of all tiles together: whole objects first; a piece cut by a seam goes when the
/// whole is there, and pieces of one object that is larger than the overlap are joined.
pub(crate) fn merge(found: Vec<(Tile, Find)>, width: u32, height: u32) -> Vec<Find> {
    let (mut whole, mut pieces) = (Vec::new(), Vec::new());
    for (tile, find) in found {
        let sides = cut_sides(&find.bbox, &tile, width, height);
        if sides.contains(&true) {
            pieces.push((sides, find));
        } else {
            whole.push(find);
        }
    }
    whole.sort_by(|a, b| b.score.total_cmp(&a.score));
    let mut kept: Vec<Find> = Vec::new();
    for find in whole {
        if !known(&kept, &find) {
            kept.push(find);
        }
    }
    pieces.retain(|(_, piece)| !known(&kept, piece));
    pieces.sort_by(|(_, a), (_, b)| b.bbox.area().total_cmp(&a.bbox.area()));
    let mut joined: Vec<([bool; 4], Find)> = Vec::new();
    for (sides, piece) in pieces {
        let partner = joined
            .iter_mut()
            .find(|(other, find)| belongs(sides, &piece, *other, find));
        match partner {
            Some((other, find)) => {
                find.bbox = find.bbox.union(&piece.bbox);
                find.score = find.score.max(piece.score);
                find.mask = match (find.mask.take(), piece.mask) {
                    (Some(a), Some(b)) => Some(either(&a, &b)),
                    (a, b) => a.or(b),
                };
                // A side that met its other half is whole now.
                for (a, b) in [(0, 2), (1, 3), (2, 0), (3, 1)] {
                    other[a] &= !sides[b];
                }
            }
            None => joined.push((sides, piece)),
        }
    }
    joined.sort_by(|(_, a), (_, b)| b.score.total_cmp(&a.score));
    for (_, find) in joined {
        if !known(&kept, &find) {
            kept.push(find);
        }
    }
    kept.sort_by(|a, b| b.score.total_cmp(&a.score));
    kept
}

fn known(kept: &[Find], find: &Find) -> bool {
    kept.iter()
        .any(|other| other.prompt == find.prompt && other.iom(find) > SAME)
}

/// True for two pieces of one object: they meet, and line up along the seam between them.
fn belongs(sides: [bool; 4], piece: &Find, other_sides: [bool; 4], other: &Find) -> bool {
    if piece.prompt != other.prompt {
        return false;
    }
    if piece.iom(other) > SAME {
        return true;
    }
    let (a, b) = (&piece.bbox, &other.bbox);
    if a.intersection(b).area() <= 0.0 {
        return false;
    }
    let share = |a0: f32, a1: f32, b0: f32, b1: f32| {
        let common = (a1.min(b1) - a0.max(b0)).max(0.0);
        common / (a1.max(b1) - a0.min(b0)).max(1e-6)
    };
    let across = (sides[0] && other_sides[2]) || (sides[2] && other_sides[0]);
    let down = (sides[1] && other_sides[3]) || (sides[3] && other_sides[1]);
    (across && share(a.y0, a.y1, b.y0, b.y1) > ALIGNED)
        || (down && share(a.x0, a.x1, b.x0, b.x1) > ALIGNED)
}

fn either(a: &Mask, b: &Mask) -> Mask {
    let (width, height) = (a.width(), a.height());
    let mut map = a.to_binary();
    for (cell, other) in map.iter_mut().zip(b.to_binary()) {
        *cell |= other;
    }
    Mask::from_binary(width, height, &map).unwrap_or_else(|_| a.clone())
}

/// Tiles along a side that bring objects of `median_px` in the model's input, the root of their area,
/// to a comfortable size. The built-in detector finds nine packs of ten of 40 pixels and more, but
/// draws boxes of more than 60 better.
pub(crate) fn automatic_side(median_px: f32, full: bool) -> u32 {
    const COMFORTABLE_PX: f32 = 64.0;
    let wanted = (COMFORTABLE_PX / median_px.max(1.0)).ceil() as u32;
    wanted.clamp(if full { 2 } else { 1 }, 4)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn find(bbox: BoxXyxy, score: f32) -> Find {
        Find {
            prompt: 0,
            score,
            bbox,
            mask: Some(Mask::from_box(1000, 600, &bbox)),
        }
    }

    #[test]
    fn large_objects_are_left_whole_and_small_ones_are_brought_near() {
        assert_eq!(automatic_side(87.0, false), 1);
        assert_eq!(automatic_side(40.0, false), 2);
        assert_eq!(automatic_side(2.0, false), 4);
        assert_eq!(
            automatic_side(87.0, true),
            2,
            "the places of one look ran out"
        );
    }

    /// What a perfect model sees of `objects` in each tile.
    fn seen(objects: &[BoxXyxy], columns: u32, rows: u32) -> Vec<(Tile, Find)> {
        let mut out = Vec::new();
        for tile in tiles(1000, 600, columns, rows) {
            for object in objects {
                let part = object.intersection(&tile.region());
                if part.area() > 0.1 * object.area() {
                    out.push((tile, find(part, 0.5 + 0.4 * part.area() / object.area())));
                }
            }
        }
        out
    }

    #[test]
    fn a_square_across_a_seam_is_one_box_with_its_score() {
        let square = BoxXyxy::new(470.0, 250.0, 560.0, 340.0);
        let merged = merge(seen(&[square], 2, 2), 1000, 600);
        assert_eq!(merged.len(), 1, "{merged:?}");
        assert!(merged[0].bbox.iou(&square) > 0.98);
        assert!(merged[0].score >= 0.95 * 0.9);
    }

    #[test]
    fn an_object_larger_than_the_overlap_is_joined_from_its_pieces() {
        let long = BoxXyxy::new(100.0, 100.0, 900.0, 200.0);
        let merged = merge(seen(&[long], 3, 1), 1000, 600);
        assert_eq!(merged.len(), 1, "{merged:?}");
        assert!(merged[0].bbox.iou(&long) > 0.98, "{merged:?}");
    }

    #[test]
    fn what_tiles_cut_is_taken_whole_from_the_layer_of_the_whole_picture() {
        let tall = BoxXyxy::new(300.0, 20.0, 420.0, 580.0);
        let small = BoxXyxy::new(600.0, 300.0, 640.0, 360.0);
        let mut found = Vec::new();
        for tile in layers(1000, 600, 2, 2) {
            for object in [tall, small] {
                let part = object.intersection(&tile.region());
                // Too small for the whole picture, unlike in a tile.
                let near = tile.width < 1000 || object.area() > 10_000.0;
                if near && part.area() > 0.1 * object.area() {
                    found.push((tile, find(part, 0.6)));
                }
            }
        }
        let merged = merge(found, 1000, 600);
        assert_eq!(merged.len(), 2, "{merged:?}");
        for object in [tall, small] {
            assert!(
                merged.iter().any(|f| f.bbox.iou(&object) > 0.99),
                "{object:?}"
            );
        }
    }

    #[test]
    fn rows_of_touching_packs_keep_their_count() {
        let packs: Vec<BoxXyxy> = (0..40)
            .map(|i| {
                let (x, y) = ((i % 10) as f32 * 100.0, (i / 10) as f32 * 150.0);
                BoxXyxy::from_xywh(x + 2.0, y + 2.0, 96.0, 146.0)
            })
            .collect();
        for (columns, rows) in [(1, 1), (2, 2), (3, 2), (4, 3)] {
            let merged = merge(seen(&packs, columns, rows), 1000, 600);
            assert_eq!(merged.len(), packs.len(), "{columns}x{rows}");
        }
    }

    proptest! {
        #[test]
        fn tiles_cover_every_pixel(w in 1u32..5000, h in 1u32..5000, c in 1u32..9, r in 1u32..9) {
            let all = tiles(w, h, c, r);
            prop_assert!(all.iter().all(|t| t.x + t.width <= w && t.y + t.height <= h));
            prop_assert!(all.iter().any(|t| t.x == 0 && t.y == 0));
            prop_assert!(all.iter().any(|t| t.x + t.width == w && t.y + t.height == h));
            for pair in spans(w, c).windows(2) {
                prop_assert!(pair[1].0 <= pair[0].0 + pair[0].1);
            }
        }
    }
}
