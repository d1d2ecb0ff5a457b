//! What the planning of a frame costs beside the model, by objects in view.
//!
//! Masks are 288 x 288 as the released model draws them, and every object has its detection.

use divan::{Bencher, black_box};
use shelfscan_inference_core::TrackId;
use shelfscan_sam3::{
    MaskLogits, Result,
    suppress::Chain,
    tracker::{
        MaskPropagator, Roster, TrackedMasks,
        video::{Candidates, Composer, Planner, RawDetections, TrackIds, VideoOptions},
    },
};

const SIDE: usize = 288;

fn main() {
    divan::main();
}

/// Packs of a shelf in rows of 20, as many as asked for.
fn shelf(objects: usize) -> RawDetections {
    let rows = objects.div_ceil(20).max(1);
    let (w, h) = (SIDE / 20, SIDE / rows);
    let mut raw = RawDetections::none(SIDE);
    for i in 0..objects {
        let (x, y) = (i % 20 * w, i / 20 * h);
        let inside = |px: usize, py: usize| {
            (x + 1..x + w - 1).contains(&px) && (y + 1..y + h - 1).contains(&py)
        };
        raw.scores.push(0.9);
        raw.boxes.push([
            (x as f32 + 0.5 * w as f32) / SIDE as f32,
            (y as f32 + 0.5 * h as f32) / SIDE as f32,
            w as f32 / SIDE as f32,
            h as f32 / SIDE as f32,
        ]);
        let cells = (0..SIDE * SIDE).map(|c| {
            if inside(c % SIDE, c / SIDE) {
                5.0
            } else {
                -5.0
            }
        });
        raw.masks.values.extend(cells);
    }
    raw
}

/// Hands the masks of a still shelf back.
struct Still {
    roster: Roster,
    masks: Vec<f32>,
}

impl MaskPropagator for Still {
    fn mask_side(&self) -> usize {
        SIDE
    }

    fn propagate(&mut self, _: usize) -> Result<TrackedMasks> {
        let mut ids: Vec<TrackId> = Vec::new();
        for state in self.roster.states() {
            ids.extend(&state.ids);
        }
        ids.sort_unstable();
        Ok(TrackedMasks {
            scores: vec![4.0; ids.len()],
            ids,
            masks: MaskLogits {
                side: SIDE,
                values: self.masks.clone(),
            },
        })
    }

    fn recondition(&mut self, _: usize, _: &[TrackId], _: &MaskLogits) -> Result<()> {
        Ok(())
    }

    fn remember(&mut self, _: usize, masks: &TrackedMasks, _: f32) -> Result<()> {
        black_box(masks.ids.len());
        Ok(())
    }

    fn add(&mut self, _: usize, ids: &[TrackId], masks: &MaskLogits) -> Result<()> {
        self.roster.add(ids);
        self.masks.extend_from_slice(&masks.values);
        Ok(())
    }

    fn remove(&mut self, ids: &[TrackId]) -> Result<()> {
        self.roster.remove(ids);
        Ok(())
    }

    fn roster(&self) -> &Roster {
        &self.roster
    }
}

/// One frame from the detector's answer to masks over a 1920 x 1080 picture. In every second case
/// the frame has no detection.
#[divan::bench(args = [(20, true), (20, false), (200, true), (200, false)])]
fn frame(bencher: Bencher<'_, '_>, (objects, detect): (usize, bool)) {
    let options = VideoOptions {
        border_margin: None,
        ..VideoOptions::default()
    };
    let raw = shelf(objects);
    let run = || -> Result<(Planner, Composer, Still, TrackIds)> {
        let mut planner = Planner::new(&options)?;
        let mut still = Still {
            roster: Roster::new(16),
            masks: Vec::new(),
        };
        let mut ids = TrackIds::default();
        let found = Candidates::select(&raw, Chain::Matrix, &options)?;
        planner.step(0, Some(&found), &mut still, &mut ids)?;
        Ok((planner, Composer::new(&options), still, ids))
    };
    let Ok((mut planner, mut composer, mut still, mut ids)) = run() else {
        return;
    };
    let mut at = 0;
    bencher.bench_local(|| {
        at += 1;
        let found = detect
            .then(|| Candidates::select(&raw, Chain::Greedy, &options))
            .transpose()
            .ok()
            .flatten();
        let planned = planner.step(at, found.as_ref(), &mut still, &mut ids);
        if let Ok(planned) = planned {
            composer.push(at, &planned, (1920, 1080));
        }
        black_box(composer.pop())
    });
}
