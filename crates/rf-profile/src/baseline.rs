//! Baselines: stored benchmark results and their comparison with current ones.
//!
//! A [`BaselineSet`] is a JSON file of [`Baseline`]s. Each has the [`Metrics`] of one benchmark
//! with the [`Hardware`], [`Build`] and model of the measurement. [`BaselineSet::compare`] compares
//! a current set with a stored one.
//!
//! # File format
//!
//! ```json
//! {"format": "rocmforge-baselines", "version": 2, "description": "...", "entries": [...]}
//! ```
//!
//! The text is UTF-8 and indented; the entries are [`Baseline`]s. A file of a later version or with
//! an unknown field is an error, because rewriting it would lose data. The two older formats (a map
//! of names, and a flat map of metrics) load too; saving writes version 2.

mod compare;
mod hardware;
mod metrics;
mod older;
mod report;
mod store;

use std::collections::BTreeMap;
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

pub use compare::{BaselineComparison, BenchmarkComparison, DEFAULT_THRESHOLD, Verdict};
pub use hardware::{Build, DeviceKind, Hardware};
pub use metrics::{Better, Metrics};

/// The result of one benchmark on one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Baseline {
    /// Name of the benchmark.
    pub name: String,
    /// Kind of the measured device.
    pub device: DeviceKind,
    /// Source of the result: a measurement or a publication.
    #[serde(default)]
    pub origin: Origin,
    /// Time of the measurement.
    pub timestamp: Timestamp,
    /// Hardware of the measurement.
    pub hardware: Hardware,
    /// Build of the measuring program.
    #[serde(default)]
    pub build: Build,
    /// Model of the measurement; `None` for benchmarks without a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelId>,
    /// Measured metrics.
    pub metrics: Metrics,
    /// Further values, such as format, batch size or prompt length.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

/// The key of [`Baseline::metadata`] for CPU contention: the share of the time in which threads had
/// no CPU, such as `12 %`. It is present if the contention is too high for a verdict.
pub const CONTENTION: &str = "contention";

impl Baseline {
    /// A result measured now, without build, model and metadata.
    pub fn measured(
        name: impl Into<String>,
        device: DeviceKind,
        hardware: Hardware,
        metrics: Metrics,
    ) -> Self {
        Self {
            name: name.into(),
            device,
            origin: Origin::Measured,
            timestamp: Timestamp::now(),
            hardware,
            build: Build::default(),
            model: None,
            metrics,
            metadata: BTreeMap::new(),
        }
    }
}

/// The source of a result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "kind", deny_unknown_fields)]
pub enum Origin {
    /// A measurement by this program.
    #[default]
    Measured,
    /// A published result.
    Reference {
        /// Publication, for people.
        source: String,
    },
}

/// The identity of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelId {
    /// Name of the model, for people.
    pub name: String,
    /// Hash of the file contents. Results of different hashes are not compared.
    pub hash: String,
}

/// A time in whole seconds, serialized as RFC 3339: `2026-01-18T00:00:00Z`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The current time.
    pub fn now() -> Self {
        let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::from_unix(elapsed.as_secs() as i64)
    }

    /// A time in `seconds` since 1970, UTC. Times outside the supported range become 1970.
    pub fn from_unix(seconds: i64) -> Self {
        Self(DateTime::from_timestamp(seconds, 0).map_or(0, |_| seconds))
    }

    /// Parses an RFC 3339 time or a date without a time.
    pub fn parse(text: &str) -> Option<Self> {
        let with_time = DateTime::parse_from_rfc3339(text).ok().map(|time| time.timestamp());
        let day = || Some(text.parse::<chrono::NaiveDate>().ok()?.and_hms_opt(0, 0, 0)?.and_utc());
        with_time.or_else(|| Some(day()?.timestamp())).map(Self)
    }

    /// Seconds since 1970, UTC.
    pub fn as_unix(self) -> i64 {
        self.0
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time: DateTime<Utc> = DateTime::from_timestamp(self.0, 0).unwrap_or_default();
        f.pad(&time.format("%Y-%m-%dT%H:%M:%SZ").to_string())
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text)
            .ok_or_else(|| de::Error::custom(format_args!("'{text}' is not an RFC 3339 time")))
    }
}

/// A set of baselines, stored as one file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BaselineSet {
    /// Description of the set, for people.
    pub description: String,
    /// Results. A benchmark may have one entry for each machine and model.
    pub entries: Vec<Baseline>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_rfc_3339_and_days() {
        let time = Timestamp::parse("2026-01-18T00:00:00Z").unwrap();
        assert_eq!(time.as_unix(), 1_768_694_400); // date -u -d 2026-01-18 +%s
        assert_eq!(Timestamp::parse("2026-01-18"), Some(time));
        assert_eq!(Timestamp::parse("2026-01-18T01:00:00+01:00"), Some(time));
        assert_eq!(time.to_string(), "2026-01-18T00:00:00Z");
        assert_eq!(Timestamp::parse("yesterday"), None);
        assert_eq!(Timestamp::from_unix(i64::MAX), Timestamp::from_unix(0));
    }
}
