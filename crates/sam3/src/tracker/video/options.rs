//! Every number the planning of a video depends on.

use serde::{Deserialize, Serialize};

use crate::{Error, Result, suppress::Overlap};

/// How objects are born, kept, shown and dropped. The default behaves as the reference does, but
/// for [`max_objects`](Self::max_objects) and [`retire_after`](Self::retire_after);
/// [`reference`](Self::reference) is the reference to the letter.
///
/// Overlaps are shares of masks at the model's own size. Frames are counted as they are pushed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct VideoOptions {
    /// Detections need more than this probability. Reference: 0.4 (`score_threshold_detection`).
    pub score_threshold: f32,
    /// Of two detections that overlap by more than this, the better stays. Reference: 0.1
    /// (`det_nms_thresh`).
    pub duplicate_overlap: f32,
    /// What [`duplicate_overlap`](Self::duplicate_overlap) is a share of. Reference: the smaller
    /// mask (`det_nms_use_iom`).
    pub duplicate_metric: Overlap,
    /// Detections whose box centre lies in this share of the picture along its border are not
    /// taken up; `None` takes all. Reference: 0.025 (`suppress_det_close_to_boundary`).
    pub border_margin: Option<f32>,
    /// A detection and an object that overlap by at least this belong together, and no object is
    /// born from the detection. Reference: 0.1 (`assoc_iou_thresh`).
    pub match_overlap: f32,
    /// An object is unmatched when no detection overlaps it by at least this. Reference: 0.5
    /// (`trk_assoc_iou_thresh`).
    pub track_overlap: f32,
    /// What [`match_overlap`](Self::match_overlap), [`track_overlap`](Self::track_overlap) and
    /// [`recondition_overlap`](Self::recondition_overlap) are shares of. Reference: the smaller
    /// mask (`use_iom_recondition`).
    pub match_metric: Overlap,
    /// An object is born from a detection of at least this probability. Reference: 0.65
    /// (`new_det_thresh`).
    pub birth_score: f32,
    /// Reconditioning needs at least this probability of the detection and more than this of the
    /// object. Reference: 0.8 (`high_conf_thresh`).
    pub high_confidence: f32,
    /// In the first detection frame of every so many frames, masks of objects are brought in line
    /// with confident detections; 0 for never. Reference: 16 (`recondition_every_nth_frame`).
    pub recondition_every: usize,
    /// Reconditioning needs at least this overlap, and detections and objects that have it with
    /// more than one partner are left out of the matching. Reference: 0.5
    /// (`iom_thresh_recondition`).
    pub recondition_overlap: f32,
    /// An object is on trial for so many frames from its birth; 0 for never. Results are held back
    /// that long, so that an object that fails is never shown. Reference: 15 (`hotstart_delay`).
    pub hot_start_frames: usize,
    /// An object on trial goes when it was unmatched in this many frames. Reference: 8
    /// (`hotstart_unmatch_thresh`).
    pub hot_start_unmatched: u32,
    /// An object on trial goes when it shared this many detections with one older object.
    /// Reference: 8 (`hotstart_dup_thresh`).
    pub hot_start_duplicates: u32,
    /// Of two objects whose masks overlap by at least this share of their union, the one that was
    /// hidden last is hidden. Reference: 0.7
    /// (`suppress_overlapping_based_on_recent_occlusion_threshold`).
    pub occlusion_overlap: f32,
    /// Whether an object that was never hidden can hide another one. Reference: no
    /// (`allow_unoccluded_to_suppress`).
    pub unoccluded_may_hide: bool,
    /// An object is shown from its birth on when this many detection frames in a row had it; 1
    /// shows all. Reference: 3 (`masklet_confirmation_consecutive_det_thresh`).
    pub confirm_consecutive: u32,
    /// A mask that wins less than this share of its own pixels against the others is kept out of
    /// memory. Reference: 0.3.
    pub area_shrink: f32,
    /// Holes in a mask of at most so many cells are filled, and specks of at most as many removed;
    /// 0 leaves masks as they are. Reference: 0 (`fill_hole_area`).
    pub mend_cells: usize,
    /// Objects of one prompt that are followed at once; the weakest newcomers are left out.
    /// Reference: 16 (`max_num_objects`); a shelf needs more, and the cost grows by buckets of 16.
    pub max_objects: usize,
    /// An object without a matching detection for more than so many frames is dropped, at least
    /// two detection frames; `None` never drops one after its trial. Reference: never.
    pub retire_after: Option<usize>,
    /// Detection runs in every so many frames; in between masks are only carried on, and no object
    /// is born, judged or confirmed. Reference: 1.
    pub detect_every: usize,
    /// The first frame goes through twice, the second time with its objects in memory. Reference:
    /// yes.
    pub second_pass: bool,
}

