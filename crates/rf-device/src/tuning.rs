//! Tuned launches: measured on a GPU in child processes, kept in a file per card, and applied when
//! the card is opened.
//!
//! The files are `$XDG_CACHE_HOME/rocmforge/tune/ARCH-NAME-UNITScu.toml`. A choice holds for the
//! code with which it was measured: each has a digest of its translation unit. A variant that
//! crashed or hung the driver is not tried again with the same code. Cards without a file have the
//! table of their name in the folder `tuned`, if there is one.

mod child;
mod run;

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

pub use rf_kernels::tune::TrialComparison;
pub use rf_kernels::tuning::Tuning;
use rf_kernels::tuning::{Knob, format_named};
use rf_kernels::{GpuBackend, objects};
use serde::{Deserialize, Serialize};

use crate::error::sentence;
use crate::probe::DeviceReport;

pub use child::answer;
pub use run::{TrialEnd, TrialName, TuneEvent, TunePlan, TuneSubject};

/// Version of the file format.
const SCHEMA: u32 = 1;

/// The tables of the program.
const EMBEDDED: &[&str] = &[include_str!("../tuned/nvidia-h100-80gb-hbm3.toml")];

/// The variable that switches tuned launches off.
const VARIABLE: &str = "ROCFORGE_TUNING";

/// The results of tuning a card.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TuningTable {
    /// Version of the file format.
    pub schema: u32,
    /// Marketing name of the GPU.
    pub device: String,
    /// Architecture, such as `gfx1100`.
    pub arch: String,
    /// Compute units, or multiprocessors.
    pub compute_units: u32,
    /// The runtime with which it was measured.
    pub runtime: String,
    /// Version of the program.
    pub program: String,
    /// The measured knobs.
    #[serde(default, rename = "choice")]
    pub choices: Vec<TuningChoice>,
    /// Values that do not work.
    #[serde(default, rename = "failure")]
    pub failures: Vec<TuningFailure>,
}

/// A measured knob for a format.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TuningChoice {
    /// [`Knob::name`].
    pub knob: String,
    /// Name of the format.
    pub format: String,
    /// Digest of the code; empty for any code.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub code: String,
    /// The value; without one, nothing is faster than the choice of the formulas.
    pub value: Option<u32>,
    /// Time of the measured step, in microseconds.
    pub us: f64,
    /// Time of that step with the choice of the formulas, in microseconds.
    pub default_us: f64,
}

/// A value that computed a wrong result, or with which the driver failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TuningFailure {
    /// [`Knob::name`].
    pub knob: String,
    /// Name of the format.
    pub format: String,
    /// Digest of the code.
    pub code: String,
    /// The value.
    pub value: u32,
    /// The wrong result, or the failure of the driver.
    pub reason: String,
}

/// The part of a file that all versions have.
#[derive(Deserialize)]
struct Header {
    schema: u32,
}

/// A file that is not a table for a card.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// The file cannot be read or written.
    #[error("cannot use '{}': {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file is not a table.
    #[error("'{}' is not a tuning table: {reason}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The error of the parser.
        reason: String,
    },
    /// The table has another version.
    #[error("'{}' has version {schema}, but this program reads version {SCHEMA}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Version of the table.
        schema: u32,
    },
    /// The table is for another card.
    #[error("'{}' is for {device} ({arch}, {compute_units} compute units), not for this GPU", path.display())]
    OtherDevice {
        /// The file.
        path: PathBuf,
        /// Device of the table.
        device: String,
        /// Architecture of that device.
        arch: String,
        /// Compute units of that device.
        compute_units: u32,
    },
    /// There is no folder for caches.
    #[error("no folder for the table: set XDG_CACHE_HOME or HOME")]
    NoFolder,
}

