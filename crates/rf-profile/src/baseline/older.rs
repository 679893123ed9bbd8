//! The two older formats of baseline files.
//!
//! ```text
//! named map  {"baselines": {NAME: {name, timestamp, hardware, metrics, metadata}}, "metadata"}
//!            metrics: {avg_ms, ..}
//! flat map   {"timestamp", "hardware", "baselines": {NAME: {METRIC: number, ..}}}
//! ```
//!
//! In the flat map the suffix of a metric's name is its unit.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{
    Baseline, BaselineSet, Better, Build, DeviceKind, Hardware, Metrics, Origin, Timestamp,
};
use crate::Error;

/// Metrics of time that form one distribution.
const DISTRIBUTION: [&str; 6] = ["avg_ms", "min_ms", "max_ms", "p50_ms", "p95_ms", "p99_ms"];

/// Reads a file of either format. Errors name `origin`.
pub(super) fn read(value: &Value, origin: &str) -> Result<BaselineSet, Error> {
    let reader = Reader { origin };
    let file = reader.object(value, "the file")?;
    let Some(baselines) = file.get("baselines") else {
        return Err(reader.error("neither \"format\" nor \"baselines\": no baseline file"));
    };
    let mut entries = Vec::new();
    for (name, value) in reader.object(baselines, "baselines")? {
        let fields = reader.object(value, name)?;
        if fields.contains_key("metrics") {
            entries.extend(reader.named(name, fields)?);
        } else {
            entries.extend(reader.flat(name, fields, file)?);
        }
    }
    let description = file
        .get("metadata")
        .and_then(|metadata| metadata.get("description"))
        .and_then(Value::as_str)
        .unwrap_or_default();
    Ok(BaselineSet { description: description.to_owned(), entries })
}

/// Reader of the entries of one file.
struct Reader<'a> {
    /// Name of the file in errors.
    origin: &'a str,
}

impl Reader<'_> {
    fn named(&self, key: &str, fields: &Map<String, Value>) -> Result<Vec<Baseline>, Error> {
        let name = fields.get("name").and_then(Value::as_str).unwrap_or(key);
        let metrics = self.object(&fields["metrics"], &format!("metrics of '{key}'"))?;
        let metadata = fields.get("metadata").and_then(Value::as_object);
        let metadata: BTreeMap<String, String> =
            metadata.into_iter().flatten().map(|(key, value)| (key.clone(), text(value))).collect();
        self.entries(name, metrics, fields, &metadata)
    }

    fn flat(
        &self,
        name: &str,
        values: &Map<String, Value>,
        file: &Map<String, Value>,
    ) -> Result<Vec<Baseline>, Error> {
        self.entries(name, values, file, &BTreeMap::new())
    }

    /// Returns one entry for the distribution and one for every other metric.
    fn entries(
        &self,
        name: &str,
        values: &Map<String, Value>,
        about: &Map<String, Value>,
        metadata: &BTreeMap<String, String>,
    ) -> Result<Vec<Baseline>, Error> {
        let number = |metric: &str| match values.get(metric) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => value
                .as_f64()
                .map(Some)
                .ok_or_else(|| self.error(&format!("{metric} of '{name}' is not a number"))),
        };
        let hardware = hardware(about.get("hardware"));
        let on_gpu = match metadata.get("backend") {
            Some(backend) => backend.eq_ignore_ascii_case("gpu"),
            None => !hardware.gpu.is_empty(),
        };
        let entry = |name: String, metrics: Metrics| -> Result<Baseline, Error> {
            Ok(Baseline {
                name,
                device: if on_gpu { DeviceKind::Gpu } else { DeviceKind::Cpu },
                origin: Origin::Measured,
                timestamp: self.timestamp(about.get("timestamp"))?,
                hardware: hardware.clone(),
                build: Build::default(),
                model: None,
                metrics,
                metadata: metadata.clone(),
            })
        };

        let mut entries = Vec::new();
        let distribution = Metrics {
            unit: "ms".to_owned(),
            better: Better::Lower,
            avg: number("avg_ms")?,
            min: number("min_ms")?,
            max: number("max_ms")?,
            p50: number("p50_ms")?,
            p95: number("p95_ms")?,
            p99: number("p99_ms")?,
            iterations: values.get("iterations").and_then(Value::as_u64),
            ..Metrics::default()
        };
        if distribution.value().is_some() {
            entries.push(entry(name.to_owned(), distribution)?);
        }
        for metric in values.keys() {
            if DISTRIBUTION.contains(&&**metric) || metric == "iterations" {
                continue;
            }
            if let Some(value) = number(metric)? {
                let (unit, better) = unit_of(metric);
                let metrics = Metrics::single(unit, better, value)?;
                entries.push(entry(format!("{name}/{metric}"), metrics)?);
            }
        }
        if entries.is_empty() {
            return Err(self.error(&format!("'{name}' has no figure")));
        }
        Ok(entries)
    }

    fn timestamp(&self, value: Option<&Value>) -> Result<Timestamp, Error> {
        let parsed = match value {
            None => Some(Timestamp::default()),
            Some(Value::String(text)) => Timestamp::parse(text),
            Some(value) => value.as_i64().map(Timestamp::from_unix),
        };
        parsed.ok_or_else(|| self.error("a timestamp is neither RFC 3339 nor seconds since 1970"))
    }

    fn object<'v>(&self, value: &'v Value, what: &str) -> Result<&'v Map<String, Value>, Error> {
        value.as_object().ok_or_else(|| self.error(&format!("{what} is not an object")))
    }

    fn error(&self, reason: &str) -> Error {
        Error::malformed(self.origin, 0, reason)
    }
}

