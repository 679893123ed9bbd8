//! The time for which a model stays loaded, in the form of Ollama.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// How long a model stays loaded after its last request.
///
/// As text it is a duration such as `5m`, `1h30m` or `90s`, or a number of seconds. A negative one
/// means for as long as there is room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeepAlive(Option<Duration>);

impl KeepAlive {
    /// For as long as there is room.
    pub const FOREVER: Self = Self(None);

    /// The time; `None` for as long as there is room.
    pub fn duration(self) -> Option<Duration> {
        self.0
    }

    fn of_seconds(seconds: f64) -> Self {
        if seconds < 0.0 {
            return Self::FOREVER;
        }
        // Times beyond the range are for ever, too.
        Self(Duration::try_from_secs_f64(seconds).ok())
    }
}

impl From<Duration> for KeepAlive {
    fn from(duration: Duration) -> Self {
        Self(Some(duration))
    }
}

/// Text that is no duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a duration such as 5m, 1h30m or 90, in seconds, or -1 for ever")]
pub struct InvalidDuration;

impl FromStr for KeepAlive {
    type Err = InvalidDuration;

    fn from_str(text: &str) -> Result<Self, InvalidDuration> {
        let (sign, mut rest) = match text.strip_prefix('-') {
            Some(rest) => (-1.0, rest),
            None => (1.0, text),
        };
        let mut seconds = 0.0;
        if rest.is_empty() {
            return Err(InvalidDuration);
        }
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
            let (number, tail) = rest.split_at(digits);
            let letters = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
            let (unit, tail) = tail.split_at(letters);
            let factor = match unit {
                "" | "s" => 1.0,
                "ms" => 1e-3,
                "us" | "µs" => 1e-6,
                "ns" => 1e-9,
                "m" => 60.0,
                "h" => 3600.0,
                _ => return Err(InvalidDuration),
            };
            seconds += number.parse::<f64>().map_err(|_| InvalidDuration)? * factor;
            rest = tail;
        }
        Ok(Self::of_seconds(sign * seconds))
    }
}

impl<'de> Deserialize<'de> for KeepAlive {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrSeconds;

        impl Visitor<'_> for TextOrSeconds {
            type Value = KeepAlive;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration such as \"5m\", or a number of seconds")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<KeepAlive, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_f64<E: Error>(self, seconds: f64) -> Result<KeepAlive, E> {
                Ok(KeepAlive::of_seconds(seconds))
            }

            fn visit_u64<E: Error>(self, seconds: u64) -> Result<KeepAlive, E> {
                Ok(KeepAlive::of_seconds(seconds as f64))
            }

            fn visit_i64<E: Error>(self, seconds: i64) -> Result<KeepAlive, E> {
                Ok(KeepAlive::of_seconds(seconds as f64))
            }
        }

        deserializer.deserialize_any(TextOrSeconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_text_or_seconds() {
        let of = |json: &str| serde_json::from_str::<KeepAlive>(json).map(KeepAlive::duration);
        for (json, seconds) in [
            ("\"5m\"", 300.0),
            ("\"1h30m\"", 5400.0),
            ("\"1.5s\"", 1.5),
            ("\"250ms\"", 0.25),
            ("\"90\"", 90.0),
            ("90", 90.0),
            ("0", 0.0),
            ("0.5", 0.5),
        ] {
            assert_eq!(of(json).unwrap(), Some(Duration::from_secs_f64(seconds)), "{json}");
        }
        for json in ["-1", "\"-1\"", "\"-5m\"", "1e300", "-0.5"] {
            assert_eq!(of(json).unwrap(), None, "{json}");
        }
        for json in ["\"\"", "\"-\"", "\"5 m\"", "\"m\"", "\"1d\"", "\"1..5s\"", "true", "[]"] {
            of(json).unwrap_err();
        }
    }
}