impl TuningTable {
    /// An empty table for a card.
    pub fn new(device: &DeviceReport, runtime: String, program: String) -> Self {
        Self {
            schema: SCHEMA,
            device: device.name.clone(),
            arch: device.arch.clone(),
            compute_units: device.compute_units,
            runtime,
            program,
            choices: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// The file of a card.
    ///
    /// # Errors
    ///
    /// If the environment has no home directory.
    pub fn path(device: &DeviceReport) -> Result<PathBuf, TableError> {
        let folder = objects::cache_folder().ok_or(TableError::NoFolder)?;
        let word = |text: &str| {
            let letters = text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' });
            letters.collect::<String>().to_lowercase()
        };
        // Features after a colon differ between drivers.
        let arch = device.arch.split(':').next().unwrap_or_default();
        let name = format!("{}-{}-{}cu.toml", word(arch), word(&device.name), device.compute_units);
        Ok(folder.join("tune").join(name))
    }

    /// Reads a table for a card.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, is no table, or is for another card.
    pub fn read(path: &Path, device: &DeviceReport) -> Result<Self, TableError> {
        let text = fs::read_to_string(path)
            .map_err(|source| TableError::File { path: path.to_owned(), source })?;
        let syntax = |error: toml::de::Error| {
            let reason = error.message().to_owned();
            TableError::Syntax { path: path.to_owned(), reason }
        };
        let Header { schema } = toml::from_str(&text).map_err(syntax)?;
        if schema != SCHEMA {
            return Err(TableError::Version { path: path.to_owned(), schema });
        }
        let table: Self = toml::from_str(&text).map_err(syntax)?;
        if !table.is_for(device) {
            let Self { device, arch, compute_units, .. } = table;
            let path = path.to_owned();
            return Err(TableError::OtherDevice { path, device, arch, compute_units });
        }
        Ok(table)
    }

    /// The table of the program for a card.
    pub fn embedded(device: &DeviceReport) -> Option<Self> {
        let mut tables = EMBEDDED.iter().filter_map(|text| toml::from_str::<Self>(text).ok());
        tables.find(|table| table.is_for(device))
    }

    /// Returns true if it was measured on a card like this.
    fn is_for(&self, device: &DeviceReport) -> bool {
        (&self.arch, &self.device, self.compute_units)
            == (&device.arch, &device.name, device.compute_units)
    }

    /// The text of the file.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).unwrap_or_default()
    }

    /// Writes the table. An interruption leaves the earlier file.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), TableError> {
        let write = || {
            let folder = path.parent().unwrap_or(Path::new("."));
            fs::create_dir_all(folder)?;
            let mut file = tempfile::NamedTempFile::new_in(folder)?;
            file.write_all(self.to_toml().as_bytes())?;
            file.persist(path)?;
            Ok(())
        };
        write().map_err(|source| TableError::File { path: path.to_owned(), source })
    }

    /// Sets the choices for the code of a backend, and returns the number of those that are for
    /// other code.
    pub fn add_to(&self, tuning: &mut Tuning, backend: &GpuBackend) -> usize {
        let is_set = |tuning: &mut Tuning, choice: &TuningChoice| {
            let knob = Knob::named(&choice.knob)?;
            let format = format_named(&choice.format)?;
            let code = digest_text(backend.code_digest(knob, format)?);
            let is_current = choice.code.is_empty() || choice.code == code;
            Some(is_current && tuning.set(knob, format, choice.value))
        };
        let stale = |choice: &&TuningChoice| {
            !is_set(tuning, choice).unwrap_or(false) && choice.value.is_some()
        };
        self.choices.iter().filter(stale).count()
    }

    /// The entry of a knob and a format, which is new if the code is.
    fn choice(&mut self, knob: &str, format: &str, code: &str) -> &mut TuningChoice {
        let is_of = |choice: &TuningChoice| choice.knob == knob && choice.format == format;
        self.choices.retain(|choice| !is_of(choice) || choice.code == code);
        let at = self.choices.iter().position(is_of).unwrap_or_else(|| {
            self.choices.push(TuningChoice {
                knob: knob.to_owned(),
                format: format.to_owned(),
                code: code.to_owned(),
                value: None,
                us: 0.0,
                default_us: 0.0,
            });
            self.choices.len() - 1
        });
        &mut self.choices[at]
    }
}

/// A digest in files.
fn digest_text(digest: u128) -> String {
    format!("{digest:032x}")
}

/// The tables of a card: that of the program, and that of the user, whose entries replace those of
/// the program. A file that cannot be used is a warning in the log.
pub fn tables(device: &DeviceReport) -> [Option<TuningTable>; 2] {
    if std::env::var_os(VARIABLE).is_some_and(|value| value == "off") {
        return [None, None];
    }
    [TuningTable::embedded(device), of_user(device)]
}

fn of_user(device: &DeviceReport) -> Option<TuningTable> {
    let path = TuningTable::path(device).ok().filter(|path| path.exists())?;
    match TuningTable::read(&path, device) {
        Ok(table) => Some(table),
        Err(error) => {
            tracing::warn!("tuned launches are not used: {error}: tune the GPU again");
            None
        }
    }
}

