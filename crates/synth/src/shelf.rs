//! A whole shelf drawn once, for a camera to move over.

use rayon::prelude::*;
use shelfscan_inference_core::{BoxXyxy, TrackId};

use crate::{
    Result, SynthError,
    canvas::{Picture, Rgb, hsv, scale},
    field::Field,
    plan::{DENSITY, Place, ShelfPlan, places},
    seeded::Seeded,
    shapes,
    sku::{PRICE_TAG, Sku},
    stage::{Put, Stage},
    tag::price_tag,
};

/// Pixels of a drawn shelf at most.
const MAX_WORLD_PX: usize = 80_000_000;

/// One object on a shelf: a pack, or a price tag.
#[derive(Clone, Debug, PartialEq)]
pub struct ShelfObject {
    /// Its id in every truth, from 1: packs in reading order, then price tags.
    pub track_id: TrackId,
    /// The SKU; `None` for a price tag.
    pub sku: Option<Sku>,
    /// Where it stands, in world pixels.
    pub bbox: BoxXyxy,
    /// Its whole area, world px.
    pub(crate) whole_px: f32,
}

impl ShelfObject {
    /// The category's word, such as `bottle` or `price tag`.
    pub fn category(&self) -> &'static str {
        self.sku.map_or(PRICE_TAG, |sku| sku.category().word())
    }
}

/// A drawn shelf. World pixels are its own; a frame at zoom 1 has a little fewer.
#[derive(Clone, Debug)]
pub struct Shelf {
    plan: ShelfPlan,
    pub(crate) w: usize,
    pub(crate) h: usize,
    /// Red, green, blue, and nothing.
    pub(crate) px: Vec<[u8; 4]>,
    pub(crate) ids: Vec<u16>,
    objects: Vec<ShelfObject>,
}

impl Shelf {
    /// Draws the shelf of a plan; `pictures` are printed on packs. Equal arguments give equal
    /// pixels at any number of threads.
    ///
    /// # Errors
    /// [`SynthError::OutOfRange`] when the plan cannot be met.
    pub fn draw(plan: &ShelfPlan, pictures: &[Picture]) -> Result<Self> {
        plan.check()?;
        let (mut places, length) = places(plan)?;
        let margin = plan.frame_px.0 as f32 * DENSITY * 0.06;
        for place in &mut places {
            place.x += margin;
        }
        let w = (length + margin * 2.0).ceil() as usize;
        let h = (plan.frame_px.1 as f32 * DENSITY * 1.3).ceil() as usize;
        if w * h > MAX_WORLD_PX {
            return Err(SynthError::OutOfRange(format!(
                "a shelf of {w}x{h} px is too large to draw; plan smaller frames or a shorter shelf"
            )));
        }
        let mut room = Room::new(plan, w, h);
        room.wall();
        let mut objects = Vec::new();
        for row in 0..plan.rows {
            let of_row: Vec<&Place> = places.iter().filter(|p| p.row == row).collect();
            room.row(plan, row, &of_row, pictures, &mut objects);
        }
        for row in 0..plan.rows {
            let of_row: Vec<&Place> = places.iter().filter(|p| p.row == row).collect();
            room.tags(row, &of_row, &mut objects);
        }
        let px = room.stage.px.iter().map(|p| {
            let [r, g, b] = p.map(|v| (v.clamp(0.0, 1.0) * 255.0 + 0.5) as u8);
            [r, g, b, 0]
        });
        Ok(Self {
            plan: plan.clone(),
            w,
            h,
            px: px.collect(),
            ids: room.stage.ids,
            objects,
        })
    }

    /// The plan it was drawn from.
    pub fn plan(&self) -> &ShelfPlan {
        &self.plan
    }

    /// Width and height in world pixels.
    pub fn size_px(&self) -> (u32, u32) {
        (self.w as u32, self.h as u32)
    }

    /// All packs and price tags, by id.
    pub fn objects(&self) -> &[ShelfObject] {
        &self.objects
    }

    /// The packs alone, by id.
    pub fn packs(&self) -> impl Iterator<Item = &ShelfObject> {
        self.objects.iter().filter(|o| o.sku.is_some())
    }
}

/// The shelf while it is being drawn.
struct Room {
    stage: Stage,
    rng: Seeded,
    pitch: f32,
    top: f32,
    board: Rgb,
    thick: f32,
    wall: Rgb,
    dark: f32,
    tag_style: u64,
    rail: bool,
}

impl Room {
    fn new(plan: &ShelfPlan, w: usize, h: usize) -> Self {
        let mut rng = Seeded::of(&[0x726f_6f6d, plan.seed]);
        let pitch = plan.pitch();
        let board = match rng.below(4) {
            0 | 1 => hsv(rng.unit(), rng.range(0.0, 0.05), rng.range(0.75, 0.95)),
            2 => hsv(
                rng.range(0.04, 0.09),
                rng.range(0.35, 0.6),
                rng.range(0.3, 0.6),
            ),
            _ => hsv(rng.unit(), rng.range(0.0, 0.1), rng.range(0.25, 0.5)),
        };
        Self {
            stage: Stage::new(w, h, [0.3; 3]),
            pitch,
            top: (h as f32 - pitch * plan.rows as f32) * 0.5,
            board,
            thick: pitch * rng.range(0.07, 0.1),
            wall: hsv(rng.unit(), rng.range(0.0, 0.1), rng.range(0.35, 0.85)),
            dark: rng.range(0.4, 0.7),
            tag_style: rng.next_u64(),
            rail: rng.chance(0.5),
            rng,
        }
    }