impl Default for VideoOptions {
    fn default() -> Self {
        Self {
            max_objects: 512,
            retire_after: Some(60),
            ..Self::reference()
        }
    }
}

impl VideoOptions {
    /// The reference's own numbers.
    pub fn reference() -> Self {
        Self {
            score_threshold: 0.4,
            duplicate_overlap: 0.1,
            duplicate_metric: Overlap::Iom,
            border_margin: Some(0.025),
            match_overlap: 0.1,
            track_overlap: 0.5,
            match_metric: Overlap::Iom,
            birth_score: 0.65,
            high_confidence: 0.8,
            recondition_every: 16,
            recondition_overlap: 0.5,
            hot_start_frames: 15,
            hot_start_unmatched: 8,
            hot_start_duplicates: 8,
            occlusion_overlap: 0.7,
            unoccluded_may_hide: false,
            confirm_consecutive: 3,
            area_shrink: 0.3,
            mend_cells: 0,
            max_objects: 16,
            retire_after: None,
            detect_every: 1,
            second_pass: true,
        }
    }

    /// Checks that the numbers can be met.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] that names the option.
    pub fn validate(&self) -> Result<()> {
        let fail = |text: String| Err(Error::InvalidInput(text));
        let shares = [
            ("score_threshold", self.score_threshold),
            ("duplicate_overlap", self.duplicate_overlap),
            ("border_margin", self.border_margin.unwrap_or(0.0)),
            ("match_overlap", self.match_overlap),
            ("track_overlap", self.track_overlap),
            ("birth_score", self.birth_score),
            ("high_confidence", self.high_confidence),
            ("recondition_overlap", self.recondition_overlap),
            ("occlusion_overlap", self.occlusion_overlap),
            ("area_shrink", self.area_shrink),
        ];
        for (name, value) in shares {
            if !(0.0..=1.0).contains(&value) {
                return fail(format!("{name} cannot be {value}; it lies between 0 and 1"));
            }
        }
        let counts = [
            ("max_objects", self.max_objects),
            ("detect_every", self.detect_every),
            ("confirm_consecutive", self.confirm_consecutive as usize),
        ];
        for (name, value) in counts {
            if value == 0 || value > MOST {
                return fail(format!(
                    "{name} cannot be {value}; it lies between 1 and {MOST}"
                ));
            }
        }
        if self.delay_frames() > MOST_DELAY {
            return fail(format!(
                "a result would come {} frames late and {MOST_DELAY} is the most, because so many frames \
                 are held; lower detect_every {}, hot_start_frames {} or confirm_consecutive {}",
                self.delay_frames(),
                self.detect_every,
                self.hot_start_frames,
                self.confirm_consecutive
            ));
        }
        Ok(())
    }

    /// Frames an object is on trial: long enough for a confirmation and for a judgement when
    /// detections are far apart.
    pub fn trial_frames(&self) -> usize {
        match self.hot_start_frames {
            0 => 0,
            frames => frames.max(self.detect_every * self.confirm_consecutive as usize),
        }
    }

