//! The length of drafts: from the share of tokens that were accepted, and from measured times.
//!
//! If each drafted token is accepted with the probability a, a draft of k tokens yields
//! 1 + a + … + aᵏ tokens on average. It takes the time of a batch of one token, plus that of k more
//! tokens in the batch, plus the time of drafting them. The length with the most tokens per second
//! is chosen; it may be 0.
//!
//! A model with recurrent states cannot drop tokens. After a draft that is not accepted as a whole
//! it returns to the states before the batch, and the next batch computes the accepted tokens
//! again. Their time counts as a part of the draft. So does that of earlier tokens that are
//! computed again in the same batch, and once more after a rejection: without a draft the batch
//! keeps them.

use std::time::Duration;

/// Kinds of drafts, whose acceptance is counted apart.
pub(super) const KINDS: usize = 3;

/// The weight that a counted token keeps when another one is counted: about the last 14 count.
const MEMORY: f64 = 0.93;

/// Drafts that are left out before one is tried again, at first and at most.
const PATIENCE: (usize, usize) = (8, 256);

/// The assumed share of a token's time that another token in its batch takes, until it is measured.
const MORE_SHARE: f64 = 0.25;

/// Chooses the lengths of drafts.
#[derive(Clone, Debug)]
pub(super) struct DraftLengths {
    min_tokens: usize,
    max_tokens: usize,
    /// Time of a batch of one token, in microseconds.
    token_us: Option<f64>,
    /// Time that another token adds to a batch.
    more_us: Option<f64>,
    /// Time of drafting a token.
    draft_us: Option<f64>,
    kinds: [Acceptance; KINDS],
}

/// The recent results of one kind of drafts.
#[derive(Clone, Copy, Debug)]
struct Acceptance {
    accepted: f64,
    rejected: f64,
    /// Drafts left out since the last one.
    skipped: usize,
    /// Drafts to leave out before one is tried.
    patience: usize,
}

impl DraftLengths {
    /// Lengths from `min_tokens` to `max_tokens`, and 0. If both are the same, it is the only
    /// length, whether it pays or not.
    pub(super) fn new(min_tokens: usize, max_tokens: usize) -> Self {
        let new = Acceptance { accepted: 0.0, rejected: 0.0, skipped: 0, patience: PATIENCE.0 };
        Self {
            min_tokens,
            max_tokens,
            token_us: None,
            more_us: None,
            draft_us: None,
            kinds: [new; KINDS],
        }
    }

    /// The length of the next draft of a kind, at most `most`; 0 if none pays. A kind that does not
    /// pay is tried again from time to time, because the text may have changed. `replay` is `None`
    /// if the model drops tokens, and else the number of tokens before the newest one that the
    /// batch computes again.
    pub(super) fn choose(&mut self, kind: usize, most: usize, replay: Option<usize>) -> usize {
        if self.min_tokens == self.max_tokens {
            return if self.max_tokens <= most { self.max_tokens } else { 0 };
        }
        let lengths = self.min_tokens.max(1)..=self.max_tokens.min(most);
        let Some(token_us) = self.token_us.filter(|_| !lengths.is_empty()) else { return 0 };
        let again_us = self.more_us.unwrap_or(MORE_SHARE * token_us);
        let draft_us = self.draft_us.unwrap_or(0.0);
        let kind = &mut self.kinds[kind];
        let rate = kind.rate();
        let possible = &lengths;
        let outcomes = |replay| {
            let all = outcomes(rate, replay, again_us, draft_us).take(*possible.end());
            (1..).zip(all).filter(move |(len, _)| possible.contains(len))
        };
        // The tokens per microsecond of the best length where nothing is computed again. Time is
        // worth these tokens.
        let speeds = outcomes(replay.map(|_| 0)).map(|(_, o)| o.tokens / (token_us + o.more_us));
        let speed = speeds.fold(1.0 / token_us, f64::max);
        let (mut best, mut best_gain) = (0, 1.0);
        for (len, outcome) in outcomes(replay) {
            let gain = outcome.tokens - speed * outcome.more_us;
            if gain > best_gain {
                (best, best_gain) = (len, gain);
            }
        }
        if best > 0 {
            kind.patience = PATIENCE.0;
            return best;
        }
        kind.skipped += 1;
        if kind.skipped <= kind.patience {
            return 0;
        }
        kind.skipped = 0;
        kind.patience = (2 * kind.patience).min(PATIENCE.1);
        *lengths.start()
    }

    /// Notes the result of a draft.
    pub(super) fn note_result(&mut self, kind: usize, drafted: usize, accepted: usize) {
        let kind = &mut self.kinds[kind];
        for is_accepted in (0..drafted.min(accepted + 1)).map(|index| index < accepted) {
            kind.accepted = kind.accepted * MEMORY + f64::from(u8::from(is_accepted));
            kind.rejected = kind.rejected * MEMORY + f64::from(u8::from(!is_accepted));
        }
    }

    /// Notes the time of a batch of one sequence.
    pub(super) fn note_batch(&mut self, tokens: usize, time: Duration) {
        let us = time.as_secs_f64() * 1e6;
        match (tokens, self.token_us) {
            (0, _) | (2.., None) => {}
            (1, _) => follow(&mut self.token_us, us),
            (_, Some(token_us)) => {
                let more_us = (us - token_us) / (tokens - 1) as f64;
                follow(&mut self.more_us, more_us.clamp(0.0, 2.0 * token_us));
            }
        }
    }

