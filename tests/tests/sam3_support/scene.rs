//! A drawn scene in place of the model: the session's own code runs, masks come from a script.
#![allow(dead_code, unreachable_pub)]

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use shelfscan_inference_core::{FrameTime, RgbImage, SourceId, TextPrompt, TrackId, VideoFrame};
use shelfscan_sam3::{
    Error, Exemplars, MaskLogits, Result,
    tracker::{
        MaskPropagator, Roster, TrackedMasks,
        video::{RawDetections, VideoModel},
    },
};

/// A thing in one frame: columns x0 to x1 and rows y0 to y1 of the mask, exclusive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thing {
    /// Which thing it is, over all frames.
    pub key: u64,
    pub cells: [usize; 4],
    /// What the detector makes of it; below 0.4 it is not seen.
    pub score: f32,
    /// Whether memory carries it on; otherwise its mask is empty.
    pub carried: bool,
}

impl Thing {
    pub fn new(key: u64, cells: [usize; 4], score: f32) -> Self {
        Self {
            key,
            cells,
            score,
            carried: true,
        }
    }
}

/// What is where, by frame and phrase.
type Script = dyn Fn(usize, &str) -> Vec<Thing> + Send + Sync;

/// How often the parts of the model ran.
#[derive(Debug, Default)]
pub struct SceneWork {
    pub features: AtomicUsize,
    pub detections: AtomicUsize,
}

/// A scripted model.
#[derive(Clone)]
pub struct Scene {
    pub side: usize,
    pub slots: usize,
    pub work: Arc<SceneWork>,
    script: Arc<Script>,
    /// Frame the model fails at.
    pub fails_at: Option<usize>,
    /// Cell that is left out of every mask.
    hole: Option<[usize; 2]>,
}

impl Scene {
    pub fn new(
        side: usize,
        script: impl Fn(usize, &str) -> Vec<Thing> + Send + Sync + 'static,
    ) -> Self {
        Self {
            side,
            slots: 16,
            work: Arc::default(),
            script: Arc::new(script),
            fails_at: None,
            hole: None,
        }
    }

    pub fn with_hole(mut self, hole: [usize; 2]) -> Self {
        self.hole = Some(hole);
        self
    }

    fn drawn(&self, cells: [usize; 4]) -> Vec<f32> {
        let mut mask = rectangle(self.side, cells);
        if let Some([x, y]) = self.hole {
            mask[y * self.side + x] = -5.0;
        }
        mask
    }

    fn things(&self, frame: usize, phrase: &str) -> Vec<Thing> {
        (self.script)(frame, phrase)
    }

    /// Source pixels of a thing in a picture of `size`.
    pub fn pixels(&self, thing: &Thing, size: (u32, u32)) -> [f32; 4] {
        let scale = |cells: usize, pixels: u32| cells as f32 * pixels as f32 / self.side as f32;
        let [x0, y0, x1, y1] = thing.cells;
        let (w, h) = size;
        [scale(x0, w), scale(y0, h), scale(x1, w), scale(y1, h)]
    }
}

/// Frame number `n`, which stands in its first pixel.
pub fn numbered_frame(n: usize, (width, height): (u32, u32)) -> VideoFrame {
    let mut pixels = vec![0; (width * height * 3) as usize];
    pixels[..3].copy_from_slice(&(n as u32).to_le_bytes()[..3]);
    VideoFrame {
        image: RgbImage::new(width, height, pixels).unwrap(),
        index: n as u64,
        time: FrameTime::exact(n as f64 / 30.0),
        source: SourceId::new("scene"),
    }
}

/// Logits of a rectangle that falls off evenly over its border, so that it is drawn to the pixel.
pub fn rectangle(side: usize, [x0, y0, x1, y1]: [usize; 4]) -> Vec<f32> {
    (0..side * side)
        .map(|i| {
            let inside = (x0..x1).contains(&(i % side)) && (y0..y1).contains(&(i / side));
            if inside { 5.0 } else { -5.0 }
        })
        .collect()
}

impl VideoModel for Scene {
    type Features = usize;
    type Tracker = SceneTracker;

    fn features(&self, picture: &RgbImage) -> Result<usize> {
        self.work.features.fetch_add(1, Ordering::Relaxed);
        let [a, b, c] = picture.pixel(0, 0).unwrap();
        let frame = u32::from_le_bytes([a, b, c, 0]) as usize;
        if self.fails_at == Some(frame) {
            return Err(Error::NonFinite { stage: "a test" });
        }
        Ok(frame)
    }

