//! Light Markdown: headings, lists, quotes, code, bold and italic text.
//!
//! Characters come one by one, so a mark is decided with the character after it. Styles end with
//! their line: a mark that is never closed spoils no more than that.

use super::wrap::Wrap;

const BOLD: &str = "1";
const DIM: &str = "2";
const ITALIC: &str = "3";
const CODE: &str = "36";

/// The state of a text.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "styles that are on")]
pub(super) struct Markdown {
    /// The start of a line, until its kind is certain.
    start: Option<String>,
    /// The mark of the block of code, if the line is in one.
    fence: Option<String>,
    /// Marks of the same kind, until the next character.
    run: String,
    /// The character before the marks.
    before: char,
    is_escaped: bool,
    is_heading: bool,
    is_bold: bool,
    is_italic: bool,
    /// The marks with which a span of code began.
    code: Option<usize>,
}

impl Default for Markdown {
    fn default() -> Self {
        Self {
            start: Some(String::new()),
            fence: None,
            run: String::new(),
            before: ' ',
            is_escaped: false,
            is_heading: false,
            is_bold: false,
            is_italic: false,
            code: None,
        }
    }
}

/// The kind of a line, from its start.
enum Line<'a> {
    Undecided,
    Text,
    Heading,
    /// An item of a list: its indentation, and its mark.
    Item(usize, &'a str),
    Quote,
    /// A line that is not wrapped.
    Table,
}

impl Markdown {
    /// Adds a character.
    pub(super) fn push(&mut self, c: char, out: &mut Wrap) {
        let Some(mut start) = self.start.take() else {
            self.inline(c, out);
            return;
        };
        if c != '\n' {
            start.push(c);
            if matches!(self.kind(&start), Line::Undecided) {
                self.start = Some(start);
            } else {
                self.begin(&start, out);
            }
            return;
        }
        if self.is_fence(&start) {
            self.fence = match self.fence {
                Some(_) => None,
                None => start.trim_start().chars().next().map(|mark| mark.to_string().repeat(3)),
            };
            out.turn_off(true);
            out.style(&format!("\x1b[{DIM}m"));
            start.chars().for_each(|c| out.push(c));
            out.style("\x1b[0m");
            self.end_line(out);
        } else {
            self.begin_text(&start, out);
            self.inline(c, out);
        }
    }

    /// Ends the text.
    pub(super) fn finish(&mut self, out: &mut Wrap) {
        if let Some(start) = self.start.take() {
            self.begin_text(&start, out);
        }
        self.end_run(None, out);
        if self.is_escaped {
            out.push('\\');
        }
        if self.is_styled() {
            out.style("\x1b[0m");
        }
        *self = Self::default();
    }

