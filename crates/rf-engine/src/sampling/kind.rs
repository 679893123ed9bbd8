//! The samplers of a chain, by name.

use std::fmt;
use std::str::FromStr;

/// A step of the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SamplerKind {
    /// Repetition, presence and frequency penalties.
    Penalties,
    /// Penalties for tokens that continue a repetition.
    Dry,
    /// Keeps logits within some standard deviations of the largest one.
    TopNSigma,
    /// Keeps the most probable tokens.
    TopK,
    /// Keeps tokens of typical information content.
    Typical,
    /// Keeps the most probable tokens with a share of the probability.
    TopP,
    /// Keeps tokens at least as probable as a fraction of the most probable one.
    MinP,
    /// Removes the most probable tokens at random, but not all of them.
    Xtc,
    /// Divides the logits.
    Temperature,
}

impl SamplerKind {
    /// All samplers in llama.cpp's order, which is the default.
    pub const ALL: [Self; 9] = [
        Self::Penalties,
        Self::Dry,
        Self::TopNSigma,
        Self::TopK,
        Self::Typical,
        Self::TopP,
        Self::MinP,
        Self::Xtc,
        Self::Temperature,
    ];

    /// The name in `--samplers` of llama.cpp.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Penalties => "penalties",
            Self::Dry => "dry",
            Self::TopNSigma => "top_n_sigma",
            Self::TopK => "top_k",
            Self::Typical => "typ_p",
            Self::TopP => "top_p",
            Self::MinP => "min_p",
            Self::Xtc => "xtc",
            Self::Temperature => "temperature",
        }
    }

    /// The letter in `--sampler-seq` of llama.cpp.
    pub const fn letter(self) -> char {
        match self {
            Self::Penalties => 'e',
            Self::Dry => 'd',
            Self::TopNSigma => 's',
            Self::TopK => 'k',
            Self::Typical => 'y',
            Self::TopP => 'p',
            Self::MinP => 'm',
            Self::Xtc => 'x',
            Self::Temperature => 't',
        }
    }
}

impl fmt::Display for SamplerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for SamplerKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let plain = name.trim().to_ascii_lowercase().replace('-', "_");
        let plain = match plain.as_str() {
            "typical" | "typical_p" => "typ_p",
            "temp" => "temperature",
            "nucleus" => "top_p",
            "top_nsigma" => "top_n_sigma",
            plain => plain,
        };
        let known = Self::ALL.into_iter().find(|kind| kind.name() == plain);
        known.ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|kind| kind.name()).collect();
            format!(
                "unknown sampler '{}': the samplers are {}",
                name.escape_debug(),
                names.join(", ")
            )
        })
    }
}
