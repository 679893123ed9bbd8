//! Groups of three digits counted from the right, which no regular expression of linear time
//! can express.

use std::ops::Range;

/// The kind of grouping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Grouping {
    /// `(?=(\d{3})+(?!\d))`: cuts before each group of three ASCII digits.
    Thousands,
    /// Any digits. The text before a number stays with the first group, and the next step splits
    /// it. Also implements `\d{1,3}(?=(?:\d{3})*\b)`.
    WithLead,
}

impl Grouping {
    /// Appends the ends of the parts of `piece`, which starts at `base` in the text. The caller
    /// handles the text after the last part.
    pub(super) fn split(self, piece: &[u8], base: usize, ends: &mut Vec<usize>) {
        match self {
            Self::Thousands => {
                for run in ascii_digit_runs(piece).filter(|run| run.len() >= 3) {
                    let first = run.start + run.len() % 3;
                    cut_before(first, base, ends);
                    ends.extend((first + 3..run.end).step_by(3).map(|end| base + end));
                }
            }
            Self::WithLead => split_with_lead(piece, base, ends),
        }
    }
}

fn split_with_lead(piece: &[u8], base: usize, ends: &mut Vec<usize>) {
    let mut run: Vec<usize> = Vec::new(); // the ends of the digits of the current run
    let mut at = 0;
    for chunk in piece.utf8_chunks() {
        for c in chunk.valid().chars() {
            at += c.len_utf8();
            if c.is_numeric() {
                run.push(at);
            } else {
                flush_run(&mut run, base, ends);
            }
        }
        flush_run(&mut run, base, ends);
        at += chunk.invalid().len();
    }
    flush_run(&mut run, base, ends);
}

/// Cuts a number into groups of three. The first group can be shorter.
fn flush_run(run: &mut Vec<usize>, base: usize, ends: &mut Vec<usize>) {
    let lead = run.len() % 3;
    let first = if lead == 0 { 3 } else { lead };
    ends.extend(run.iter().skip(first - 1).step_by(3).map(|end| base + end));
    run.clear();
}

fn cut_before(start: usize, base: usize, ends: &mut Vec<usize>) {
    let cut = base + start;
    if start > 0 && ends.last() != Some(&cut) {
        ends.push(cut);
    }
}

fn ascii_digit_runs(piece: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + piece[at..].iter().position(u8::is_ascii_digit)?;
        let len = piece[start..].iter().take_while(|b| b.is_ascii_digit()).count();
        at = start + len;
        Some(start..at)
    })
}
