//! The parameters of sampling that the makers of a model recommend, in the metadata of its file.

use rf_engine::sampling::{MirostatConfig, MirostatVersion, SamplerConfig, SamplerKind};
use rf_gguf::{Gguf, Value};

/// The parameters in `general.sampling.*` of a file. Those that a file does not have, or that are
/// out of range, are `None`.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SamplingDefaults {
    /// `general.sampling.temp`.
    pub temperature: Option<f32>,
    /// `general.sampling.top_k`.
    pub top_k: Option<usize>,
    /// `general.sampling.top_p`.
    pub top_p: Option<f32>,
    /// `general.sampling.min_p`.
    pub min_p: Option<f32>,
    /// `general.sampling.xtc_probability`.
    pub xtc_probability: Option<f32>,
    /// `general.sampling.xtc_threshold`.
    pub xtc_threshold: Option<f32>,
    /// `general.sampling.penalty_last_n`: `Some(None)` for the whole context.
    pub repeat_last_n: Option<Option<usize>>,
    /// `general.sampling.penalty_repeat`.
    pub repeat_penalty: Option<f32>,
    /// `general.sampling.mirostat`, with `mirostat_tau` and `mirostat_eta`.
    pub mirostat: Option<MirostatConfig>,
    /// `general.sampling.sequence`: the samplers in their order.
    pub samplers: Option<Vec<SamplerKind>>,
}

/// The most samplers of a chain.
const MAX_SAMPLERS: usize = 32;

impl SamplingDefaults {
    /// Reads the metadata of a file.
    pub fn of(gguf: &Gguf) -> Self {
        let value = |name: &str| gguf.metadata().get(&format!("general.sampling.{name}"));
        let integer = |name: &str| value(name).and_then(Value::as_integer);
        let float = |name: &str| {
            let found = value(name)?;
            let number = found.as_float().or_else(|| found.as_integer().map(|n| n as f64))?;
            Some(number as f32)
        };
        let version = match integer("mirostat") {
            Some(1) => Some(MirostatVersion::V1),
            Some(2) => Some(MirostatVersion::V2),
            _ => None,
        };
        let mirostat = version.map(|version| {
            MirostatConfig::new(version)
                .with_tau(float("mirostat_tau").unwrap_or(MirostatConfig::TAU))
                .with_eta(float("mirostat_eta").unwrap_or(MirostatConfig::ETA))
        });
        let found = Self {
            temperature: float("temp"),
            top_k: integer("top_k").map(|k| usize::try_from(k).unwrap_or(0)),
            top_p: float("top_p"),
            min_p: float("min_p"),
            xtc_probability: float("xtc_probability"),
            xtc_threshold: float("xtc_threshold"),
            repeat_last_n: integer("penalty_last_n").map(|n| usize::try_from(n).ok()),
            repeat_penalty: float("penalty_repeat"),
            mirostat,
            samplers: value("sequence").and_then(Value::as_str).and_then(samplers_of),
        };
        // The file is a stranger's: a value that no request could have is not used.
        if found.fill_in(SamplerConfig::default()).validate().is_ok() {
            return found;
        }
        tracing::warn!("the parameters of sampling in the file are out of range and not used");
        Self::default()
    }

    /// Sets these parameters where `config` has the usual ones.
    #[must_use]
    pub fn fill_in(&self, mut config: SamplerConfig) -> SamplerConfig {
        fn fill<T: PartialEq>(own: &mut T, usual: &T, file: Option<T>) {
            if let Some(file) = file
                && own == usual
            {
                *own = file;
            }
        }
        let usual = SamplerConfig::default();
        fill(&mut config.temperature, &usual.temperature, self.temperature);
        fill(&mut config.top_k, &usual.top_k, self.top_k);
        fill(&mut config.top_p, &usual.top_p, self.top_p);
        fill(&mut config.min_p, &usual.min_p, self.min_p);
        fill(&mut config.xtc_probability, &usual.xtc_probability, self.xtc_probability);
        fill(&mut config.xtc_threshold, &usual.xtc_threshold, self.xtc_threshold);
        fill(&mut config.repeat_last_n, &usual.repeat_last_n, self.repeat_last_n);
        fill(&mut config.repeat_penalty, &usual.repeat_penalty, self.repeat_penalty);
        fill(&mut config.mirostat, &None, self.mirostat.map(Some));
        fill(&mut config.samplers, &usual.samplers, self.samplers.clone());
        config
    }
}

/// The samplers of names separated by `;`. As in llama.cpp, unknown ones are left out.
fn samplers_of(sequence: &str) -> Option<Vec<SamplerKind>> {
    let names = sequence.split(';').map(str::trim).filter(|name| !name.is_empty());
    if names.clone().count() > MAX_SAMPLERS {
        tracing::warn!("general.sampling.sequence in the file has too many samplers");
        return None;
    }
    let kinds = names.filter_map(|name| match name.parse() {
        Ok(kind) => Some(kind),
        Err(error) => {
            tracing::warn!("general.sampling.sequence in the file: {error}");
            None
        }
    });
    Some(kinds.collect()).filter(|kinds: &Vec<_>| !kinds.is_empty())
}

#[cfg(test)]
mod tests {
    use rf_gguf::GgufWriter;

    use super::*;

    fn gguf(add: impl FnOnce(&mut GgufWriter)) -> (tempfile::TempDir, Gguf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.gguf");
        let mut writer = GgufWriter::new();
        writer.add("general.architecture", "llama").unwrap();
        add(&mut writer);
        writer.write_file(&path, |_, _| Ok(())).unwrap();
        let gguf = Gguf::open(&path).unwrap();
        (folder, gguf)
    }

    #[test]
    fn parameters_of_the_file_stand_in_for_the_usual_ones() {
        let (_folder, gguf) = gguf(|writer| {
            for (key, value) in [("temp", 0.6_f32), ("top_p", 0.8), ("penalty_repeat", 1.05)] {
                writer.add(format!("general.sampling.{key}"), value).unwrap();
            }
            writer.add("general.sampling.top_k", 20).unwrap();
            writer.add("general.sampling.penalty_last_n", -1).unwrap();
            writer.add("general.sampling.mirostat", 2).unwrap();
            writer.add("general.sampling.sequence", "top_k;infill;;temp").unwrap();
        });
        let file = SamplingDefaults::of(&gguf);
        let filled = file.fill_in(SamplerConfig::default().with_top_p(0.5));
        let expected = SamplerConfig::default()
            .with_temperature(0.6)
            .with_top_k(20)
            .with_top_p(0.5)
            .with_repeat_last_n(None)
            .with_repeat_penalty(1.05)
            .with_mirostat(MirostatConfig::new(MirostatVersion::V2))
            .with_samplers(vec![SamplerKind::TopK, SamplerKind::Temperature]);
        assert_eq!(filled, expected);
    }

    #[test]
    fn an_order_of_no_known_sampler_or_of_too_many_is_not_used() {
        for sequence in ["", ";", "infill", &"top_k;".repeat(33)] {
            assert_eq!(samplers_of(sequence), None, "{sequence}");
        }
        assert_eq!(samplers_of("nucleus").unwrap(), [SamplerKind::TopP]);
    }

    #[test]
    fn parameters_out_of_range_are_not_used() {
        let (_folder, gguf) = gguf(|writer| {
            writer.add("general.sampling.top_p", 7.0_f32).unwrap();
            writer.add("general.sampling.top_k", 20).unwrap();
        });
        assert_eq!(SamplingDefaults::of(&gguf), SamplingDefaults::default());
    }
}
