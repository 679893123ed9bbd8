//! Stop strings: text that may begin one is held back.

/// Returns text up to the first stop string.
#[derive(Debug)]
pub(crate) struct StopMatcher {
    stops: Vec<String>,
    held: String,
    /// Index of the stop string that was found.
    found: Option<usize>,
}

impl StopMatcher {
    pub(crate) fn new(stops: Vec<String>) -> Self {
        Self { stops, held: String::new(), found: None }
    }

    /// Adds text. Returns the text that certainly precedes any stop string, and whether one was
    /// found.
    pub(crate) fn push(&mut self, text: &str) -> (String, bool) {
        self.held.push_str(text);
        let stops = self.stops.iter().filter(|s| !s.is_empty());
        let found = self.stops.iter().enumerate().filter(|(_, stop)| !stop.is_empty());
        let found = found.filter_map(|(i, stop)| Some((self.held.find(stop.as_str())?, i))).min();
        if let Some((at, index)) = found {
            self.found = Some(index);
            self.held.truncate(at);
            return (std::mem::take(&mut self.held), true);
        }
        // The longest suffix that begins a stop string is held back.
        let boundaries = self.held.char_indices().map(|(i, _)| i);
        let keep_from = boundaries
            .clone()
            .find(|i| stops.clone().any(|s| s.starts_with(&self.held[*i..])))
            .unwrap_or(self.held.len());
        let rest = self.held.split_off(keep_from);
        (std::mem::replace(&mut self.held, rest), false)
    }

    /// The stop string that was found.
    pub(crate) fn found(&self) -> Option<&str> {
        self.found.map(|index| self.stops[index].as_str())
    }

    /// The text held back, at the end of the generation.
    pub(crate) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text passed on and whether it stopped, pieces fed one by one.
    fn run(stops: &[&str], pieces: &[&str]) -> (String, bool) {
        let mut matcher = StopMatcher::new(stops.iter().map(ToString::to_string).collect());
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
        let mut matcher = StopMatcher::new(["", "c", "b"].map(str::to_owned).to_vec());
        assert_eq!(matcher.push("a"), ("a".into(), false));
        assert_eq!(matcher.found(), None);
        assert_eq!(matcher.push("bc"), (String::new(), true));
        assert_eq!(matcher.found(), Some("b"));
    }
}
