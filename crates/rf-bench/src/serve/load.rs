//! Loads: how requests arrive, and their prompts.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};
use serde::Serialize;

/// The arrival of requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    /// Closed loop: this many clients. Each sends its next request when its last one ended.
    Concurrency(usize),
    /// Open loop: a Poisson process with this rate in requests per second.
    Rate(f64),
}

/// The requests that a server gets in one run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Load {
    /// Arrival of the requests.
    pub arrivals: Arrivals,
    /// Number of requests.
    pub requests: usize,
    /// Tokens at the beginning of every prompt that all requests of a run share.
    pub shared_tokens: usize,
    /// Tokens of a prompt after the shared ones.
    pub prompt_tokens: usize,
    /// Tokens of an answer.
    pub generated_tokens: usize,
}

/// A text that is neither a number of clients nor a rate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a number of clients, as in 8, or requests per second, as in 0.5/s")]
pub struct ParseArrivalsError;

impl FromStr for Arrivals {
    type Err = ParseArrivalsError;

    fn from_str(text: &str) -> Result<Self, ParseArrivalsError> {
        let arrivals = if let Some(rate) = text.strip_suffix("/s") {
            let rate = rate.parse().ok().filter(|rate: &f64| *rate > 0.0 && rate.is_finite());
            rate.map(Self::Rate)
        } else {
            text.parse().ok().filter(|clients| *clients > 0).map(Self::Concurrency)
        };
        arrivals.ok_or(ParseArrivalsError)
    }
}

impl fmt::Display for Arrivals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Concurrency(1) => f.write_str("1 client"),
            Self::Concurrency(clients) => write!(f, "{clients} clients"),
            Self::Rate(rate) => write!(f, "{rate} requests/s"),
        }
    }
}

impl Arrivals {
    /// The requests that a server computes at a time if it can.
    pub fn slots(self, requests: usize) -> usize {
        match self {
            Self::Concurrency(clients) => clients,
            Self::Rate(_) => requests,
        }
    }

    /// The times at which the requests of an open loop are due, from the start of the run; `None`
    /// for a closed loop.
    pub(super) fn due(self, requests: usize, seed: u64) -> Option<Vec<Duration>> {
        let Self::Rate(rate) = self else { return None };
        let mut random = Pcg64::seed_from_u64(seed);
        let mut time_s = 0.0;
        let due = (0..requests).map(|_| {
            let at = Duration::from_secs_f64(time_s);
            // The gaps of a Poisson process are exponentially distributed: -ln(u) / rate with u in
            // (0, 1].
            let uniform = (f64::from(random.next_u32()) + 1.0) / (f64::from(u32::MAX) + 1.0);
            time_s -= uniform.ln() / rate;
            at
        });
        Some(due.collect())
    }
}

impl Load {
    /// Tokens of a request, prompt and answer.
    pub fn tokens(&self) -> usize {
        self.shared_tokens + self.prompt_tokens + self.generated_tokens
    }

    /// The prompts of a run, of ids of `vocabulary`. Runs with another seed have nothing in common.
    pub(super) fn prompts(&self, vocabulary: &[u32], seed: u64) -> Vec<Vec<u32>> {
        let mut random = Pcg64::seed_from_u64(seed);
        let mut ids = |count: usize| -> Vec<u32> {
            let id = |_| vocabulary[random.next_u64() as usize % vocabulary.len()];
            (0..count).map(id).collect()
        };
        let shared = ids(self.shared_tokens);
        (0..self.requests).map(|_| [&shared[..], &ids(self.prompt_tokens)[..]].concat()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: Load = Load {
        arrivals: Arrivals::Concurrency(2),
        requests: 3,
        shared_tokens: 4,
        prompt_tokens: 5,
        generated_tokens: 6,
    };

    #[test]
    fn prompts_share_their_beginning_within_a_run_only() {
        let vocabulary: Vec<u32> = (100..30_000).collect();
        let first = LOAD.prompts(&vocabulary, 1);
        assert_eq!(first.len(), 3);
        assert!(first.iter().all(|prompt| prompt.len() == 9 && prompt[..4] == first[0][..4]));
        assert_ne!(first[0][4..], first[1][4..]);
        assert_ne!(first[0][..4], LOAD.prompts(&vocabulary, 2)[0][..4]);
        assert_eq!(first, LOAD.prompts(&vocabulary, 1), "both sides get the same prompts");
    }

    #[test]
    fn requests_of_an_open_loop_arrive_at_the_rate() {
        let due = Arrivals::Rate(50.0).due(10_000, 7).unwrap();
        assert!(due.is_sorted());
        let mean_gap_s = due[9_999].as_secs_f64() / 9_999.0;
        // The mean of 10,000 gaps has a standard deviation of 1 %.
        assert!((mean_gap_s * 50.0 - 1.0).abs() < 0.05, "{mean_gap_s}");
        assert_eq!(Arrivals::Concurrency(3).due(5, 7), None);
    }

    #[test]
    fn arrivals_are_clients_or_a_rate() {
        assert_eq!("8".parse(), Ok(Arrivals::Concurrency(8)));
        assert_eq!("0.5/s".parse(), Ok(Arrivals::Rate(0.5)));
        for bad in ["0", "-1", "x", "0/s", "/s", "inf/s", "NaN/s", ""] {
            assert_eq!(bad.parse::<Arrivals>(), Err(ParseArrivalsError), "{bad}");
        }
    }
}
