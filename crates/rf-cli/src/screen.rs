//! Text of a model on a terminal: wrapped at words, with the styles of light Markdown, and without
//! anything that the terminal would obey.
//!
//! Text comes in pieces. A piece may end within a word, which is held back until it ends, because
//! its place is known only then.

mod markdown;
mod wrap;

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use crate::terminal::{Palette, is_safe};
use markdown::Markdown;
use wrap::Wrap;

/// The appearance of a text on a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Lines as they are.
    Plain,
    /// Lines wrapped at words.
    Wrapped,
    /// Wrapped, with bold, code and lists of Markdown.
    Markdown,
}

/// An output for the text of a model: a terminal, or bytes as they are.
#[derive(Debug)]
pub(crate) struct TextOutput {
    screen: Option<Screen>,
}

impl TextOutput {
    /// Standard output.
    pub(crate) fn stdout(look: Look) -> Self {
        let is_coloured = Palette::stdout().is_coloured();
        let look = if look == Look::Markdown && !is_coloured { Look::Wrapped } else { look };
        Self { screen: io::stdout().is_terminal().then(|| Screen::new(look)) }
    }

    /// Standard error.
    pub(crate) fn stderr(look: Look) -> Self {
        Self { screen: io::stderr().is_terminal().then(|| Screen::new(look)) }
    }

    /// Writes a piece of text.
    pub(crate) fn write(&mut self, text: &str, out: &mut dyn Write) -> io::Result<()> {
        let shown = match &mut self.screen {
            Some(screen) => Cow::Owned(screen.push(text)),
            None => Cow::Borrowed(text),
        };
        out.write_all(shown.as_bytes())
    }

    /// Writes what is held back.
    pub(crate) fn finish(&mut self, out: &mut dyn Write) -> io::Result<()> {
        let Some(screen) = &mut self.screen else { return Ok(()) };
        out.write_all(screen.finish().as_bytes())
    }
}

/// A text on a terminal.
#[derive(Debug)]
struct Screen {
    look: Look,
    wrap: Wrap,
    markdown: Markdown,
    /// A carriage return, which counts if no line break follows.
    is_after_return: bool,
}

impl Screen {
    fn new(look: Look) -> Self {
        Self { look, wrap: Wrap::default(), markdown: Markdown::default(), is_after_return: false }
    }

    /// Returns what to write for the next piece of text.
    fn push(&mut self, text: &str) -> String {
        let width = if self.look == Look::Plain { None } else { width() };
        self.wrap.set_width(width);
        for c in text.chars() {
            // Line breaks of Windows are line breaks.
            if std::mem::take(&mut self.is_after_return) && c != '\n' {
                self.spell_out('\r');
            }
            match c {
                '\r' => self.is_after_return = true,
                '\n' | '\t' => self.character(c),
                c if is_safe(c) => self.character(c),
                c => self.spell_out(c),
            }
        }
        self.wrap.take()
    }

    /// Returns what was held back. The next text begins on a new line.
    fn finish(&mut self) -> String {
        if self.look == Look::Markdown {
            self.markdown.finish(&mut self.wrap);
        }
        self.wrap.finish();
        self.is_after_return = false;
        self.wrap.take()
    }

    fn spell_out(&mut self, c: char) {
        c.escape_default().for_each(|c| self.character(c));
    }

    fn character(&mut self, c: char) {
        match self.look {
            Look::Markdown => self.markdown.push(c, &mut self.wrap),
            Look::Plain | Look::Wrapped => self.wrap.push(c),
        }
    }
}

/// The columns of the terminal, if it says so.
pub(crate) fn width() -> Option<usize> {
    let (terminal_size::Width(columns), _) = terminal_size::terminal_size()?;
    // Narrower ones have no room for words.
    Some(usize::from(columns)).filter(|&columns| columns >= 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(look: Look, text: &str) -> String {
        let mut screen = Screen::new(look);
        screen.push(text) + &screen.finish()
    }

    #[test]
    fn a_terminal_gets_nothing_to_obey() {
        let hostile = "\x1b[31m\x1b]0;pwned\x07\x1b[2J\u{9b}5n\u{7f}a\u{202e}b\r\nend\rx";
        for look in [Look::Plain, Look::Wrapped, Look::Markdown] {
            let shown = shown(look, hostile);
            assert!(
                shown.chars().all(|c| c == '\n' || is_safe(c)),
                "{look:?}: {}",
                shown.escape_debug()
            );
            assert!(shown.contains("\\u{1b}[31m") && shown.contains("\nend\\rx"), "{shown}");
        }
    }

    #[test]
    fn ordinary_text_stays() {
        let text = "Größe 中文 👩‍👩‍👧 \tend\n\nnew";
        assert_eq!(shown(Look::Plain, text), text);
    }
}
