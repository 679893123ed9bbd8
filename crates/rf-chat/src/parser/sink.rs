//! Collects deltas, and holds back white space that may turn out to surround a marker.

use crate::answer::Delta;
use crate::format::syntax::IdForm;

/// The part of the answer that text belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Channel {
    Content,
    Reasoning,
}

/// The deltas since the last call of the parser.
#[derive(Debug)]
pub(super) struct Sink {
    deltas: Vec<Delta>,
    calls: usize,
    /// Calls that ended with whole arguments.
    complete_calls: usize,
    /// True if a call is open, so that arguments belong to it.
    open: bool,
    /// True if the arguments of the open call are whole.
    complete: bool,
    /// The bytes of names and arguments so far.
    reported_bytes: usize,
    /// White space that is dropped if a marker follows.
    space: String,
    /// Drop white space until there is text: after a marker.
    trim: bool,
    ids: Ids,
}

impl Sink {
    pub(super) fn new(ids: Ids) -> Self {
        Self {
            deltas: Vec::new(),
            calls: 0,
            complete_calls: 0,
            open: false,
            complete: false,
            reported_bytes: 0,
            space: String::new(),
            trim: false,
            ids,
        }
    }

    pub(super) fn take(&mut self) -> Vec<Delta> {
        std::mem::take(&mut self.deltas)
    }

    /// Returns true if there was no text since the last marker.
    pub(super) fn at_boundary(&self) -> bool {
        self.trim
    }

    /// Text of a channel. White space is held back until something follows.
    pub(super) fn text(&mut self, channel: Channel, text: &str) {
        for c in text.chars() {
            if !c.is_whitespace() {
                self.flush_space(channel);
                self.trim = false;
                self.append(channel, c);
            } else if !self.trim {
                self.space.push(c);
            }
        }
    }

    /// Text of a channel whose white space is all kept.
    pub(super) fn exact(&mut self, channel: Channel, c: char) {
        self.append(channel, c);
    }

    /// A marker: the white space around it is no text.
    pub(super) fn marker(&mut self) {
        self.space.clear();
        self.trim = true;
    }

    /// Releases white space that is held back.
    pub(super) fn flush_space(&mut self, channel: Channel) {
        let space = std::mem::take(&mut self.space);
        for c in space.chars() {
            self.append(channel, c);
        }
    }

    /// Begins a call.
    pub(super) fn start_call(&mut self, name: &str) {
        self.marker();
        let index = self.calls;
        self.calls += 1;
        self.open = true;
        self.complete = false;
        self.reported_bytes += name.len();
        let id = self.ids.id(index, name);
        self.deltas.push(Delta::CallStart { index, id, name: name.to_owned() });
    }

    /// Returns true if there are calls, and all of them are complete.
    pub(super) fn calls_tools(&self) -> bool {
        self.calls > 0 && self.calls == self.complete_calls
    }

    /// Returns true while a call is open.
    pub(super) fn in_call(&self) -> bool {
        self.open
    }

    /// The bytes of names and arguments so far: tells whether something was reported in between.
    pub(super) fn reported_bytes(&self) -> usize {
        self.reported_bytes
    }

    /// Adds to the arguments of the open call.
    pub(super) fn arguments(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        self.reported_bytes += text.len();
        let index = self.calls.saturating_sub(1);
        match self.deltas.last_mut() {
            Some(Delta::CallArguments { fragment, .. }) => fragment.push_str(text),
            _ => self.deltas.push(Delta::CallArguments { index, fragment: text.to_owned() }),
        }
    }

    /// [`arguments`](Self::arguments) of one character.
    pub(super) fn argument(&mut self, c: char) {
        self.arguments(c.encode_utf8(&mut [0; 4]));
    }

    /// The arguments of the open call are whole.
    pub(super) fn complete_arguments(&mut self) {
        self.complete = true;
    }

    /// Ends the open call, if there is one.
    pub(super) fn end_call(&mut self) {
        if std::mem::take(&mut self.open) {
            let index = self.calls.saturating_sub(1);
            self.complete_calls += usize::from(self.complete);
            self.deltas.push(Delta::CallEnd { index, complete: self.complete });
        }
    }

    fn append(&mut self, channel: Channel, c: char) {
        match (channel, self.deltas.last_mut()) {
            (Channel::Content, Some(Delta::Content(text)))
            | (Channel::Reasoning, Some(Delta::Reasoning(text))) => text.push(c),
            (Channel::Content, _) => self.deltas.push(Delta::Content(c.into())),
            (Channel::Reasoning, _) => self.deltas.push(Delta::Reasoning(c.into())),
        }
    }
}

/// The ids of calls.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ids {
    /// Distinguishes answers.
    pub(super) seed: u64,
    pub(super) form: IdForm,
}

impl Ids {
    fn id(self, index: usize, name: &str) -> String {
        const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
        let (prefix, len) = match self.form {
            IdForm::Long => ("call_", 24),
            IdForm::Short => ("", 9),
            IdForm::Named => return format!("functions.{name}:{index}"),
        };
        let mut state = self.seed ^ (index as u64).wrapping_mul(0xD1B5_4A32_D192_ED03);
        let digits = (0..len).map(|_| {
            // SplitMix64.
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            char::from(DIGITS[((mixed ^ (mixed >> 31)) % 62) as usize])
        });
        prefix.chars().chain(digits).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ_between_calls_and_answers() {
        let ids: std::collections::HashSet<_> = (0..8)
            .map(|seed| Ids { seed, form: IdForm::Short })
            .flat_map(|ids| (0..8).map(move |index| ids.id(index, "f")))
            .collect();
        assert_eq!(ids.len(), 64);
        assert!(
            ids.iter().all(|id| id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric()))
        );
        assert!(Ids { seed: 1, form: IdForm::Long }.id(0, "f").starts_with("call_"));
        assert_eq!(Ids { seed: 1, form: IdForm::Named }.id(2, "f"), "functions.f:2");
    }
}
