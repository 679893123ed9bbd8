//! The holder of a key: limits, and what is in use of them.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::error::{ApiError, ApiErrorKind};
use crate::metrics::KeyRejection;

/// The holder of a key.
#[derive(Debug)]
pub(crate) struct Client {
    name: String,
    limits: KeyLimits,
    usage: Arc<Usage>,
}

/// What a key allows. What is `None` is not limited.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyLimits {
    /// Requests that are answered at a time.
    pub(super) max_requests: Option<usize>,
    /// Prompts times choices of these requests.
    pub(super) max_sequences: Option<usize>,
    /// Tokens of prompts and answers.
    pub(super) tokens_per_minute: Option<u64>,
    /// Names of models.
    pub(super) models: Option<Vec<String>>,
    /// Requests may have a priority.
    pub(super) priority: bool,
    /// Models may be downloaded, copied and removed.
    pub(super) manage_models: bool,
    pub(super) expires: Option<SystemTime>,
}

/// What is in use. Keys of the same name share it when they are read again.
#[derive(Debug, Default)]
struct Usage {
    requests: AtomicUsize,
    sequences: AtomicUsize,
    tokens: Mutex<Option<TokenAccount>>,
}

/// Tokens that may be spent. They grow with time up to those of a minute.
#[derive(Clone, Copy, Debug)]
struct TokenAccount {
    balance: f64,
    at: Instant,
}

/// A running request of a client. Its end gives the place to the next one.
#[derive(Debug)]
pub(crate) struct RequestPermit(Arc<Usage>);

/// Running sequences of a client.
#[derive(Debug)]
pub(crate) struct SequencePermit {
    usage: Arc<Usage>,
    count: usize,
}

/// A request that a limit of its key refuses.
#[derive(Debug)]
pub(crate) struct KeyRefusal {
    pub(crate) reason: KeyRejection,
    pub(crate) error: ApiError,
}

impl KeyRefusal {
    fn new(reason: KeyRejection, error: ApiError) -> Self {
        Self { reason, error }
    }
}

impl Client {
    pub(super) fn new(name: String, limits: KeyLimits) -> Self {
        Self { name, limits, usage: Arc::default() }
    }

    /// A key without limits, which may not set a priority.
    pub(super) fn unlimited(name: String) -> Self {
        Self::new(name, KeyLimits::default())
    }

