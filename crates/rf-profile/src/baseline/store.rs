//! Baseline files: loading, saving and merging.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Baseline, BaselineSet, older};
use crate::{Error, replace_file};

/// The value of the field `format`.
const FORMAT: &str = "rocmforge-baselines";

/// The version that this crate writes. Version 1 denotes the older formats, which have no such
/// field.
const VERSION: u64 = 2;

/// The serialized form of a [`BaselineSet`].
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    format: String,
    version: u64,
    #[serde(default)]
    description: String,
    entries: Vec<Baseline>,
}

impl BaselineSet {
    /// Reads a file of this format or an older one.
    ///
    /// # Errors
    ///
    /// [`Error::Read`], [`Error::Malformed`] with the line, [`Error::Newer`].
    ///
    /// # Examples
    ///
    /// ```
    /// use rf_profile::baseline::*;
    ///
    /// let metrics = Metrics::from_samples("us", Better::Lower, &[4.0, 4.1, 3.9])?;
    /// let entry = Baseline::measured("norm", DeviceKind::Cpu, Hardware::cpu_only(), metrics);
    /// let set = BaselineSet { entries: vec![entry], ..BaselineSet::default() };
    ///
    /// let path = std::env::temp_dir().join(format!("baseline-{}.json", std::process::id()));
    /// set.save(&path)?;
    /// assert_eq!(BaselineSet::load(&path)?, set);
    /// // A new result of the same benchmark and machine replaces the older entry.
    /// assert_eq!(BaselineSet::update(&path, set)?.entries.len(), 1);
    /// std::fs::remove_file(&path)?;
    ///
    /// let half = BaselineSet::from_json("{\"format\": \"rocmforge-base", "half.json");
    /// assert!(half.unwrap_err().to_string().starts_with("'half.json', line 1"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn load(path: &Path) -> Result<Self, Error> {
        let text = fs::read_to_string(path).map_err(|source| Error::read(path, source))?;
        Self::from_json(&text, &path.display().to_string())
    }

    /// Parses the text of a file. `origin` is the name of the file in errors.
    ///
    /// # Errors
    ///
    /// [`Error::Malformed`] with the line, [`Error::Newer`].
    pub fn from_json(text: &str, origin: &str) -> Result<Self, Error> {
        if text.trim().is_empty() {
            return Err(Error::malformed(origin, 0, "the file is empty"));
        }
        let value: Value =
            serde_json::from_str(text).map_err(|error| Error::json(origin, &error))?;
        let Some(format) = value.get("format") else {
            return older::read(&value, origin);
        };
        if format.as_str() != Some(FORMAT) {
            let reason = format!("format {format}, not \"{FORMAT}\"");
            return Err(Error::malformed(origin, 0, reason));
        }
        match value.get("version").and_then(Value::as_u64) {
            Some(found) if found > VERSION => {
                return Err(Error::Newer { origin: origin.to_owned(), found, supported: VERSION });
            }
            Some(VERSION) => {}
            _ => return Err(Error::malformed(origin, 0, "missing or unknown version")),
        }
        // Parsing the text instead of the value keeps line numbers in errors.
        let file: File = serde_json::from_str(text).map_err(|error| Error::json(origin, &error))?;
        Ok(Self { description: file.description, entries: file.entries })
    }

    /// Writes the file atomically.
    ///
    /// # Errors
    ///
    /// [`Error::Write`]; an existing file is unchanged then.
    pub fn save(&self, path: &Path) -> Result<(), Error> {
        replace_file(path, |out| self.write(out))
    }

    /// Merges `newer` into a file with [`BaselineSet::merge`] and returns the merged set. A missing
    /// file is created.
    ///
    /// # Errors
    ///
    /// The errors of [`BaselineSet::load`] and [`BaselineSet::save`]. A file that cannot be read is
    /// not changed.
    pub fn update(path: &Path, newer: Self) -> Result<Self, Error> {
        let mut set = match Self::load(path) {
            Err(Error::Read { source, .. }) if source.kind() == ErrorKind::NotFound => {
                Self::default()
            }
            loaded => loaded?,
        };
        set.merge(newer);
        set.save(path)?;
        Ok(set)
    }

    /// Merges another set into this one. The later of two entries of the same benchmark, machine
    /// and model remains; entries of other machines and models are kept.
    pub fn merge(&mut self, other: Self) {
        if self.description.is_empty() {
            self.description = other.description;
        }
        for entry in other.entries {
            match self.entries.iter_mut().find(|old| same_measurement(old, &entry)) {
                Some(old) if old.timestamp <= entry.timestamp => *old = entry,
                Some(_) => {}
                None => self.entries.push(entry),
            }
        }
    }

    /// Serializes the set as the JSON text of a file.
    pub fn to_json(&self) -> String {
        let mut text = Vec::new();
        // Neither writing to memory nor serializing these fields fails.
        if let Err(error) = self.write(&mut text) {
            tracing::error!("cannot serialize baselines: {error}");
        }
        String::from_utf8_lossy(&text).into_owned()
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let file = File {
            format: FORMAT.to_owned(),
            version: VERSION,
            description: self.description.clone(),
            entries: self.entries.clone(),
        };
        serde_json::to_writer_pretty(&mut *out, &file)?;
        out.write_all(b"\n")
    }
}

