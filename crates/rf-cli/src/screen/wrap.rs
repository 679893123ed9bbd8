//! Words to lines of a width.

use unicode_width::UnicodeWidthChar;

/// Wraps text at words: spaces at which a line breaks become line breaks.
#[derive(Debug, Default)]
pub(super) struct Wrap {
    /// Columns of a line; `None` leaves lines as they are.
    width: Option<usize>,
    /// Columns of the current line that are written.
    column: usize,
    /// Spaces after them.
    gap: usize,
    /// The word that has not ended, with its escape sequences.
    word: String,
    word_width: usize,
    /// Spaces before the continued lines of a paragraph.
    indent: usize,
    /// Lines are left as they are for now.
    is_off: bool,
    /// The word is longer than a line and written as it comes.
    is_long: bool,
    out: String,
}

impl Wrap {
    pub(super) fn set_width(&mut self, width: Option<usize>) {
        self.width = width;
    }

    /// Sets the spaces before continued lines, up to the next line break.
    pub(super) fn set_indent(&mut self, indent: usize) {
        // Half of the line is for text.
        self.indent = indent.min(self.width.map_or(0, |width| width / 2));
    }

    /// Leaves lines as they are, or no longer.
    pub(super) fn turn_off(&mut self, is_off: bool) {
        self.end_word();
        self.is_off = is_off;
    }

    /// Adds a sequence that takes no columns.
    pub(super) fn style(&mut self, sequence: &str) {
        self.word.push_str(sequence);
    }

    /// Adds a character.
    pub(super) fn push(&mut self, c: char) {
        let Some(width) = self.width.filter(|_| !self.is_off) else {
            self.end_word();
            self.out.push(c);
            self.column = if c == '\n' { 0 } else { self.column + c.width().unwrap_or(0) };
            if c == '\n' {
                self.indent = 0;
            }
            return;
        };
        match c {
            '\n' => {
                self.end_word();
                self.out.push('\n');
                (self.column, self.gap, self.indent) = (0, 0, 0);
            }
            ' ' => {
                self.end_word();
                self.gap += 1;
            }
            '\t' => {
                self.end_word();
                self.gap += 8 - (self.column + self.gap) % 8;
            }
            c => {
                let columns = c.width().unwrap_or(0);
                // Scripts without spaces break anywhere.
                if columns == 2 {
                    self.end_word();
                }
                self.word.push(c);
                self.word_width += columns;
                if columns == 2 {
                    self.end_word();
                } else if self.is_long || self.word_width > width - self.indent {
                    self.write_word(width);
                    self.is_long = true;
                }
            }
        }
    }

    /// Ends the text.
    pub(super) fn finish(&mut self) {
        self.end_word();
        (self.column, self.gap, self.indent, self.is_off) = (0, 0, 0, false);
    }

    /// Returns what is to be written.
    pub(super) fn take(&mut self) -> String {
        std::mem::take(&mut self.out)
    }

    fn end_word(&mut self) {
        self.is_long = false;
        if self.word.is_empty() {
            return;
        }
        let full = self.column + self.gap + self.word_width;
        match self.width.filter(|_| !self.is_off) {
            Some(width) if self.word_width > 0 && full > width && self.column > self.indent => {
                self.out.push('\n');
                self.out.extend(std::iter::repeat_n(' ', self.indent));
                (self.column, self.gap) = (self.indent, 0);
                self.write_word(width);
            }
            width => self.write_word(width.unwrap_or(usize::MAX)),
        }
    }

    /// Writes the word where it is; the terminal breaks it at its edge.
    fn write_word(&mut self, width: usize) {
        self.out.extend(std::iter::repeat_n(' ', self.gap));
        self.out.push_str(&self.word);
        let full = self.column + self.gap + self.word_width;
        self.column = if full > width { full % width } else { full };
        (self.gap, self.word_width) = (0, 0);
        self.word.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrapped(width: usize, text: &str) -> String {
        let mut wrap = Wrap::default();
        wrap.set_width(Some(width));
        text.chars().for_each(|c| wrap.push(c));
        wrap.finish();
        wrap.take()
    }

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrapped(20, "a fox and a key in the forest"), "a fox and a key in\nthe forest");
        assert_eq!(wrapped(20, "exactly twenty chars more"), "exactly twenty chars\nmore");
        assert_eq!(wrapped(20, "own\nline  breaks   stay"), "own\nline  breaks   stay");
        assert_eq!(wrapped(20, "    code stays in its place"), "    code stays in\nits place");
    }

    #[test]
    fn wide_characters_break_anywhere_and_long_words_nowhere() {
        let text = "漢".repeat(15);
        assert_eq!(wrapped(20, &text), format!("{}\n{}", "漢".repeat(10), "漢".repeat(5)));
        let address = format!("see https://{}", "x".repeat(40));
        assert_eq!(wrapped(20, &address), address);
    }

    #[test]
    fn no_line_is_longer_than_the_terminal() {
        for width in 20..60 {
            let text = "It was the best of times, it was the worst of times. ".repeat(5);
            let lines = wrapped(width, &text);
            assert!(lines.lines().all(|line| line.len() <= width), "{width}: {lines}");
            assert_eq!(lines.replace('\n', " ").trim_end(), text.trim_end());
        }
    }
}