    /// Returns this key with the usage counts of `earlier`, which had the same name.
    pub(super) fn continuing(&self, earlier: &Self) -> Self {
        let (name, limits) = (self.name.clone(), self.limits.clone());
        Self { name, limits, usage: Arc::clone(&earlier.usage) }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn has_expired(&self, now: SystemTime) -> bool {
        self.limits.expires.is_some_and(|expires| expires <= now)
    }

    /// Returns true if requests may have a priority.
    pub(crate) fn sets_priority(&self) -> bool {
        self.limits.priority
    }

    /// Returns true if requests may download, copy and remove models.
    pub(crate) fn manages_models(&self) -> bool {
        self.limits.manage_models
    }

    /// Returns true if the client may use a model that has these names.
    pub(crate) fn may_use(&self, names: &[String]) -> bool {
        self.limits.models.as_ref().is_none_or(|own| own.iter().any(|name| names.contains(name)))
    }

    /// Begins a request.
    pub(crate) fn begin(&self) -> Result<RequestPermit, KeyRefusal> {
        let tokens = self.check_tokens(Instant::now());
        tokens.map_err(|error| KeyRefusal::new(KeyRejection::Tokens, error))?;
        let most = self.limits.max_requests.unwrap_or(usize::MAX);
        if !take(&self.usage.requests, 1, most) {
            let message = format!("{most} requests of this API key are running: wait for one");
            let error = ApiError::new(ApiErrorKind::QueueFull, message);
            return Err(KeyRefusal::new(KeyRejection::Requests, error));
        }
        Ok(RequestPermit(Arc::clone(&self.usage)))
    }

    /// Begins `count` sequences of a request.
    pub(crate) fn begin_sequences(&self, count: usize) -> Result<SequencePermit, KeyRefusal> {
        let refusal = |error| KeyRefusal::new(KeyRejection::Sequences, error);
        let most = self.limits.max_sequences.unwrap_or(usize::MAX);
        if count > most {
            let message = format!("the request has {count} sequences, and this API key {most}");
            return Err(refusal(ApiError::invalid(message)));
        }
        if !take(&self.usage.sequences, count, most) {
            let message =
                format!("this API key has {most} sequences, and others of it are running");
            return Err(refusal(ApiError::new(ApiErrorKind::QueueFull, message)));
        }
        Ok(SequencePermit { usage: Arc::clone(&self.usage), count })
    }

    /// Counts tokens that were computed. They may exceed the balance, which later requests make up
    /// for.
    pub(crate) fn spend(&self, tokens: usize) {
        let Some(per_minute) = self.limits.tokens_per_minute else { return };
        let mut account = self.usage.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        let mut current = grown(*account, per_minute, Instant::now());
        current.balance -= tokens as f64;
        *account = Some(current);
    }

    fn check_tokens(&self, now: Instant) -> Result<(), ApiError> {
        let Some(per_minute) = self.limits.tokens_per_minute else { return Ok(()) };
        let account = *self.usage.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = 1.0 - grown(account, per_minute, now).balance;
        if missing <= 0.0 {
            return Ok(());
        }
        let message = format!("this API key has used its {per_minute} tokens per minute");
        let seconds = missing * 60.0 / per_minute as f64;
        let wait = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        Err(ApiError::new(ApiErrorKind::QueueFull, message).retry_after(wait))
    }
}

/// The account at a later time. A new one has the tokens of a minute.
fn grown(account: Option<TokenAccount>, per_minute: u64, now: Instant) -> TokenAccount {
    let most = per_minute as f64;
    let Some(TokenAccount { balance, at }) = account else {
        return TokenAccount { balance: most, at: now };
    };
    let gain = now.saturating_duration_since(at).as_secs_f64() * most / 60.0;
    TokenAccount { balance: (balance + gain).min(most), at: now }
}

/// Adds to a count, unless it would exceed `most`.
fn take(count: &AtomicUsize, more: usize, most: usize) -> bool {
    let sum = |count: usize| count.checked_add(more).filter(|sum| *sum <= most);
    count.fetch_update(Relaxed, Relaxed, sum).is_ok()
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Relaxed);
    }
}

impl Drop for SequencePermit {
    fn drop(&mut self) {
        self.usage.sequences.fetch_sub(self.count, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(limits: KeyLimits) -> Client {
        Client::new("a".to_owned(), limits)
    }

    #[test]
    fn requests_and_sequences_end_with_their_permits() {
        let limits =
            KeyLimits { max_requests: Some(1), max_sequences: Some(4), ..KeyLimits::default() };
        let client = client(limits);
        let first = client.begin().unwrap();
        assert_eq!(client.begin().unwrap_err().error.kind, ApiErrorKind::QueueFull);
        drop(first);
        drop(client.begin().unwrap());
        let three = client.begin_sequences(3).unwrap();
        let kind = |count| client.begin_sequences(count).unwrap_err().error.kind;
        assert_eq!(kind(2), ApiErrorKind::QueueFull);
        assert_eq!(kind(5), ApiErrorKind::InvalidRequest);
        drop(three);
        drop(client.begin_sequences(4).unwrap());
    }

    #[test]
    fn tokens_come_back_with_time() {
        let client = client(KeyLimits { tokens_per_minute: Some(60), ..KeyLimits::default() });
        let now = Instant::now();
        assert!(client.check_tokens(now).is_ok());
        client.spend(70);
        // Eleven tokens are missing to the next one.
        let error = client.check_tokens(now).unwrap_err();
        assert_eq!(error.kind, ApiErrorKind::QueueFull);
        assert!(client.check_tokens(now + Duration::from_secs(10)).is_err());
        assert!(client.check_tokens(now + Duration::from_secs(13)).is_ok());
        // No more than those of a minute are saved up.
        let later =
            grown(Some(TokenAccount { balance: 50.0, at: now }), 60, now + Duration::from_hours(1));
        assert!((later.balance - 60.0).abs() < 1e-9);
    }
}
