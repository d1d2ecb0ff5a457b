//! The order in which a provider may be called.

use crate::{InferenceError, Result};

/// Where a provider stands between its first and its last call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SessionState {
    /// Made, nothing loaded yet.
    #[default]
    Cold,
    /// Loaded; can detect, and can start tracking.
    Warm,
    /// A tracking session is open.
    Tracking,
    /// Ended; every call is refused.
    ShutDown,
}

impl SessionState {
    const ALL: [Self; 4] = [Self::Cold, Self::Warm, Self::Tracking, Self::ShutDown];

    fn in_words(self) -> &'static str {
        match self {
            Self::Cold => "not warmed up",
            Self::Warm => "warm, with no tracking session",
            Self::Tracking => "tracking",
            Self::ShutDown => "shut down",
        }
    }
}

const CALL_WARMUP: &str = "call warmup first";
const CALL_START: &str = "call start_tracking first";
const MAKE_NEW: &str = "make a new provider";

/// The words of an error that came from another process, as this process has them; `otherwise` for
/// words it does not know.
pub(crate) fn known_word(text: &str, otherwise: &'static str) -> &'static str {
    const CALLS: [&str; 9] = [
        "configure",
        "warmup",
        "detect_text_prompts",
        "start_tracking",
        "track_next",
        "finish_tracking",
        "shutdown",
        "fingerprint",
        "embed",
    ];
    let states = SessionState::ALL.map(SessionState::in_words);
    CALLS
        .into_iter()
        .chain(states)
        .chain([CALL_WARMUP, CALL_START, MAKE_NEW])
        .find(|word| *word == text)
        .unwrap_or(otherwise)
}

/// Keeps the calls of a provider in order, so that every back end refuses the same mistakes with
/// the same words. A provider holds one and asks it at the top of each method.
#[derive(Debug, Default)]
pub struct Lifecycle {
    state: SessionState,
}

impl Lifecycle {
    /// The current state.
    pub fn state(&self) -> SessionState {
        self.state
    }

    /// Before `warmup`; `Ok(true)` when there is something to load, `Ok(false)` when already warm.
    ///
    /// # Errors
    /// [`InferenceError::OutOfOrder`] after shutdown.
    pub fn begin_warmup(&self) -> Result<bool> {
        match self.state {
            SessionState::ShutDown => Err(self.refuse("warmup", MAKE_NEW)),
            state => Ok(state == SessionState::Cold),
        }
    }

    /// After a `warmup` that succeeded.
    pub fn warmed_up(&mut self) {
        if self.state == SessionState::Cold {
            self.state = SessionState::Warm;
        }
    }

    /// Before `detect_text_prompts`, which leaves an open tracking session alone.
    ///
    /// # Errors
    /// [`InferenceError::OutOfOrder`] before warm-up or after shutdown.
    pub fn check_detect(&self) -> Result<()> {
        self.check_warm("detect_text_prompts")
    }

    /// Before `start_tracking`, which ends a session that is open.
    ///
    /// # Errors
    /// [`InferenceError::OutOfOrder`] before warm-up or after shutdown.
    pub fn check_start(&self) -> Result<()> {
        self.check_warm("start_tracking")
    }

    /// After a `start_tracking` that succeeded.
    pub fn started(&mut self) {
        if self.state == SessionState::Warm {
            self.state = SessionState::Tracking;
        }
    }

    /// After a `start_tracking` that failed, or at the end of a session.
    pub fn stopped(&mut self) {
        if self.state == SessionState::Tracking {
            self.state = SessionState::Warm;
        }
    }

    /// Before `track_next` and `finish_tracking`.
    ///
    /// # Errors
    /// [`InferenceError::OutOfOrder`] when no session is open.
    pub fn check_track(&self, call: &'static str) -> Result<()> {
        self.check_warm(call)?;
        match self.state {
            SessionState::Tracking => Ok(()),
            _ => Err(self.refuse(call, CALL_START)),
        }
    }

    /// At `shutdown`, which may be called in any state and any number of times.
    pub fn shut_down(&mut self) {
        self.state = SessionState::ShutDown;
    }

    fn check_warm(&self, call: &'static str) -> Result<()> {
        match self.state {
            SessionState::Cold => Err(self.refuse(call, CALL_WARMUP)),
            SessionState::ShutDown => Err(self.refuse(call, MAKE_NEW)),
            SessionState::Warm | SessionState::Tracking => Ok(()),
        }
    }

    fn refuse(&self, call: &'static str, remedy: &'static str) -> InferenceError {
        InferenceError::OutOfOrder {
            call,
            state: self.state.in_words(),
            remedy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracking_before_start_names_the_missing_call() {
        let mut life = Lifecycle::default();
        life.warmed_up();
        let error = life.check_track("track_next").unwrap_err().to_string();
        assert!(error.contains("start_tracking"), "{error}");
    }

    #[test]
    fn nothing_is_allowed_after_shutdown() {
        let mut life = Lifecycle::default();
        life.warmed_up();
        life.started();
        life.shut_down();
        assert!(life.begin_warmup().is_err());
        assert!(life.check_detect().is_err());
        assert!(life.check_start().is_err());
        assert!(life.check_track("track_next").is_err());
    }

    #[test]
    fn a_second_warmup_has_nothing_to_do() {
        let mut life = Lifecycle::default();
        assert!(life.begin_warmup().unwrap());
        life.warmed_up();
        assert!(!life.begin_warmup().unwrap());
    }
}