/// Returns true if two entries have the same benchmark, machine, model and origin.
fn same_measurement(a: &Baseline, b: &Baseline) -> bool {
    let hash = |entry: &Baseline| entry.model.as_ref().map(|model| model.hash.clone());
    a.name == b.name
        && a.device == b.device
        && a.origin == b.origin
        && hash(a) == hash(b)
        && a.hardware.mismatch(&b.hardware, a.device).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::{Better, DeviceKind, Hardware, Metrics, ModelId, Origin, Timestamp};

    fn entry(name: &str, cpu: &str, value: f64, time: i64) -> Baseline {
        let hardware = Hardware { cpu: cpu.into(), cpu_threads: 2, ..Hardware::default() };
        let metrics = Metrics::from_samples("ms", Better::Lower, &[value, value * 1.01]).unwrap();
        let mut entry = Baseline::measured(name, DeviceKind::Cpu, hardware, metrics);
        entry.timestamp = Timestamp::from_unix(time);
        entry
    }

    fn set(entries: Vec<Baseline>) -> BaselineSet {
        BaselineSet { description: "a test".into(), entries }
    }

    #[test]
    fn a_saved_set_loads_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("baselines/a.json");
        let mut entry = entry("matmul/4096", "A", 5.25, 1_768_694_400);
        entry.model = Some(ModelId { name: "m".into(), hash: "abc".into() });
        entry.origin = Origin::Reference { source: "somewhere".into() };
        entry.metadata.insert("format".into(), "Q4_K_M".into());
        let saved = set(vec![entry]);
        saved.save(&path).unwrap();
        assert_eq!(BaselineSet::load(&path).unwrap(), saved);
        assert_eq!(fs::read_to_string(&path).unwrap(), saved.to_json());
    }

    #[test]
    fn merging_keeps_the_later_entry_and_other_machines() {
        let mut merged = set(vec![entry("a", "A", 1.0, 10), entry("b", "A", 2.0, 10)]);
        merged.merge(set(vec![entry("a", "A", 3.0, 20), entry("a", "B", 4.0, 5)]));
        merged.merge(set(vec![entry("b", "A", 9.0, 9)]));
        let values: Vec<_> = merged
            .entries
            .iter()
            .map(|entry| (&*entry.name, &*entry.hardware.cpu, entry.metrics.min.unwrap()))
            .collect();
        assert_eq!(values, [("a", "A", 3.0), ("b", "A", 2.0), ("a", "B", 4.0)]);
    }

    #[test]
    fn a_damaged_file_is_named_with_its_line_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        let whole = set(vec![entry("a", "A", 1.0, 10)]).to_json();
        let field = whole.replace("\"timestamp\": \"", "\"timestamp\": \"x");
        for (damaged, line) in
            [(&whole[..whole.len() / 2], None), (&field, Some(12)), ("", Some(0))]
        {
            fs::write(&path, damaged).unwrap();
            let error =
                BaselineSet::update(&path, set(vec![entry("b", "A", 1.0, 10)])).unwrap_err();
            match error {
                Error::Malformed { line: at, .. } => {
                    assert!(line.is_none_or(|line| line == at), "{error}");
                }
                other => panic!("{other:?}"),
            }
            assert_eq!(fs::read_to_string(&path).unwrap(), damaged);
        }
    }

    #[test]
    fn every_truncation_is_an_error() {
        let whole = set(vec![entry("a", "A", 1.0, 10)]).to_json();
        for length in 0..whole.trim_end().len() {
            assert!(BaselineSet::from_json(&whole[..length], "t").is_err(), "{length}");
        }
    }

    #[test]
    fn a_later_version_and_unknown_fields_are_refused() {
        let text = set(vec![entry("a", "A", 1.0, 10)]).to_json();
        let later = text.replace("\"version\": 2", "\"version\": 3");
        let error = BaselineSet::from_json(&later, "t").unwrap_err();
        assert!(matches!(error, Error::Newer { found: 3, supported: 2, .. }), "{error:?}");
        let unknown = text.replace("\"unit\"", "\"colour\": 1,\n\"unit\"");
        let error = BaselineSet::from_json(&unknown, "t").unwrap_err();
        assert!(error.to_string().contains("colour"), "{error}");
    }

    #[test]
    fn only_update_creates_a_missing_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        assert!(matches!(BaselineSet::load(&path), Err(Error::Read { .. })));
        BaselineSet::update(&path, set(vec![entry("a", "A", 1.0, 10)])).unwrap();
        let now = BaselineSet::update(&path, set(vec![entry("b", "A", 1.0, 10)])).unwrap();
        assert_eq!(now.entries.len(), 2);
        assert_eq!(BaselineSet::load(&path).unwrap(), now);
    }
}
