//! Stop strings: text that may begin one is held back.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use aho_corasick::Anchored;
use aho_corasick::automaton::{Automaton as _, StateID};
use aho_corasick::nfa::contiguous::NFA;

/// The stop strings of a request, compiled once for all its choices.
#[derive(Clone, Default)]
pub(crate) struct StopStrings {
    /// `None` if there is nothing to find.
    automaton: Option<Arc<Automaton>>,
}

struct Automaton {
    nfa: NFA,
    start: StateID,
    /// Bytes of the beginning of a stop string with which the text ends, by state. A state that is
    /// not listed has none.
    depths: HashMap<StateID, usize>,
    stops: Vec<String>,
}

impl StopStrings {
    /// Compiles stop strings. Empty ones are never found.
    pub(crate) fn new(stops: &[String]) -> Self {
        let stops: Vec<String> = stops.iter().filter(|stop| !stop.is_empty()).cloned().collect();
        if stops.is_empty() {
            return Self::default();
        }
        Self { automaton: Automaton::new(stops).map(Arc::new) }
    }
}

impl fmt::Debug for StopStrings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.automaton.iter().flat_map(|a| &a.stops)).finish()
    }
}

impl Automaton {
    /// `None` if there are more states than indices, for which a process has no memory.
    fn new(stops: Vec<String>) -> Option<Self> {
        let nfa = NFA::builder().prefilter(false).build(&stops).ok()?;
        let start = nfa.start_state(Anchored::No).ok()?;
        let mut depths = HashMap::new();
        for stop in &stops {
            let mut state = start;
            for (index, byte) in stop.bytes().enumerate() {
                state = nfa.next_state(Anchored::No, state, byte);
                depths.insert(state, index + 1);
            }
        }
        Some(Self { nfa, start, depths, stops })
    }

    /// The longest stop string that ends in a state.
    fn found(&self, state: StateID) -> Option<usize> {
        if !self.nfa.is_match(state) {
            return None;
        }
        let matches = 0..self.nfa.match_len(state);
        let patterns = matches.map(|index| self.nfa.match_pattern(state, index).as_usize());
        patterns.max_by_key(|pattern| self.stops[*pattern].len())
    }
}

/// Returns text up to the first stop string: the one that ends first, and of those the longest.
/// The time for a piece of text does not depend on the stop strings.
#[derive(Debug)]
pub(crate) struct StopMatcher {
    stops: StopStrings,
    state: StateID,
    /// Text of which the first `passed_bytes` are passed on and the rest is held back.
    text: String,
    passed_bytes: usize,
    /// Index of the stop string that was found.
    found: Option<usize>,
}

impl StopMatcher {
    pub(crate) fn new(stops: &StopStrings) -> Self {
        let start = stops.automaton.as_ref().map(|automaton| automaton.start);
        let state = start.unwrap_or_default();
        Self { stops: stops.clone(), state, text: String::new(), passed_bytes: 0, found: None }
    }

    /// Adds text. Returns the text that certainly precedes any stop string, and whether one was
    /// found.
    pub(crate) fn push(&mut self, text: &str) -> (String, bool) {
        let Some(automaton) = &self.stops.automaton else { return (text.to_owned(), false) };
        for (index, byte) in text.bytes().enumerate() {
            self.state = automaton.nfa.next_state(Anchored::No, self.state, byte);
            if let Some(found) = automaton.found(self.state) {
                self.found = Some(found);
                self.text.push_str(text.get(..=index).unwrap_or_default());
                let before = self.text.len().saturating_sub(automaton.stops[found].len());
                let passed = self.pass(before);
                self.text.clear();
                self.passed_bytes = 0;
                return (passed, true);
            }
        }
        self.text.push_str(text);
        // What begins a stop string is held back.
        let depth = automaton.depths.get(&self.state).copied().unwrap_or(0);
        let passed = self.pass(self.text.len().saturating_sub(depth));
        // Moves no more bytes than were passed on since the last time.
        if self.passed_bytes > self.text.len() / 2 {
            self.text.drain(..self.passed_bytes);
            self.passed_bytes = 0;
        }
        (passed, false)
    }