    fn kind<'a>(&self, start: &'a str) -> Line<'a> {
        let text = start.trim_start_matches(' ');
        let indent = start.len() - text.len();
        if let Some(fence) = &self.fence {
            let marks = text.trim_end();
            let may_close = fence.starts_with(marks) || marks.starts_with(&**fence);
            let is_open = indent < 4 && may_close && marks.chars().all(|c| fence.contains(c));
            return if is_open { Line::Undecided } else { Line::Table };
        }
        let Some(first) = text.chars().next() else { return Line::Undecided };
        let marks = text.chars().take_while(|&c| c == first).count();
        let rest = &text[marks * first.len_utf8()..];
        match first {
            '`' | '~' if marks >= 3 && !rest.contains('`') => Line::Undecided,
            '`' | '~' | '#' if rest.is_empty() && marks <= 6 => Line::Undecided,
            '#' if marks <= 6 && rest.starts_with(' ') => Line::Heading,
            '-' | '*' | '+' if text.len() == 1 => Line::Undecided,
            '-' | '*' | '+' if text[1..].starts_with(' ') => Line::Item(indent, &text[..1]),
            '0'..='9' => {
                let digits = text.bytes().take_while(u8::is_ascii_digit).count();
                match &text.as_bytes()[digits..] {
                    _ if digits > 4 => Line::Text,
                    [] | [b'.' | b')'] => Line::Undecided,
                    [b'.' | b')', b' '] => Line::Item(indent, &text[..=digits]),
                    _ => Line::Text,
                }
            }
            '>' => Line::Quote,
            '|' => Line::Table,
            _ => Line::Text,
        }
    }

    fn is_fence(&self, line: &str) -> bool {
        let text = line.trim();
        if let Some(fence) = &self.fence {
            return text.starts_with(&**fence) && text.chars().all(|c| fence.contains(c));
        }
        let rest = text.trim_start_matches(['`', '~']);
        text.len() - rest.len() >= 3 && !rest.contains('`')
    }

    /// Begins a line whose kind is certain.
    fn begin(&mut self, start: &str, out: &mut Wrap) {
        match self.kind(start) {
            Line::Undecided | Line::Text => self.begin_text(start, out),
            Line::Table => {
                out.turn_off(true);
                self.begin_text(start, out);
            }
            Line::Heading => {
                self.is_heading = true;
                self.restyle(out);
                self.before = ' ';
            }
            Line::Item(indent, mark) => {
                let mark = if mark.len() == 1 { "•" } else { mark };
                (0..indent).for_each(|_| out.push(' '));
                mark.chars().for_each(|c| out.push(c));
                out.push(' ');
                out.set_indent(indent + mark.chars().count() + 1);
                self.before = ' ';
            }
            Line::Quote => {
                out.push('│');
                out.push(' ');
                out.set_indent(2);
                self.before = '>';
            }
        }
    }

    fn begin_text(&mut self, start: &str, out: &mut Wrap) {
        if self.fence.is_some() {
            out.turn_off(true);
            out.style(&format!("\x1b[{CODE}m"));
        }
        out.set_indent(start.len() - start.trim_start_matches(' ').len());
        self.before = ' ';
        start.chars().for_each(|c| self.inline(c, out));
    }

    /// Adds a character of a line whose kind is certain.
    fn inline(&mut self, c: char, out: &mut Wrap) {
        if c == '\n' {
            self.end_run(None, out);
            if std::mem::take(&mut self.is_escaped) {
                out.push('\\');
            }
            if self.is_styled() || self.fence.is_some() {
                out.style("\x1b[0m");
            }
            self.end_line(out);
            return;
        }
        if self.fence.is_some() {
            out.push(c);
            return;
        }
        if std::mem::take(&mut self.is_escaped) {
            if !matches!(c, '*' | '`' | '_' | '#') {
                out.push('\\');
                return self.inline_unescaped(c, out);
            }
            out.push(c);
            self.before = c;
            return;
        }
        self.inline_unescaped(c, out);
    }

    fn inline_unescaped(&mut self, c: char, out: &mut Wrap) {
        // The space after the mark of a quote is there already.
        if c == ' ' && self.before == '>' && self.run.is_empty() {
            self.before = ' ';
            return;
        }
        if self.run.starts_with(c) {
            self.run.push(c);
            return;
        }
        self.end_run(Some(c), out);
        match c {
            '`' => self.run.push(c),
            '*' if self.code.is_none() => self.run.push(c),
            '\\' if self.code.is_none() => self.is_escaped = true,
            c => {
                out.push(c);
                self.before = c;
            }
        }
    }

    /// Decides what marks are, with the character after them.
    fn end_run(&mut self, next: Option<char>, out: &mut Wrap) {
        let run = std::mem::take(&mut self.run);
        let Some(mark) = run.chars().next() else { return };
        let count = run.len();
        let follows_text = !self.before.is_whitespace();
        let precedes_text = next.is_some_and(|next| !next.is_whitespace());
        let opens = precedes_text && !self.before.is_alphanumeric();
        let is_mark = if mark == '`' {
            match self.code {
                Some(marks) if marks == count => {
                    self.code = None;
                    true
                }
                None if count <= 2 && next.is_some() => {
                    self.code = Some(count);
                    true
                }
                _ => false,
            }
        } else {
            let (bold, italic) = (count >= 2, count % 2 == 1);
            let closes = follows_text && (!bold || self.is_bold) && (!italic || self.is_italic);
            let begins = opens && (!bold || !self.is_bold) && (!italic || !self.is_italic);
            let is_mark = count <= 3 && (closes || begins);
            if is_mark {
                self.is_bold ^= bold;
                self.is_italic ^= italic;
            }
            is_mark
        };
        if is_mark {
            self.restyle(out);
        } else {
            run.chars().for_each(|c| out.push(c));
        }
        self.before = mark;
    }

    fn is_styled(&self) -> bool {
        self.is_heading || self.is_bold || self.is_italic || self.code.is_some()
    }

    fn restyle(&self, out: &mut Wrap) {
        let codes = [
            (self.is_heading || self.is_bold, BOLD),
            (self.is_italic, ITALIC),
            (self.code.is_some(), CODE),
        ];
        out.style("\x1b[0m");
        for (_, code) in codes.into_iter().filter(|(is_on, _)| *is_on) {
            out.style(&format!("\x1b[{code}m"));
        }
    }

    fn end_line(&mut self, out: &mut Wrap) {
        out.push('\n');
        out.turn_off(false);
        let fence = self.fence.take();
        *self = Self { fence, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a terminal of 40 columns shows, with `<` and `>` for the start and the end of styles.
    fn shown(text: &str) -> String {
        let (mut markdown, mut wrap) = (Markdown::default(), Wrap::default());
        wrap.set_width(Some(40));
        text.chars().for_each(|c| markdown.push(c, &mut wrap));
        markdown.finish(&mut wrap);
        wrap.finish();
        let mut shown = wrap.take().replace("\x1b[0m", ">");
        for (code, mark) in [(BOLD, "<b:"), (DIM, "<d:"), (ITALIC, "<i:"), (CODE, "<c:")] {
            shown = shown.replace(&format!("\x1b[{code}m"), mark);
        }
        assert!(!shown.contains('\x1b'), "{shown}");
        shown
    }

    #[test]
    fn marks_become_styles() {
        assert_eq!(shown("a **bold** word"), "a ><b:bold> word");
        assert_eq!(shown("an *italic* word"), "an ><i:italic> word");
        assert_eq!(shown("***both*** `code`"), "><b:<i:both> ><c:code>");
        assert_eq!(shown("``a`b``"), "><c:a`b>");
        assert_eq!(shown("# Title\ntext"), "><b:Title>\ntext");
    }

    #[test]
    fn what_is_no_mark_stays() {
        for text in
            ["2 * 3 ** 4", "a*b*c", "#tag", "1.5 kg", "-5", "---", "C:\\dir \\(x\\)", "12345. x"]
        {
            assert_eq!(shown(text), text);
        }
        assert_eq!(shown("\\*stars\\*"), "*stars*");
    }

    #[test]
    fn a_style_ends_with_its_line() {
        assert_eq!(shown("**open\nnext"), "><b:open>\nnext");
        assert_eq!(shown("`open\n**b**"), "><c:open>\n><b:b>");
    }

    #[test]
    fn items_have_bullets_and_their_lines_are_indented() {
        let text = "- the first item of a list that is long\n  1. two\n* three";
        let expected = "• the first item of a list that is long\n  1. two\n• three";
        assert_eq!(shown(text), expected);
        let text = "- the first item of a list that is very long\n> quoted";
        assert_eq!(shown(text), "• the first item of a list that is very\n  long\n│ quoted");
    }

    #[test]
    fn code_and_tables_are_not_wrapped() {
        let long = "let x = 1; ".repeat(8);
        let text = format!("```rust\n{long}\n  **raw**\n```\nend");
        let expected = format!("<d:```rust>\n<c:{long}>\n<c:  **raw**>\n<d:```>\nend");
        assert_eq!(shown(&text), expected);
        let row = format!("| {long} |");
        assert_eq!(shown(&row), row);
    }
}
