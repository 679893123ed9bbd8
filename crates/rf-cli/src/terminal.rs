//! Output that depends on the terminal: colours, progress bars, messages.

use std::fmt;
use std::io::{self, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Colours of one of the two outputs. They are off if it is no terminal, or if the user turns them
/// off (`NO_COLOR` set and not empty, `TERM=dumb`).
#[derive(Clone, Copy)]
pub(crate) struct Palette {
    coloured: bool,
}

impl Palette {
    pub(crate) fn stdout() -> Self {
        Self { coloured: io::stdout().is_terminal() && allows_colour() }
    }

    pub(crate) fn stderr() -> Self {
        Self { coloured: io::stderr().is_terminal() && allows_colour() }
    }

    pub(crate) fn is_coloured(self) -> bool {
        self.coloured
    }

    pub(crate) fn bold(self, text: impl fmt::Display) -> String {
        self.paint("1", text)
    }

    pub(crate) fn dim(self, text: impl fmt::Display) -> String {
        self.paint("2", text)
    }

    pub(crate) fn yellow(self, text: impl fmt::Display) -> String {
        self.paint("1;33", text)
    }

    pub(crate) fn red(self, text: impl fmt::Display) -> String {
        self.paint("1;31", text)
    }

    fn paint(self, code: &str, text: impl fmt::Display) -> String {
        if self.coloured { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }
}

fn allows_colour() -> bool {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    set("NO_COLOR").is_none() && set("TERM").is_none_or(|term| term != "dumb") && shows_colour()
}

/// Consoles of Windows interpret escape sequences once a program turns that on; those before
/// Windows 10 never do.
#[cfg(windows)]
fn shows_colour() -> bool {
    anstyle_query::windows::enable_ansi_colors().unwrap_or(false)
}

#[cfg(not(windows))]
fn shows_colour() -> bool {
    true
}

/// Prints a line on stderr. A failure is ignored, since it could not be reported.
pub(crate) fn note(text: impl fmt::Display) {
    drop(writeln!(io::stderr().lock(), "{text}"));
}

/// Prints a warning on stderr.
pub(crate) fn warn(text: impl fmt::Display) {
    note(format_args!("{} {text}", Palette::stderr().yellow("warning:")));
}

/// Returns true if a terminal only shows the character: it is no control character, and no mark of
/// direction, which reorders the text around it.
pub(crate) fn is_safe(c: char) -> bool {
    let reorders = matches!(c, '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !c.is_control() && !reorders
}

/// Text of a file, a server or a command line, for the terminal: escape sequences and other control
/// characters are spelt out, and what is very long is cut in the middle.
pub(crate) fn shown(text: &str) -> String {
    const MOST: usize = 1200;
    let plain = |text: &mut dyn Iterator<Item = char>| {
        let mut shown = String::new();
        for c in text {
            if c == '\n' || is_safe(c) {
                shown.push(c);
            } else {
                shown.extend(c.escape_default());
            }
        }
        shown
    };
    let count = text.chars().count();
    if count <= MOST {
        return plain(&mut text.chars());
    }
    let start = plain(&mut text.chars().take(MOST / 2));
    let end = plain(&mut text.chars().skip(count - MOST / 2));
    format!("{start} … {end}")
}

/// A progress bar over bytes on stderr, hidden if that is no terminal.
pub(crate) fn byte_progress(what: &'static str, total_bytes: u64) -> ProgressBar {
    progress(what, total_bytes, "{msg} [{wide_bar}] {bytes}/{total_bytes} {eta}")
}

/// A progress bar over things on stderr, hidden if that is no terminal.
pub(crate) fn count_progress(what: &'static str, total: u64) -> ProgressBar {
    progress(what, total, "{msg} [{wide_bar}] {pos}/{len} {eta}")
}

/// A progress bar over the tokens of a prompt on stderr, hidden if that is no terminal. Its message
/// is the throughput.
pub(crate) fn prompt_progress(tokens: u64) -> ProgressBar {
    progress("", tokens, "prompt [{wide_bar}] {pos}/{len} tokens {msg}")
}

fn progress(what: &'static str, total: u64, template: &str) -> ProgressBar {
    // Consoles of Windows have no such variable.
    let moves_cursor = std::env::var("TERM").map_or(cfg!(windows), |term| term != "dumb");
    let terminal = io::stderr().is_terminal() && moves_cursor;
    let target = if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let style = ProgressStyle::with_template(template)
        .map_or_else(|_| ProgressStyle::default_bar(), |style| style.progress_chars("=> "));
    ProgressBar::with_draw_target(Some(total), target).with_style(style).with_message(what)
}

/// Formats a number of bytes: `7.58 MiB`.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{value:.2} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_spelt_out_and_long_texts_are_cut() {
        assert_eq!(
            shown("\x1b[31mred\x1b]0;t\x07\r\u{9b}é 'q'\t"),
            "\\u{1b}[31mred\\u{1b}]0;t\\u{7}\\r\\u{9b}é 'q'\\t"
        );
        assert_eq!(shown("a\u{202e}b"), "a\\u{202e}b");
        let cut = shown(&format!("start{}end", "x".repeat(1 << 20)));
        assert!(cut.starts_with("start") && cut.ends_with("end") && cut.len() < 1300);
    }

    #[test]
    fn bytes_have_a_fitting_unit() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(7_949_632), "7.58 MiB");
        assert_eq!(bytes(u64::MAX), "16777216.00 TiB");
    }
}
