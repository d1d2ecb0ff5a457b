//! Frames in, tracks out.

use std::collections::VecDeque;

use shelfscan_inference_core::{
    Detection, FrameDetections, Notice, RgbImage, TextPrompt, VideoFrame,
};

use super::{
    Candidates, Composer, FrameReport, Planner, RawDetections, TrackIds, VideoOptions,
    marked::{checked, nearest},
};
use crate::{
    Error, Exemplars, Result, phrases::need_any, suppress::Chain, tracker::MaskPropagator,
};

/// The model behind a video, or a script in its place.
pub trait VideoModel {
    /// What is computed once for a frame, whatever is asked about it.
    type Features;
    /// What follows the objects of one prompt.
    type Tracker: MaskPropagator;

    /// The features of a picture.
    ///
    /// # Errors
    /// A failure of the model.
    fn features(&self, picture: &RgbImage) -> Result<Self::Features>;

    /// What the prompts find, one entry a prompt: everything above `score_threshold`, with masks.
    ///
    /// # Errors
    /// A failure of the model.
    fn detections(
        &self,
        features: &Self::Features,
        prompts: &[TextPrompt],
        score_threshold: f32,
    ) -> Result<Vec<RawDetections>>;

    /// What looks like the examples: everything above `score_threshold`, with masks. The phrase says
    /// what they are, or is `"visual"`.
    ///
    /// # Errors
    /// A failure of the model.
    fn like(
        &self,
        features: &Self::Features,
        prompt: &TextPrompt,
        examples: &Exemplars,
        score_threshold: f32,
    ) -> Result<RawDetections>;

    /// A tracker that follows nothing yet.
    ///
    /// # Errors
    /// A failure of the model.
    fn tracker(&self) -> Result<Self::Tracker>;

    /// Gives a tracker the features of frame number `frame`, before it is asked about that frame.
    ///
    /// # Errors
    /// A failure of the model.
    fn hand_over(
        &self,
        features: &Self::Features,
        frame: usize,
        tracker: &mut Self::Tracker,
    ) -> Result<()>;

    /// What the user has to know about a prompt, such as that it is too long.
    ///
    /// # Errors
    /// A failure of the model.
    fn notices(&self, prompt: &TextPrompt) -> Result<Vec<Notice>> {
        let _ = prompt;
        Ok(Vec::new())
    }
}

/// One prompt with its objects. Prompts share nothing but the features of a frame and the ids, so
/// that one that is added later leaves the tracks of the others as they are.
struct Lane<T> {
    prompt: TextPrompt,
    /// Objects that were marked in the first frame. Without any, the phrase is asked for in every
    /// detection frame.
    marked: Option<Exemplars>,
    /// The session's own, or those for marked objects.
    options: VideoOptions,
    planner: Planner,
    composer: Composer,
    /// Made with the first frame.
    tracker: Option<T>,
}

impl<T> Lane<T> {
    /// True as long as no frame went through.
    fn is_new(&self) -> bool {
        self.tracker.is_none()
    }

    /// Whether the detector looks for it in a frame; `turn` when it is a detection frame.
    fn is_asked(&self, turn: bool) -> bool {
        self.is_new() || (turn && self.marked.is_none())
    }
}

/// A frame whose result is not out yet.
struct HeldFrame {
    /// Position among the frames that were pushed.
    at: usize,
    /// Index in the source.
    index: u64,
    notices: Vec<Notice>,
}

/// Follows what phrases name through the frames of one source, pushed one at a time.
///
/// A result comes out once no later frame can change it, at most
/// [`VideoOptions::delay_frames`] after its frame. What is kept between frames depends on the
/// objects in view and the delay, not on how many frames went by.
pub struct VideoSession<M: VideoModel> {
    model: M,
    options: VideoOptions,
    lanes: Vec<Lane<M::Tracker>>,
    ids: TrackIds,
    held: VecDeque<HeldFrame>,
    /// Frames that were pushed.
    pushed: usize,
    size: Option<(u32, u32)>,
    last_index: Option<u64>,
    failed: bool,
}

