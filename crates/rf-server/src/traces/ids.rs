//! The ids of traces and spans, and the header that carries them.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// The place of a span in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SpanContext {
    pub(super) trace: u128,
    pub(super) span: u64,
}

/// The header `traceparent` of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parent {
    /// There is none, or none that can be read.
    None,
    /// Its trace is recorded.
    Recorded(SpanContext),
    /// Its trace is not recorded, so this part of it is not, either.
    Ignored,
}

impl Parent {
    /// Reads `00-TRACE-SPAN-FLAGS`, or a later version that begins so.
    pub(super) fn parse(header: &str) -> Self {
        let mut parts = header.split('-');
        let mut next = |digits: usize| {
            let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            parts.next().filter(|part| part.len() == digits && part.bytes().all(is_digit))
        };
        let (Some(version), Some(trace), Some(span), Some(flags)) =
            (next(2), next(32), next(16), next(2))
        else {
            return Self::None;
        };
        let is_known = version != "ff" && (version != "00" || parts.next().is_none());
        let ids = (u128::from_str_radix(trace, 16), u64::from_str_radix(span, 16));
        match (ids, u8::from_str_radix(flags, 16)) {
            ((Ok(trace), Ok(span)), Ok(flags)) if is_known && trace != 0 && span != 0 => {
                if flags & 1 == 1 {
                    Self::Recorded(SpanContext { trace, span })
                } else {
                    Self::Ignored
                }
            }
            _ => Self::None,
        }
    }
}

impl SpanContext {
    /// A span of this trace, or of a new one.
    pub(super) fn below(parent: Option<Self>) -> Self {
        let trace = parent.map_or_else(
            || (u128::from(random()) << 64) | u128::from(random()),
            |parent| parent.trace,
        );
        Self { trace, span: random() }
    }

    /// The header that names this span as the parent.
    pub(super) fn header(self) -> String {
        format!("00-{:032x}-{:016x}-01", self.trace, self.span)
    }
}

/// A number that is random, not secret, and not 0.
fn random() -> u64 {
    static STATE: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    static COUNT: AtomicU64 = AtomicU64::new(0);
    STATE.hash_one(COUNT.fetch_add(1, Relaxed)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    #[test]
    fn headers_are_read_as_the_standard_says() {
        let context = SpanContext {
            trace: 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736,
            span: 0x00f0_67aa_0ba9_02b7,
        };
        let parse = |text: String| Parent::parse(&text);
        let span = "00f067aa0ba902b7";
        assert_eq!(parse(format!("00-{TRACE}-{span}-01")), Parent::Recorded(context));
        assert_eq!(context.header(), format!("00-{TRACE}-{span}-01"));
        assert_eq!(parse(format!("00-{TRACE}-{span}-00")), Parent::Ignored);
        // Later versions may have more.
        assert_eq!(parse(format!("cc-{TRACE}-{span}-01-more")), Parent::Recorded(context));
        for wrong in [
            String::new(),
            format!("00-{TRACE}-{span}-01-more"),
            format!("ff-{TRACE}-{span}-01"),
            format!("00-{}-{span}-01", TRACE.to_uppercase()),
            format!("00-{}-{span}-01", "0".repeat(32)),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!("00-{TRACE}-{span}"),
            format!("00-{TRACE}-{span}-+1"),
        ] {
            assert_eq!(parse(wrong.clone()), Parent::None, "{wrong}");
        }
    }

    #[test]
    fn spans_have_ids_of_their_own() {
        let first = SpanContext::below(None);
        let second = SpanContext::below(Some(first));
        assert_eq!(first.trace, second.trace);
        assert_ne!(first.span, second.span);
        assert_ne!(SpanContext::below(None).trace, first.trace);
    }
}