    fn detections(
        &self,
        frame: &usize,
        prompts: &[TextPrompt],
        score_threshold: f32,
    ) -> Result<Vec<RawDetections>> {
        self.work.detections.fetch_add(1, Ordering::Relaxed);
        let answer = |prompt: &TextPrompt| {
            let mut raw = RawDetections::none(self.side);
            for thing in self.things(*frame, &prompt.phrase) {
                if thing.score > score_threshold {
                    let unit = |a: usize| a as f32 / self.side as f32;
                    let [x0, y0, x1, y1] = thing.cells.map(unit);
                    raw.scores.push(thing.score);
                    raw.boxes
                        .push([x0.midpoint(x1), y0.midpoint(y1), x1 - x0, y1 - y0]);
                    raw.masks.values.extend(self.drawn(thing.cells));
                }
            }
            raw
        };
        Ok(prompts.iter().map(answer).collect())
    }

    /// All things of the phrase, which look alike to a script.
    fn like(
        &self,
        frame: &usize,
        prompt: &TextPrompt,
        _: &Exemplars,
        score_threshold: f32,
    ) -> Result<RawDetections> {
        let prompts = std::slice::from_ref(prompt);
        let mut found = self.detections(frame, prompts, score_threshold)?;
        Ok(found.remove(0))
    }

    fn tracker(&self) -> Result<SceneTracker> {
        Ok(SceneTracker {
            scene: self.clone(),
            roster: Roster::new(self.slots),
            followed: BTreeMap::new(),
            frame: 0,
            most_buckets: 0,
        })
    }

    fn hand_over(&self, features: &usize, _: usize, tracker: &mut SceneTracker) -> Result<()> {
        tracker.frame = *features;
        Ok(())
    }
}

/// Follows the thing that each object was born on.
pub struct SceneTracker {
    scene: Scene,
    roster: Roster,
    /// Phrase and key of each object.
    followed: BTreeMap<TrackId, (String, u64)>,
    frame: usize,
    pub most_buckets: usize,
}

impl SceneTracker {
    fn thing(&self, phrase: &str, key: u64) -> Option<Thing> {
        let things = self.scene.things(self.frame, phrase);
        things.into_iter().find(|thing| thing.key == key)
    }

    pub fn key(&self, id: TrackId) -> Option<u64> {
        self.followed.get(&id).map(|(_, key)| *key)
    }
}

impl MaskPropagator for SceneTracker {
    fn mask_side(&self) -> usize {
        self.scene.side
    }

    fn propagate(&mut self, _: usize) -> Result<TrackedMasks> {
        let side = self.scene.side;
        let mut values = Vec::new();
        let mut scores = Vec::new();
        for (phrase, key) in self.followed.values() {
            let thing = self.thing(phrase, *key).filter(|thing| thing.carried);
            scores.push(if thing.is_some() { 4.0 } else { -4.0 });
            values.extend(match thing {
                Some(thing) => self.scene.drawn(thing.cells),
                None => vec![-1024.0; side * side],
            });
        }
        Ok(TrackedMasks {
            ids: self.followed.keys().copied().collect(),
            masks: MaskLogits { side, values },
            scores,
        })
    }

    fn recondition(&mut self, _: usize, ids: &[TrackId], _: &MaskLogits) -> Result<()> {
        assert!(ids.iter().all(|id| self.followed.contains_key(id)));
        Ok(())
    }

    fn remember(&mut self, _: usize, masks: &TrackedMasks, _: f32) -> Result<()> {
        assert!(masks.ids.iter().eq(self.followed.keys()));
        Ok(())
    }

    fn add(&mut self, _: usize, ids: &[TrackId], detections: &MaskLogits) -> Result<()> {
        self.roster.add(ids);
        self.most_buckets = self.most_buckets.max(self.roster.buckets());
        for (i, id) in ids.iter().enumerate() {
            let mask = detections.mask(i);
            // Scripts use distinct rectangles, so the mask names the thing.
            let found = ["product", "can"].iter().find_map(|phrase| {
                let things = self.scene.things(self.frame, phrase);
                let same = |t: &Thing| self.scene.drawn(t.cells) == mask;
                let thing = things.into_iter().find(same)?;
                Some(((*phrase).to_owned(), thing.key))
            });
            self.followed.insert(*id, found.unwrap());
        }
        Ok(())
    }

    fn remove(&mut self, ids: &[TrackId]) -> Result<()> {
        self.roster.remove(ids);
        self.followed.retain(|id, _| !ids.contains(id));
        Ok(())
    }

    fn roster(&self) -> &Roster {
        &self.roster
    }
}