impl<M: VideoModel> VideoSession<M> {
    /// A session without a frame.
    ///
    /// # Errors
    /// No prompt, or an option that cannot be met.
    pub fn new(model: M, prompts: &[TextPrompt], options: &VideoOptions) -> Result<Self> {
        need_any(prompts)?;
        let mut session = Self::without_prompt(model, options)?;
        for prompt in prompts {
            session.add_prompt(prompt)?;
        }
        Ok(session)
    }

    /// A session that looks for nothing yet; see [`follow_marked`](Self::follow_marked) and
    /// [`add_prompt`](Self::add_prompt).
    ///
    /// # Errors
    /// An option that cannot be met.
    pub fn without_prompt(model: M, options: &VideoOptions) -> Result<Self> {
        options.validate()?;
        Ok(Self {
            model,
            options: options.clone(),
            lanes: Vec::new(),
            ids: TrackIds::default(),
            held: VecDeque::new(),
            pushed: 0,
            size: None,
            last_index: None,
            failed: false,
        })
    }

    /// Looks for a further phrase from the next frame on. Tracks that are there stay as they are.
    ///
    /// # Errors
    /// The options cannot be met.
    pub fn add_prompt(&mut self, prompt: &TextPrompt) -> Result<()> {
        self.add_lane(prompt, None, self.options.clone())
    }

    /// Follows the objects inside of boxes in the next frame. Each box is `[cx, cy, w, h]` in 0 to 1
    /// of the picture. The detector is asked once, with the boxes as examples, and of what it finds
    /// the object that fits each box best is taken; from then on memory alone carries it, so that
    /// neither its likes nor later detections change it. `prompt` names the results, and its phrase
    /// goes to the detector along with the boxes; SAM 3's own phrase for boxes alone is `"visual"`.
    ///
    /// # Errors
    /// No box, or one outside of the picture.
    pub fn follow_marked(&mut self, prompt: &TextPrompt, boxes: &[[f32; 4]]) -> Result<()> {
        let marked = checked(boxes)?;
        let options = VideoOptions {
            birth_score: self.options.score_threshold,
            border_margin: None,
            confirm_consecutive: 1,
            hot_start_frames: 0,
            retire_after: None,
            ..self.options.clone()
        };
        self.add_lane(prompt, Some(marked), options)
    }

    fn add_lane(
        &mut self,
        prompt: &TextPrompt,
        marked: Option<Exemplars>,
        options: VideoOptions,
    ) -> Result<()> {
        self.lanes.push(Lane {
            prompt: prompt.clone(),
            marked,
            planner: Planner::new(&options)?,
            composer: Composer::new(&options),
            options,
            tracker: None,
        });
        Ok(())
    }

    /// The options it was made with.
    pub fn options(&self) -> &VideoOptions {
        &self.options
    }

    /// The objects of each prompt, in the prompts' order.
    pub fn planners(&self) -> impl Iterator<Item = (&TextPrompt, &Planner)> {
        self.lanes.iter().map(|lane| (&lane.prompt, &lane.planner))
    }

    /// The tracker of each prompt, in the prompts' order.
    pub fn trackers(&self) -> impl Iterator<Item = &M::Tracker> {
        self.lanes.iter().filter_map(|lane| lane.tracker.as_ref())
    }

    /// Entries of every table that is kept between frames, the tracker's memory aside.
    pub fn state_entries(&self) -> usize {
        let lanes = self.lanes.iter();
        let own = lanes.map(|l| l.planner.state_entries() + l.composer.state_entries());
        own.sum::<usize>() + self.held.len()
    }

