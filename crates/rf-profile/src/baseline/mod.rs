//! Baselines: what was measured, on what, and whether it got worse.
//!
//! A [`BaselineSet`] is a JSON file of [`Baseline`]s. Each says what it was measured on ([`Hardware`]), with which
//! [`Build`] and model, and its [`Metrics`]. [`BaselineSet::compare`] holds a fresh set against a stored one.
//!
//! # File format
//!
//! `{"format": "rocmforge-baselines", "version": 2, "description": …, "entries": [Baseline…]}`, UTF-8, indented. A file
//! of a later version, or with a field that is not known, is refused rather than rewritten without it. The two
//! older formats (a map of names, and a flat map of figures) load too; saving writes version 2.

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

pub use compare::{Comparison, DEFAULT_THRESHOLD, Row, Verdict};
pub use hardware::{Build, Hardware};
pub use metrics::{Better, Metrics};

/// What one benchmark gave on one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Baseline {
    /// The benchmark.
    pub name: String,
    /// What computed.
    pub device: DeviceKind,
    /// Measured here, or somebody's published figure.
    #[serde(default)]
    pub origin: Origin,
    /// When.
    pub timestamp: Timestamp,
    /// On what.
    pub hardware: Hardware,
    /// With which build.
    #[serde(default)]
    pub build: Build,
    /// With which model, if with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelId>,
    /// What it gave.
    pub metrics: Metrics,
    /// Anything else: format, batch, prompt length.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

/// The key of [`Baseline::metadata`] for CPU contention: the share of the time in which threads had
/// no CPU, as in `12 %`. It is there where the contention was too high for a verdict.
pub const CONTENTION: &str = "contention";

impl Baseline {
    /// A figure measured now, on this machine, with this compiler.
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

/// What computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    /// The CPU: [`Hardware::cpu`] and its threads must be the same to compare.
    Cpu,
    /// The GPU: [`Hardware::gpu`] and [`Hardware::gfx`] must be.
    Gpu,
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Cpu => "CPU",
            Self::Gpu => "GPU",
        })
    }
}

/// Where a figure comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "kind", deny_unknown_fields)]
pub enum Origin {
    /// This program measured it.
    #[default]
    Measured,
    /// Somebody published it.
    Reference {
        /// Where.
        source: String,
    },
}

/// Which model a figure belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelId {
    /// For people.
    pub name: String,
    /// Of the file's contents: figures of two hashes are not compared.
    pub hash: String,
}

/// A second in time, written as in RFC 3339: `2026-01-18T00:00:00Z`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Now.
    pub fn now() -> Self {
        let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::from_unix(elapsed.as_secs() as i64)
    }

    /// `seconds` since 1970, UTC; what lies outside the years that can be written becomes 1970.
    pub fn from_unix(seconds: i64) -> Self {
        Self(DateTime::from_timestamp(seconds, 0).map_or(0, |_| seconds))
    }

    /// Reads RFC 3339, or a day alone.
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
            .ok_or_else(|| de::Error::custom(format_args!("'{text}' is no RFC 3339 time")))
    }
}

/// A file of baselines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BaselineSet {
    /// What it is about.
    pub description: String,
    /// What was measured. One benchmark may stand here once for each machine and model.
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