    fn floor(&self, row: u32) -> f32 {
        self.top + self.pitch * (row + 1) as f32 - self.thick
    }

    fn wall(&mut self) {
        let (w, h) = (self.stage.w as f32, self.stage.h as f32);
        let grain = Field::new(&mut self.rng, 40, 12);
        let (wall, holes) = (self.wall, self.pitch * 0.07);
        let perforated = self.rng.chance(0.4);
        self.stage.fill([0.0, 0.0, w, h], |x, y| {
            let mut value = 0.85 + 0.06 * grain.at(x / w, y / h);
            if perforated && (x % holes) < 2.0 && (y % holes) < 2.0 {
                value *= 0.5;
            }
            scale(wall, value)
        });
        // Posts that carry the boards.
        let step = self.pitch * 2.6;
        let mut x = step * 0.3;
        while x < w {
            let wide = self.pitch * 0.05;
            self.stage.fill([x, 0.0, x + wide, h], |px, _| {
                scale(wall, 0.6 + 0.5 * ((px - x) / wide - 0.5).abs())
            });
            x += step;
        }
    }

    fn row(
        &mut self,
        plan: &ShelfPlan,
        row: u32,
        places: &[&Place],
        pictures: &[Picture],
        objects: &mut Vec<ShelfObject>,
    ) {
        let (w, floor) = (self.stage.w as f32, self.floor(row));
        let ceiling = floor + self.thick - self.pitch;
        let (dark, span) = (self.dark, floor - ceiling);
        self.stage.tint([0.0, ceiling, w, floor], |p, _, y| {
            scale(p, dark + (1.0 - dark) * ((y - ceiling) / span).powf(0.8))
        });
        let depth = self.thick * 0.5;
        let board = self.board;
        self.stage.fill([0.0, floor - depth, w, floor], |_, y| {
            scale(board, 0.4 + 0.35 * (y - floor + depth) / depth)
        });
        // Packs are drawn side by side on all cores and put down in order.
        let seeds: Vec<u64> = places.iter().map(|_| self.rng.next_u64()).collect();
        let looks: Vec<_> = places
            .par_iter()
            .zip(&seeds)
            .map(|(place, &seed)| {
                shapes::draw(
                    place.sku,
                    &mut Seeded::of(&[plan.seed, seed]),
                    place.h,
                    0.3,
                    pictures,
                )
            })
            .collect();
        for (place, look) in places.iter().zip(&looks) {
            let id = objects.len() as u16 + 1;
            // A look with a side face is wider than its front; it is put down as wide as planned.
            let (w, h) = (place.w, place.h * (1.0 + self.rng.normal() * 0.006));
            let forward = depth * self.rng.range(0.0, 0.5);
            let at = Put {
                gain: self.rng.range(1.0, 1.12),
                turn: if self.rng.chance(0.12) {
                    self.rng.normal() * 0.012
                } else {
                    0.0
                },
                shadow: 0.4,
                ..Put::new(
                    place.x + self.rng.normal() * 0.004 * w,
                    floor - depth * 0.6 + forward - h,
                    w,
                    h,
                )
            };
            let whole_px = self.stage.put(look, at, id);
            objects.push(ShelfObject {
                track_id: TrackId(u64::from(id)),
                sku: Some(place.sku),
                bbox: BoxXyxy::from_xywh(at.x, at.y, w, h),
                whole_px,
            });
        }
        let (thick, rail) = (self.thick, self.rail);
        self.stage.fill([0.0, floor, w, floor + thick], |_, y| {
            let v = (y - floor) / thick;
            let lip = if (0.1..0.9).contains(&v) { 1.0 } else { 0.7 };
            let colour = if rail && (0.1..0.9).contains(&v) {
                [0.93, 0.93, 0.91]
            } else {
                board
            };
            scale(colour, (1.05 - 0.25 * v) * lip)
        });
        let reach = thick * 1.6;
        self.stage
            .tint([0.0, floor + thick, w, floor + thick + reach], |p, _, y| {
                scale(p, 0.5 + 0.5 * (y - floor - thick) / reach)
            });
    }

    fn tags(&mut self, row: u32, places: &[&Place], objects: &mut Vec<ShelfObject>) {
        let floor = self.floor(row);
        for place in places.iter().filter(|p| p.leads) {
            let height = self.thick * 0.86;
            let tag = price_tag(self.tag_style, &mut self.rng, height * 1.3);
            let width = height * tag.w as f32 / tag.h as f32;
            let id = objects.len() as u16 + 1;
            let x = place.x + place.w * self.rng.range(0.0, 0.3);
            let at = Put::new(x, floor + self.thick * 0.07, width, height);
            let whole_px = self.stage.put(&tag, at, id);
            objects.push(ShelfObject {
                track_id: TrackId(u64::from(id)),
                sku: None,
                bbox: BoxXyxy::from_xywh(at.x, at.y, width, height),
                whole_px,
            });
        }
    }
}