    /// [`hot_start_unmatched`](Self::hot_start_unmatched) in detection frames: the same share of
    /// the frames, and no object goes for one miss alone.
    pub fn trial_unmatched(&self) -> u32 {
        self.in_detection_frames(self.hot_start_unmatched)
    }

    /// [`hot_start_duplicates`](Self::hot_start_duplicates) in detection frames.
    pub fn trial_duplicates(&self) -> u32 {
        self.in_detection_frames(self.hot_start_duplicates)
    }

    fn in_detection_frames(&self, frames: u32) -> u32 {
        let scaled = frames.div_ceil(self.detect_every.max(1) as u32);
        scaled.max(frames.min(2))
    }

    /// Frames after one in which an object may still be confirmed to be shown in it.
    pub fn look_ahead_frames(&self) -> usize {
        (self.confirm_consecutive.max(1) as usize - 1) * self.detect_every
    }

    /// How many frames a result may lag behind the frame just pushed.
    pub fn delay_frames(&self) -> usize {
        let trial = self.trial_frames().saturating_sub(1);
        trial.max(self.look_ahead_frames())
    }
}

/// Upper end of counts, which keeps what is held back within reason.
const MOST: usize = 10_000;
/// Frames that may be held back; each is a whole picture.
const MOST_DELAY: usize = 90;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_delay_is_the_hot_start_without_its_last_frame() {
        assert_eq!(VideoOptions::default().delay_frames(), 14);
        let at_once = VideoOptions {
            hot_start_frames: 0,
            confirm_consecutive: 1,
            ..VideoOptions::default()
        };
        assert_eq!(at_once.delay_frames(), 0);
    }

    #[test]
    fn a_delay_that_would_fill_the_memory_is_refused() {
        let every = |detect_every| VideoOptions {
            detect_every,
            ..VideoOptions::default()
        };
        assert_eq!(every(30).delay_frames(), 89);
        every(30).validate().unwrap();
        let text = every(300).validate().unwrap_err().to_string();
        assert!(
            text.contains("899 frames late") && text.contains("detect_every 300"),
            "{text}"
        );
    }

    #[test]
    fn rare_detections_keep_the_share_of_misses_an_object_is_allowed() {
        let rare = |detect_every| VideoOptions {
            detect_every,
            ..VideoOptions::default()
        };
        let misses: Vec<u32> = [1, 2, 4, 5, 16]
            .iter()
            .map(|n| rare(*n).trial_unmatched())
            .collect();
        assert_eq!(misses, [8, 4, 2, 2, 2]);
        assert_eq!(rare(16).trial_frames(), 48);
        assert_eq!(rare(16).delay_frames(), 47);
        assert_eq!(rare(5).look_ahead_frames(), 10);
    }

    #[test]
    fn an_option_that_cannot_be_met_is_named() {
        let refused = |change: &dyn Fn(&mut VideoOptions)| {
            let mut options = VideoOptions::default();
            change(&mut options);
            options.validate().unwrap_err().to_string()
        };
        assert!(refused(&|o| o.birth_score = f32::NAN).contains("birth_score"));
        assert!(refused(&|o| o.detect_every = 0).contains("detect_every"));
        assert!(refused(&|o| o.max_objects = 0).contains("max_objects"));
        VideoOptions::default().validate().unwrap();
        VideoOptions::reference().validate().unwrap();
    }

    #[test]
    fn options_survive_json_and_missing_ones_take_the_default() {
        let options: VideoOptions = serde_json::from_str(r#"{"detect_every": 4}"#).unwrap();
        assert_eq!(options.detect_every, 4);
        assert_eq!(options.max_objects, VideoOptions::default().max_objects);
        let text = serde_json::to_string(&options).unwrap();
        assert_eq!(
            serde_json::from_str::<VideoOptions>(&text).unwrap(),
            options
        );
    }
}