    /// Notes the time of drafting.
    pub(super) fn note_drafting(&mut self, tokens: usize, time: Duration) {
        if tokens > 0 {
            follow(&mut self.draft_us, time.as_secs_f64() * 1e6 / tokens as f64);
        }
    }
}

/// The average outcome of a draft of some length.
struct Outcome {
    /// Tokens of the batch and the one after it.
    tokens: f64,
    /// The time of the draft, in addition to that of a batch without one.
    more_us: f64,
}

/// The outcomes of drafts of 1, 2, … tokens, each of which is accepted at a rate. Another token of
/// a batch takes `again_us`, and drafting one takes `draft_us`. For `replay` see
/// [`DraftLengths::choose`].
fn outcomes(
    rate: f64,
    replay: Option<usize>,
    again_us: f64,
    draft_us: f64,
) -> impl Iterator<Item = Outcome> {
    // The probability that a draft is accepted so far, the tokens, and those computed again.
    let (mut reached, mut tokens, mut again) = (1.0, 1.0, 0.0);
    (1..).map(move |len| {
        if let Some(replayed) = replay {
            again += reached * (1.0 - rate) * (replayed + len) as f64;
        }
        reached *= rate;
        tokens += reached;
        let more_us = len as f64 * (again_us + draft_us) + again * again_us;
        Outcome { tokens, more_us }
    })
}

impl Acceptance {
    /// The probability that a drafted token is accepted. It begins at ½.
    fn rate(&self) -> f64 {
        (self.accepted + 0.5) / (self.accepted + self.rejected + 1.0)
    }
}

/// Moves an estimate towards a measurement: slowly to longer times, which other programs may have
/// caused.
fn follow(estimate: &mut Option<f64>, us: f64) {
    let old = *estimate.get_or_insert(us);
    let weight = if us < old { 0.3 } else { 0.05 };
    *estimate = Some(old + weight * (us - old));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    /// Batches take 100 µs and `more_us` for each token after the first.
    fn lengths(more_us: u64) -> DraftLengths {
        let mut lengths = DraftLengths::new(0, 16);
        lengths.note_batch(1, us(100));
        lengths.note_batch(5, us(100 + 4 * more_us));
        lengths
    }

    /// The lengths that `accepted` leads to: it gets a length and returns how many are accepted.
    fn run(
        lengths: &mut DraftLengths,
        steps: usize,
        accepted: impl Fn(usize) -> usize,
    ) -> Vec<usize> {
        let step = |_| {
            let len = lengths.choose(0, 16, None);
            lengths.note_result(0, len, accepted(len));
            len
        };
        (0..steps).map(step).collect()
    }

    #[test]
    fn drafts_grow_while_they_are_accepted() {
        let mut lengths = lengths(10);
        let chosen = run(&mut lengths, 20, |len| len);
        assert!(chosen[0] >= 1 && chosen[0] <= 4, "{chosen:?}");
        assert_eq!(chosen[19], 16, "{chosen:?}");
        let chosen = run(&mut lengths, 20, |_| 0);
        assert!(chosen[0] == 16 && chosen[19] <= 1, "{chosen:?}");
    }

    #[test]
    fn the_dearer_a_token_in_a_batch_the_shorter_the_drafts() {
        let last = |more_us| *run(&mut lengths(more_us), 200, |len| len.min(3)).last().unwrap();
        assert!(last(2) > last(20) && last(20) >= 1, "{} {}", last(2), last(20));
        // A batch of two takes as long as two batches: even accepted drafts gain nothing.
        let chosen = run(&mut lengths(100), 100, |len| len);
        assert!(chosen.iter().sum::<usize>() <= 10, "{chosen:?}");
    }

    #[test]
    fn drafts_that_do_not_pay_are_tried_ever_less_often() {
        let chosen = run(&mut lengths(40), 2000, |_| 0);
        let tried = chosen.iter().filter(|len| **len > 0).count();
        assert!((5..=20).contains(&tried), "{tried}");
        assert!(chosen[1000..].iter().any(|len| *len > 0), "a text that changes is noticed");
    }

    #[test]
    fn the_time_of_drafting_counts() {
        let mut cheap = lengths(10);
        let mut dear = lengths(10);
        dear.note_drafting(4, us(4 * 60));
        let chosen = |lengths| *run(lengths, 100, |len| len.min(4)).last().unwrap();
        assert!(chosen(&mut dear) < chosen(&mut cheap));
    }

    #[test]
    fn the_tokens_that_a_rejection_computes_again_count() {
        let mut lengths = lengths(25);
        run(&mut lengths, 200, |len| len.min(4));
        let lens = [None, Some(0), Some(16)].map(|replay| lengths.clone().choose(0, 16, replay));
        assert!(lens[0] > lens[1] && lens[1] > lens[2] && lens[1] > 0, "{lens:?}");
    }

    #[test]
    fn limits_hold() {
        let mut lengths = lengths(0);
        assert_eq!(lengths.choose(0, 0, None), 0);
        run(&mut lengths, 50, |len| len);
        assert_eq!(lengths.choose(0, 5, None), 5);
        let mut long = DraftLengths::new(6, 8);
        assert_eq!(long.choose(0, 8, None), 0, "nothing is measured");
        long.note_batch(1, us(100));
        long.note_batch(9, us(108));
        assert!((6..=8).contains(&long.choose(0, 16, None)));
        assert_eq!(long.choose(0, 5, None), 0);
        let mut fixed = DraftLengths::new(4, 4);
        assert_eq!((fixed.choose(0, 16, None), fixed.choose(0, 3, Some(9))), (4, 0));
    }
}
