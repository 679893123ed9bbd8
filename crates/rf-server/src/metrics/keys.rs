//! Requests that were refused because of their key, whatever their model.

use std::fmt::Write as _;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// The reason why a request was refused because of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyRejection {
    /// The request has no key.
    MissingKey,
    /// The server does not know the key.
    InvalidKey,
    ExpiredKey,
    /// Other requests of the key are running.
    Requests,
    /// The sequences exceed those of the key, alone or with others of it.
    Sequences,
    /// The tokens per minute are used up.
    Tokens,
    /// The key may not use the model.
    Model,
    /// The key may not set a priority.
    Priority,
    /// The key may not manage models.
    ManageModels,
}

impl KeyRejection {
    const ALL: [(Self, &'static str); 9] = [
        (Self::MissingKey, "missing_key"),
        (Self::InvalidKey, "invalid_key"),
        (Self::ExpiredKey, "expired_key"),
        (Self::Requests, "requests"),
        (Self::Sequences, "sequences"),
        (Self::Tokens, "tokens"),
        (Self::Model, "model"),
        (Self::Priority, "priority"),
        (Self::ManageModels, "manage_models"),
    ];
}

/// Counts of these requests, in the order of [`KeyRejection::ALL`].
#[derive(Debug, Default)]
pub(super) struct KeyRejectionCounts([AtomicU64; KeyRejection::ALL.len()]);

impl KeyRejectionCounts {
    pub(super) fn count(&self, reason: KeyRejection) {
        self.0[reason as usize].fetch_add(1, Relaxed);
    }

    pub(super) fn write(&self, text: &mut String) {
        const NAME: &str = "rocmforge:key_rejections_total";
        const HELP: &str = "Requests refused because of their key";
        // Writing to a string does not fail.
        let _: std::fmt::Result = write!(text, "# HELP {NAME} {HELP}\n# TYPE {NAME} counter\n");
        for (count, (_, reason)) in self.0.iter().zip(KeyRejection::ALL) {
            let count = count.load(Relaxed);
            let _: std::fmt::Result = writeln!(text, "{NAME}{{reason=\"{reason}\"}} {count}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_the_order_of_the_numbers() {
        for (index, (reason, _)) in KeyRejection::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index);
        }
    }
}