/// A backend with the tuned launches of its card.
pub(crate) fn apply(device: &DeviceReport, backend: GpuBackend) -> GpuBackend {
    let mut tuning = Tuning::default();
    let add = |table: TuningTable| table.add_to(&mut tuning, &backend);
    let stale: usize = tables(device).into_iter().flatten().map(add).sum();
    if stale > 0 {
        tracing::info!("{stale} tuned choices are for other kernels: tune the GPU again");
    }
    if tuning.is_empty() {
        return backend;
    }
    backend.with_loaded_tuning(tuning, &mut |knob, format, error| {
        let (knob, format) = (knob.name(), format.name());
        tracing::warn!("{knob} is not tuned for {format}: {}", sentence(&error));
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(name: &str) -> DeviceReport {
        DeviceReport {
            number: 0,
            platform: "AMD".into(),
            ordinal: 0,
            name: name.into(),
            arch: "gfx1100".into(),
            memory_bytes: 24 << 30,
            compute_units: 48,
            wave_size: 32,
            integrated: false,
            pci_bus_id: String::new(),
            usable: true,
            code: None,
            code_kind: None,
            problem: None,
        }
    }

    fn table() -> TuningTable {
        let card = device("AMD Radeon RX 7900 XTX");
        let mut table = TuningTable::new(&card, "HIP 7.1".into(), "0.1.0".into());
        *table.choice("matvec_waves", "Q4_K", "ab") = TuningChoice {
            value: Some(16),
            us: 10.5,
            default_us: 12.25,
            ..table.choice("matvec_waves", "Q4_K", "ab").clone()
        };
        table.choice("decode_keys", "f16", "cd");
        table.failures.push(TuningFailure {
            knob: "prefill_bits".into(),
            format: "Q4_K".into(),
            code: "ef".into(),
            value: 8,
            reason: "the process ended (signal: 11 (SIGSEGV))".into(),
        });
        table
    }

    #[test]
    fn a_table_survives_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tune/card.toml");
        let card = device("AMD Radeon RX 7900 XTX");
        table().write(&path).unwrap();
        assert_eq!(TuningTable::read(&path, &card).unwrap(), table());
        let other = TuningTable::read(&path, &device("AMD Radeon RX 7900 XT"));
        assert!(matches!(other, Err(TableError::OtherDevice { .. })));
        fs::write(&path, "schema = 2\n").unwrap();
        let newer = TuningTable::read(&path, &card);
        assert!(matches!(newer, Err(TableError::Version { schema: 2, .. })));
        for text in ["", "schema = 1\ndevice = 5", "[[choice]", "schema = \"1\""] {
            fs::write(&path, text).unwrap();
            let damaged = TuningTable::read(&path, &card);
            assert!(matches!(damaged, Err(TableError::Syntax { .. })), "{text:?}: {damaged:?}");
        }
    }

    #[test]
    fn the_tables_of_the_program_have_values_that_kernels_support() {
        for text in EMBEDDED {
            let table: TuningTable = toml::from_str(text).unwrap();
            assert_eq!(table.schema, SCHEMA);
            assert!(!table.choices.is_empty() && table.failures.is_empty(), "{}", table.device);
            for choice in &table.choices {
                let (knob, format) = (Knob::named(&choice.knob), format_named(&choice.format));
                let (knob, format) = (knob.unwrap(), format.unwrap());
                assert!(Tuning::default().set(knob, format, choice.value), "{choice:?}");
                // They hold for the code of any compiler.
                assert!(choice.value.is_some() && choice.code.is_empty(), "{choice:?}");
                assert!(!knob.is_of_code() && choice.us < choice.default_us, "{choice:?}");
            }
            let (arch, compute_units) = (table.arch.clone(), table.compute_units);
            let card = DeviceReport { arch, compute_units, ..device(&table.device) };
            assert_eq!(TuningTable::embedded(&card).as_ref(), Some(&table));
        }
        assert_eq!(TuningTable::embedded(&device("another card")), None);
    }

    #[test]
    fn new_code_replaces_an_entry() {
        let mut table = table();
        assert_eq!(table.choice("matvec_waves", "Q4_K", "ab").value, Some(16));
        assert_eq!(table.choice("matvec_waves", "Q4_K", "other").value, None);
        assert_eq!(table.choices.len(), 2);
    }
}
