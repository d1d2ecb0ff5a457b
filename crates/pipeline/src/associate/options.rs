//! Settings of the association tracker.

use serde::{Deserialize, Serialize};

use super::{CameraOptions, FacingOptions};
use crate::{PipelineError, Result};

/// How detections become tracks. Times are in processed frames, scores and overlaps 0 to 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AssociateOptions {
    /// Detections a track needs before it has an id and counts; at least 1.
    pub confirm_hits: u32,
    /// Missed frames after which an unconfirmed track starts to count its detections anew.
    pub tentative_gap_frames: u32,
    /// Missed frames a track survives; at least 1.
    pub max_gap_frames: u32,
    /// Detections from this score on are matched first; the rest may only continue a track that
    /// was seen in the frame before.
    pub high_score: f32,
    /// Score a detection needs to start a track; above `high_score`.
    pub new_track_score: f32,
    /// Overlap (IoU) with a track's expected box that a detection of a high score needs.
    pub match_iou: f32,
    /// The same for detections of a low score.
    pub low_match_iou: f32,
    /// Of two detections of one label that overlap (IoU) by more than this, the one of the lower
    /// score is left out.
    pub duplicate_iou: f32,
    /// Tracks alive at one time, unconfirmed ones included, and detections looked at in a frame;
    /// beyond it those of the lowest scores are left out.
    pub max_live_tracks: u32,
    /// Follow the camera, so that boxes are expected where its motion takes them.
    pub motion_compensation: bool,
    /// Limits of the camera tracker.
    pub camera: CameraOptions,
    /// When tracks are one facing.
    pub facings: FacingOptions,
}

impl Default for AssociateOptions {
    fn default() -> Self {
        Self {
            confirm_hits: 3,
            tentative_gap_frames: 5,
            max_gap_frames: 30,
            high_score: 0.4,
            new_track_score: 0.5,
            match_iou: 0.2,
            low_match_iou: 0.5,
            duplicate_iou: 0.8,
            max_live_tracks: 1000,
            motion_compensation: true,
            camera: CameraOptions::default(),
            facings: FacingOptions::default(),
        }
    }
}

impl AssociateOptions {
    /// Checks the values against each other.
    ///
    /// # Errors
    /// [`PipelineError::Usage`] naming the option and what it must be.
    pub fn validate(&self) -> Result<()> {
        let shares = [
            ("high_score", self.high_score),
            ("new_track_score", self.new_track_score),
            ("match_iou", self.match_iou),
            ("low_match_iou", self.low_match_iou),
            ("duplicate_iou", self.duplicate_iou),
            ("facings.max_shift", self.facings.max_shift),
        ];
        for (name, value) in shares {
            if !(0.0..=1.0).contains(&value) {
                return Err(PipelineError::Usage(format!(
                    "{name} is {value}; give a number from 0 to 1"
                )));
            }
        }
        let counts = [
            ("confirm_hits", self.confirm_hits),
            ("max_gap_frames", self.max_gap_frames),
            ("max_live_tracks", self.max_live_tracks),
        ];
        for (name, value) in counts {
            if value == 0 {
                return Err(PipelineError::Usage(format!("{name} is 0; give 1 or more")));
            }
        }
        for (name, value, least) in [
            ("facings.max_growth", self.facings.max_growth, 1.0),
            ("facings.max_travel", self.facings.max_travel, 0.0),
        ] {
            if value.is_nan() || value < least {
                return Err(PipelineError::Usage(format!(
                    "{name} is {value}; give a number of {least} or more"
                )));
            }
        }
        if self.new_track_score <= self.high_score {
            return Err(PipelineError::Usage(format!(
                "new_track_score is {}, which is not above high_score, {}; raise the first or lower the second",
                self.new_track_score, self.high_score
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid_and_a_bad_value_is_named() {
        AssociateOptions::default().validate().unwrap();
        let message = |options: AssociateOptions| options.validate().unwrap_err().to_string();
        let nan = AssociateOptions {
            match_iou: f32::NAN,
            ..Default::default()
        };
        assert!(message(nan).starts_with("match_iou is NaN"));
        let mut shrunk = AssociateOptions::default();
        shrunk.facings.max_growth = 0.5;
        assert!(message(shrunk).contains("facings.max_growth is 0.5"));
        let never = AssociateOptions {
            confirm_hits: 0,
            ..Default::default()
        };
        assert!(message(never).contains("confirm_hits is 0"));
        let order = AssociateOptions {
            high_score: 0.5,
            new_track_score: 0.5,
            ..Default::default()
        };
        assert!(message(order).contains("not above high_score"));
    }

    #[test]
    fn an_unknown_option_is_refused_and_a_missing_one_has_its_default() {
        let text = r#"{"confirm_hits": 2}"#;
        let options: AssociateOptions = serde_json::from_str(text).unwrap();
        assert_eq!((options.confirm_hits, options.max_gap_frames), (2, 30));
        assert!(serde_json::from_str::<AssociateOptions>(r#"{"confirm": 2}"#).is_err());
    }
}
