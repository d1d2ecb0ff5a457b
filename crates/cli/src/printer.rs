//! Data on standard output, words for people on standard error.

use std::{
    io::{self, IsTerminal, Write},
    sync::Mutex,
};

use indicatif::ProgressBar;

use crate::exit::ClosedOutput;

/// What the surroundings allow. The only place that looks at the terminal and its variables.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Terminal {
    /// Escape codes may be written to standard error.
    pub(crate) colour: bool,
    /// Lines of standard error may be redrawn.
    pub(crate) redraw: bool,
}

impl Terminal {
    pub(crate) fn detect() -> Self {
        let set = |name: &str| std::env::var_os(name).is_some_and(|v| !v.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|v| v == "dumb");
        Self::decide(io::stderr().is_terminal(), set("NO_COLOR"), set("CI"), dumb)
    }

    #[allow(
        clippy::fn_params_excessive_bools,
        reason = "four facts, named at the only call"
    )]
    fn decide(terminal: bool, no_colour: bool, ci: bool, dumb: bool) -> Self {
        Self {
            colour: terminal && !no_colour && !ci && !dumb,
            redraw: terminal && !ci && !dumb,
        }
    }
}

/// Writes for a command. Shared by all its threads.
#[derive(Debug)]
pub(crate) struct Printer {
    terminal: Terminal,
    quiet: bool,
    data: bool,
    bar: Mutex<Option<ProgressBar>>,
}

impl Printer {
    pub(crate) fn new(terminal: Terminal, quiet: bool) -> Self {
        Self {
            terminal,
            quiet,
            data: true,
            bar: Mutex::new(None),
        }
    }

    /// One that keeps results to itself, for a command that is a step of another.
    pub(crate) fn without_data(&self) -> Self {
        Self {
            data: false,
            ..Self::new(self.terminal, self.quiet)
        }
    }

    /// True when a progress bar can be drawn.
    pub(crate) fn can_redraw(&self) -> bool {
        self.terminal.redraw && !self.quiet
    }

    pub(crate) fn colour(&self) -> bool {
        self.terminal.colour
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// The bar that lines on standard error have to step aside for.
    pub(crate) fn set_bar(&self, bar: Option<ProgressBar>) {
        if let Ok(mut slot) = self.bar.lock() {
            *slot = bar;
        }
    }

    /// Writes results to standard output.
    pub(crate) fn data(&self, text: &str) -> anyhow::Result<()> {
        if !self.data {
            return Ok(());
        }
        let write = || {
            let mut out = io::stdout().lock();
            out.write_all(text.as_bytes())?;
            out.flush()
        };
        match self.aside(write) {
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Err(ClosedOutput.into()),
            other => Ok(other?),
        }
    }

    /// Writes a value as JSON to standard output.
    pub(crate) fn json(&self, value: &impl serde::Serialize) -> anyhow::Result<()> {
        self.data(&(serde_json::to_string_pretty(value)? + "\n"))
    }

    /// A sentence about what is going on.
    pub(crate) fn note(&self, text: &str) {
        if !self.quiet {
            self.raw_line(&clean_block(text));
        }
    }

    pub(crate) fn warning(&self, text: &str) {
        if !self.quiet {
            self.labelled("warning", "33", text);
        }
    }

    pub(crate) fn hint(&self, text: &str) {
        if !self.quiet {
            self.labelled("hint", "36", text);
        }
    }

    pub(crate) fn error(&self, text: &str) {
        self.labelled("error", "31", text);
    }

    /// What lies behind an error that was just told.
    pub(crate) fn cause(&self, text: &str) {
        self.raw_line(&format!("  because: {}", clean_block(text)));
    }

    fn labelled(&self, label: &str, colour: &str, text: &str) {
        let text = clean_block(text);
        if self.terminal.colour {
            self.raw_line(&format!("\u{1b}[1;{colour}m{label}:\u{1b}[0m {text}"));
        } else {
            self.raw_line(&format!("{label}: {text}"));
        }
    }

    /// A line that is safe to print already.
    fn raw_line(&self, line: &str) {
        self.stderr(format!("{line}\n").as_bytes());
    }

    /// Bytes for standard error; a closed one must not end the work.
    pub(crate) fn stderr(&self, bytes: &[u8]) {
        self.aside(|| drop(io::stderr().lock().write_all(bytes)));
    }

    fn aside<T>(&self, write: impl FnOnce() -> T) -> T {
        let bar = self.bar.lock().ok().and_then(|slot| slot.clone());
        match bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }
}

/// Text from outside on one line: control characters would move the cursor, and bidirectional ones
/// would reorder what is read, so each is shown as `�`.
pub(crate) fn clean(text: &str) -> String {
    text.chars()
        .map(|c| {
            if is_unsafe(c) {
                char::REPLACEMENT_CHARACTER
            } else {
                c
            }
        })
        .collect()
}

/// As [`clean`], but lines stay lines, each set in below the first, so that none passes for ours.
pub(crate) fn clean_block(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(clean).collect();
    lines.join("\n  ")
}

/// Runs of blanks and line ends as one blank, the rest as in [`clean`]: for cells of a table.
pub(crate) fn clean_cell(text: &str) -> String {
    let words: Vec<String> = text.split_ascii_whitespace().map(clean).collect();
    words.join(" ")
}

fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_and_redrawing_need_a_terminal_that_wants_them() {
        let t = Terminal::decide;
        assert!(t(true, false, false, false).colour);
        assert!(t(true, true, false, false).redraw);
        assert!(!t(true, true, false, false).colour);
        for off in [
            t(false, false, false, false),
            t(true, false, true, false),
            t(true, false, false, true),
        ] {
            assert!(!off.colour && !off.redraw);
        }
    }

    #[test]
    fn names_cannot_move_the_cursor_reorder_text_or_fake_a_line() {
        assert_eq!(clean("a\u{1b}[2Jb\nc\u{202e}d"), "a�[2Jb�c�d");
        assert_eq!(clean("Müsli 牛奶 🥛"), "Müsli 牛奶 🥛");
        assert_eq!(clean_block("one\nerror: two\u{7}"), "one\n  error: two�");
        assert_eq!(clean_cell("tail:\n  x\ty"), "tail: x y");
    }
}