/// Reads the hardware; the two formats have different names for some fields.
fn hardware(value: Option<&Value>) -> Hardware {
    let field = |names: &[&str]| {
        let mut found = names.iter().filter_map(|name| value?.get(name)?.as_str());
        found.next().unwrap_or_default().to_owned()
    };
    Hardware {
        gpu: field(&["gpu_name", "gpu"]),
        gfx: field(&["gpu_architecture", "architecture"]),
        rocm: field(&["rocm_version"]),
        cpu: field(&["cpu_name", "cpu"]),
        cpu_arch: field(&["cpu_arch"]),
        os: field(&["os"]),
        rustc: field(&["rustc_version"]),
        ..Hardware::default()
    }
}

/// The unit and direction of a metric, by the suffix of its name.
fn unit_of(metric: &str) -> (&'static str, Better) {
    const UNITS: [(&str, &str, Better); 10] = [
        ("_ms", "ms", Better::Lower),
        ("_us", "us", Better::Lower),
        ("_ns", "ns", Better::Lower),
        ("tokens_per_sec", "tokens/s", Better::Higher),
        ("_tps", "tokens/s", Better::Higher),
        ("_gflops", "GFLOP/s", Better::Higher),
        ("_gbps", "GB/s", Better::Higher),
        ("_gb", "GB", Better::Lower),
        ("_mb", "MB", Better::Lower),
        ("_percent", "%", Better::Higher),
    ];
    let found = UNITS.iter().find(|(end, ..)| metric.ends_with(end));
    found.map_or(("", Better::Lower), |&(_, unit, better)| (unit, better))
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMED: &str = r#"{"baselines": {"matmul": {"name": "matmul", "timestamp": 1737220800,
        "hardware": {"gpu_name": "RX 7900 XT", "gpu_architecture": "RDNA3", "rocm_version": "6.0.0",
                     "cpu_arch": "x86_64", "os": "linux", "rustc_version": "1.82.0"},
        "metrics": {"avg_ms": 10.5, "min_ms": 9.8, "max_ms": 11.2, "p50_ms": 10.3, "p95_ms": 10.9,
                    "p99_ms": 11.1, "iterations": 100},
        "metadata": {"backend": "gpu", "format": "Q4_K_M"}}},
        "metadata": {"description": "Performance baseline", "hardware_type": "gpu"}}"#;

    const FLAT: &str = r#"{"timestamp": "2026-01-18T00:00:00Z",
        "hardware": {"gpu": "AMD Radeon RX 7900 XT", "architecture": "gfx1100", "rocm_version": "7.1"},
        "baselines": {"matmul": {"avg_ms": 5.2, "p95_ms": 5.5, "tokens_per_sec": 192.3},
                      "inference": {"ttft_ms": 145.2, "generation_tps": 42.5, "peak_memory_gb": 5.2}}}"#;

    #[test]
    fn every_field_of_the_named_map_is_read() {
        let set = BaselineSet::from_json(NAMED, "t").unwrap();
        assert_eq!(set.description, "Performance baseline");
        let [entry] = &set.entries[..] else { panic!("{set:?}") };
        assert_eq!((&*entry.name, entry.device), ("matmul", DeviceKind::Gpu));
        assert_eq!(entry.timestamp.as_unix(), 1_737_220_800);
        assert_eq!((&*entry.hardware.gpu, &*entry.hardware.gfx), ("RX 7900 XT", "RDNA3"));
        assert_eq!((entry.metrics.p99, entry.metrics.iterations), (Some(11.1), Some(100)));
        assert_eq!(entry.metadata["format"], "Q4_K_M");
    }

    #[test]
    fn metrics_of_the_flat_map_have_the_units_of_their_names() {
        let set = BaselineSet::from_json(FLAT, "t").unwrap();
        let values: Vec<_> = set
            .entries
            .iter()
            .map(|entry| (&*entry.name, entry.metrics.value().unwrap(), &*entry.metrics.unit))
            .collect();
        let expected = [
            ("inference/generation_tps", 42.5, "tokens/s"),
            ("inference/peak_memory_gb", 5.2, "GB"),
            ("inference/ttft_ms", 145.2, "ms"),
            ("matmul", 5.2, "ms"),
            ("matmul/tokens_per_sec", 192.3, "tokens/s"),
        ];
        let mut sorted = values.clone();
        sorted.sort_by_key(|(name, ..)| *name);
        assert_eq!(sorted, expected);
        assert_eq!(set.entries[0].hardware.gfx, "gfx1100");
    }

    #[test]
    fn other_files_are_errors_with_the_reason() {
        for (text, reason) in [
            ("{}", "no baseline file"),
            ("[1]", "the file is not an object"),
            (r#"{"baselines": 3}"#, "baselines is not an object"),
            (r#"{"baselines": {"a": {}}}"#, "'a' has no figure"),
            (r#"{"baselines": {"a": {"avg_ms": "fast"}}}"#, "avg_ms of 'a' is not a number"),
            (r#"{"timestamp": "x", "baselines": {"a": {"avg_ms": 1}}}"#, "timestamp"),
        ] {
            let error = BaselineSet::from_json(text, "t").unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