    /// Takes the next frame; returns the frames whose results are final, in order.
    ///
    /// # Errors
    /// A frame of another size or out of order, which leaves the session as it was; or a failure
    /// of the model, after which only [`finish`](Self::finish) is left.
    pub fn push(&mut self, frame: &VideoFrame) -> Result<Vec<FrameDetections>> {
        self.check(frame)?;
        // Only a step that went through clears it.
        self.failed = true;
        let notices = self.step(&frame.image)?;
        self.failed = false;
        self.held.push_back(HeldFrame {
            at: self.pushed,
            index: frame.index,
            notices,
        });
        self.pushed += 1;
        let keep = self.options.delay_frames();
        let mut out = Vec::new();
        while self.held.len() > keep {
            out.extend(self.pop());
        }
        Ok(out)
    }

    /// Ends the session; returns the frames still held back. Where there were too few frames to
    /// confirm anything, what every one of them had is shown.
    pub fn finish(mut self) -> Vec<FrameDetections> {
        for lane in &mut self.lanes {
            let frames = lane.options.look_ahead_frames() + 1;
            if self.pushed < frames {
                let steady = lane.planner.objects().iter().filter(|o| o.unmatched == 0);
                lane.composer.confirm(steady.map(|object| object.id));
            }
        }
        let mut out = Vec::with_capacity(self.held.len());
        while let Some(frame) = self.pop() {
            out.push(frame);
        }
        out
    }

    fn check(&mut self, frame: &VideoFrame) -> Result<()> {
        let fail = |text: String| Err(Error::InvalidInput(text));
        if self.failed {
            return fail("the session failed at an earlier frame; start a new one".into());
        }
        let size = (frame.image.width(), frame.image.height());
        let first = *self.size.get_or_insert(size);
        if first != size {
            return fail(format!(
                "frame {} is {}x{} in a session of {}x{}; start a new session",
                frame.index, size.0, size.1, first.0, first.1
            ));
        }
        if self.last_index.is_some_and(|last| frame.index <= last) {
            return fail(format!(
                "frame {} does not come after the last one; push frames in order",
                frame.index
            ));
        }
        self.last_index = Some(frame.index);
        Ok(())
    }

    /// Takes a picture through all prompts; gives what the user has to know.
    fn step(&mut self, picture: &RgbImage) -> Result<Vec<Notice>> {
        let at = self.pushed;
        let size = (picture.width(), picture.height());
        let turn = at.is_multiple_of(self.options.detect_every);
        let by_phrase = self.lanes.iter().filter(|lane| lane.marked.is_none());
        let asking = by_phrase.filter(|lane| lane.is_asked(turn));
        let asked: Vec<TextPrompt> = asking.map(|lane| lane.prompt.clone()).collect();
        let idle =
            |lane: &Lane<M::Tracker>| lane.planner.objects().is_empty() && !lane.is_asked(turn);
        let features = if self.lanes.iter().all(idle) {
            None
        } else {
            Some(self.model.features(picture)?)
        };
        let mut found = match &features {
            Some(features) if !asked.is_empty() => {
                let threshold = self.options.score_threshold;
                self.model.detections(features, &asked, threshold)?
            }
            _ => Vec::new(),
        };
        if found.len() != asked.len() {
            return Err(Error::InvalidInput(format!(
                "{} prompts were answered for {}",
                found.len(),
                asked.len()
            )));
        }
        let mut found = found.drain(..);
        let mut notices = Vec::new();
        for lane in &mut self.lanes {
            let raw = match (&lane.marked, &features) {
                _ if !lane.is_asked(turn) => None,
                (None, _) => found.next(),
                (Some(_), None) => None,
                (Some(marked), Some(features)) => {
                    let threshold = self.options.score_threshold;
                    let like = self.model.like(features, &lane.prompt, marked, threshold)?;
                    let (own, missed) = nearest(&like, marked);
                    if missed > 0 {
                        notices.push(marked_missed(&lane.prompt, missed, marked.boxes.len()));
                    }
                    Some(own)
                }
            };
            let first = lane.is_new();
            if first {
                notices.extend(self.model.notices(&lane.prompt)?);
                lane.tracker = Some(self.model.tracker()?);
            }
            let Some(tracker) = &mut lane.tracker else {
                continue;
            };
            let needed = !lane.planner.objects().is_empty()
                || raw.as_ref().is_some_and(|raw| !raw.scores.is_empty());
            if needed && let Some(features) = &features {
                self.model.hand_over(features, at, tracker)?;
            }
            let mut steps = Steps {
                at,
                size,
                planner: &mut lane.planner,
                composer: &mut lane.composer,
                tracker,
                ids: &mut self.ids,
            };
            let Some(raw) = raw else {
                steps.pass(None)?;
                continue;
            };
            let left_out = steps.detect(&raw, first, &lane.options)?;
            let phrase = &lane.prompt.phrase;
            if raw.full {
                notices.push(Notice::new(
                    "query_cap_hit",
                    format!(
                        "\"{phrase}\" filled all places the model has, so some objects may be \
                         missing; tracking does not cut frames into tiles, so film a smaller part \
                         of the shelf"
                    ),
                ));
            }
            if left_out > 0 {
                notices.push(Notice::new(
                    "object_limit_hit",
                    format!(
                        "\"{phrase}\" found {left_out} more objects than the {} that are followed \
                         at once; film a smaller part of the shelf, or raise max_objects where \
                         an app sets it",
                        self.options.max_objects
                    ),
                ));
            }
        }
        Ok(notices)
    }