    /// Passes the text on up to byte `end`.
    fn pass(&mut self, end: usize) -> String {
        let passed = self.text.get(self.passed_bytes..end).unwrap_or_default().to_owned();
        self.passed_bytes += passed.len();
        passed
    }

    /// The stop string that was found.
    pub(crate) fn found(&self) -> Option<&str> {
        let automaton = self.stops.automaton.as_ref()?;
        self.found.map(|index| automaton.stops[index].as_str())
    }

    /// The text held back, at the end of the generation.
    pub(crate) fn finish(&mut self) -> String {
        let rest = self.pass(self.text.len());
        self.text.clear();
        self.passed_bytes = 0;
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text passed on and whether it stopped, pieces fed one by one.
    fn run(stops: &[&str], pieces: &[&str]) -> (String, bool) {
        let stops: Vec<_> = stops.iter().map(ToString::to_string).collect();
        let mut matcher = StopMatcher::new(&StopStrings::new(&stops));
        let mut out = String::new();
        for piece in pieces {
            let (text, stopped) = matcher.push(piece);
            out += &text;
            if stopped {
                return (out, true);
            }
        }
        (out + &matcher.finish(), false)
    }

    #[test]
    fn a_stop_string_split_over_pieces_ends_the_text_before_it() {
        assert_eq!(
            run(&["\nUser:"], &["Hi", " there\n", "Us", "er: x"]),
            ("Hi there".into(), true)
        );
        assert_eq!(run(&["END", "EN D"], &["a", "E", "N", "X"]), ("aENX".into(), false));
        assert_eq!(run(&["ab"], &["a", "ab"]), ("a".into(), true));
        assert_eq!(run(&["é!"], &["caf", "é", "!"]), ("caf".into(), true));
        assert_eq!(run(&[""], &["text"]), ("text".into(), false));
        assert_eq!(run(&["b", "ab"], &["xab"]), ("x".into(), true));
    }

    #[test]
    fn the_first_stop_string_in_the_text_is_the_one_that_was_found() {
        let stops = StopStrings::new(&["", "c", "b"].map(str::to_owned));
        let mut matcher = StopMatcher::new(&stops);
        assert_eq!(matcher.push("a"), ("a".into(), false));
        assert_eq!(matcher.found(), None);
        assert_eq!(matcher.push("bc"), (String::new(), true));
        assert_eq!(matcher.found(), Some("b"));
    }

    #[test]
    fn pieces_make_no_difference() {
        let stops = ["aab", "ab!", "éa", "abab", "\n\n"];
        let text = "aaaéab abaab\n ab! \n\nx";
        let whole = run(&stops, &[text]);
        assert_eq!(whole, ("aaa".into(), true));
        for text in [text, "abaa", "aaab", "aéé", "aba\n", "éa", "x ab ab\nab!"] {
            let chars: Vec<_> =
                text.char_indices().map(|(i, c)| &text[i..i + c.len_utf8()]).collect();
            assert_eq!(run(&stops, &chars), run(&stops, &[text]), "{text}");
        }
    }

    #[test]
    fn the_text_of_a_long_stop_string_is_searched_once() {
        // Each piece begins the stop string anew. Comparing all of it would take hours, and copying
        // what is held back nearly a minute.
        let stop = "a".repeat(1 << 20) + "b";
        let stops = StopStrings::new(std::slice::from_ref(&stop));
        let mut matcher = StopMatcher::new(&stops);
        let mut passed = 0;
        for _ in 0..(1 << 21) {
            passed += matcher.push("a").0.len();
        }
        assert_eq!(passed, 1 << 20);
        assert_eq!(matcher.push("b"), (String::new(), true));
        assert_eq!(matcher.found(), Some(stop.as_str()));
    }
}