    fn pop(&mut self) -> Option<FrameDetections> {
        let frame = self.held.pop_front()?;
        let mut found = Vec::new();
        for lane in &mut self.lanes {
            if lane.composer.oldest() != Some(frame.at) {
                continue;
            }
            let objects = lane.composer.pop().unwrap_or_default();
            found.extend(objects.into_iter().map(|object| Detection {
                label: lane.prompt.label.clone(),
                prompt: lane.prompt.phrase.clone(),
                score: object.score,
                bbox: object.bbox,
                mask: Some(object.mask),
                track_id: Some(object.id),
            }));
        }
        found.sort_by(|a, b| {
            b.score
                .total_cmp(&a.score)
                .then(a.track_id.cmp(&b.track_id))
        });
        Some(FrameDetections {
            frame_index: frame.index,
            detections: found,
            notices: frame.notices,
        })
    }
}

fn marked_missed(prompt: &TextPrompt, missed: usize, all: usize) -> Notice {
    Notice::new(
        "marked_missed",
        format!(
            "nothing was found in {missed} of the {all} boxes of \"{}\", so it is not followed; draw \
             them close around the object",
            prompt.phrase
        ),
    )
}

/// The passes of one prompt over one frame.
struct Steps<'a, T> {
    at: usize,
    size: (u32, u32),
    planner: &'a mut Planner,
    composer: &'a mut Composer,
    tracker: &'a mut T,
    ids: &'a mut TrackIds,
}

impl<T: MaskPropagator> Steps<'_, T> {
    /// A frame with detections; gives how many newcomers were left out.
    fn detect(
        &mut self,
        raw: &RawDetections,
        first: bool,
        options: &VideoOptions,
    ) -> Result<usize> {
        let mut left_out = 0;
        if first {
            let found = Candidates::select(raw, Chain::Matrix, options)?;
            left_out = self.pass(Some(&found))?.left_out;
        }
        if !first || options.second_pass {
            let found = Candidates::select(raw, Chain::Greedy, options)?;
            left_out = self.pass(Some(&found))?.left_out;
        }
        Ok(left_out)
    }

    fn pass(&mut self, found: Option<&Candidates<'_>>) -> Result<FrameReport> {
        let planned = self.planner.step(self.at, found, self.tracker, self.ids)?;
        self.composer.push(self.at, &planned, self.size);
        Ok(planned.report)
    }
}
