//! The instruction sets that kernels are compiled for, and the choice of one at run time.

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

#[cfg(target_arch = "aarch64")]
use super::neon;
use super::portable;
use super::vector::{Kernel, Simd};
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};

/// An instruction set that this CPU supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isa(IsaKind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IsaKind {
    Portable(portable::Portable),
    #[cfg(target_arch = "x86_64")]
    Avx2(avx2::Avx2<false>),
    #[cfg(target_arch = "x86_64")]
    AvxVnni(avx2::Avx2<true>),
    #[cfg(target_arch = "x86_64")]
    Avx512(avx512::Avx512),
    #[cfg(target_arch = "aarch64")]
    Neon(neon::Neon<false>),
    #[cfg(target_arch = "aarch64")]
    NeonDotprod(neon::Neon<true>),
}

impl Isa {
    /// Every ISA that this CPU supports, slowest first.
    pub fn available() -> Vec<Self> {
        let mut isas = vec![Self(IsaKind::Portable(portable::Portable))];
        #[cfg(target_arch = "x86_64")]
        {
            isas.extend(avx2::Avx2::<false>::detect().map(|t| Self(IsaKind::Avx2(t))));
            isas.extend(avx2::Avx2::<true>::detect().map(|t| Self(IsaKind::AvxVnni(t))));
            isas.extend(avx512::Avx512::detect().map(|t| Self(IsaKind::Avx512(t))));
        }
        #[cfg(target_arch = "aarch64")]
        {
            isas.extend(neon::Neon::<false>::detect().map(|t| Self(IsaKind::Neon(t))));
            isas.extend(neon::Neon::<true>::detect().map(|t| Self(IsaKind::NeonDotprod(t))));
        }
        isas
    }

    /// The fastest ISA that this CPU supports.
    pub fn best() -> Self {
        static BEST: LazyLock<Isa> =
            LazyLock::new(|| *Isa::available().last().expect("portable is always there"));
        *BEST
    }

    /// The name of the ISA, which [`FromStr`] parses.
    pub fn name(self) -> &'static str {
        match self.0 {
            IsaKind::Portable(_) => "portable",
            #[cfg(target_arch = "x86_64")]
            IsaKind::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            IsaKind::AvxVnni(_) => "avx-vnni",
            #[cfg(target_arch = "x86_64")]
            IsaKind::Avx512(_) => "avx512-vnni",
            #[cfg(target_arch = "aarch64")]
            IsaKind::Neon(_) => "neon",
            #[cfg(target_arch = "aarch64")]
            IsaKind::NeonDotprod(_) => "neon-dotprod",
        }
    }

    /// Returns true if GEMM kernels are compiled for this ISA: [`Simd::HAS_GEMM`].
    pub(crate) fn has_gemm(self) -> bool {
        match self.0 {
            IsaKind::Portable(_) => portable::Portable::HAS_GEMM,
            #[cfg(target_arch = "x86_64")]
            IsaKind::Avx2(_) => avx2::Avx2::<false>::HAS_GEMM,
            #[cfg(target_arch = "x86_64")]
            IsaKind::AvxVnni(_) => avx2::Avx2::<true>::HAS_GEMM,
            #[cfg(target_arch = "x86_64")]
            IsaKind::Avx512(_) => avx512::Avx512::HAS_GEMM,
            #[cfg(target_arch = "aarch64")]
            IsaKind::Neon(_) => neon::Neon::<false>::HAS_GEMM,
            #[cfg(target_arch = "aarch64")]
            IsaKind::NeonDotprod(_) => neon::Neon::<true>::HAS_GEMM,
        }
    }

    /// Runs a kernel on this ISA.
    #[inline]
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self.0 {
            IsaKind::Portable(s) => s.vectorize(kernel),
            #[cfg(target_arch = "x86_64")]
            IsaKind::Avx2(s) => s.vectorize(kernel),
            #[cfg(target_arch = "x86_64")]
            IsaKind::AvxVnni(s) if K::MULTIPLIES_INTEGERS => s.vectorize(kernel),
            #[cfg(target_arch = "x86_64")]
            IsaKind::AvxVnni(s) => avx2::Avx2::<false>::from(s).vectorize(kernel),
            #[cfg(target_arch = "x86_64")]
            IsaKind::Avx512(s) => s.vectorize(kernel),
            #[cfg(target_arch = "aarch64")]
            IsaKind::Neon(s) => s.vectorize(kernel),
            #[cfg(target_arch = "aarch64")]
            IsaKind::NeonDotprod(s) if K::MULTIPLIES_INTEGERS => s.vectorize(kernel),
            #[cfg(target_arch = "aarch64")]
            IsaKind::NeonDotprod(s) => neon::Neon::<false>::from(s).vectorize(kernel),
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Isa {
    type Err = UnknownIsa;

    fn from_str(name: &str) -> Result<Self, UnknownIsa> {
        let available = Self::available();
        let found = available.iter().find(|isa| isa.name() == name).copied();
        found.ok_or_else(|| UnknownIsa {
            name: name.into(),
            available: available.iter().map(|t| t.name()).collect::<Vec<_>>().join(", "),
        })
    }
}

/// The error for an ISA that does not exist or that this CPU does not support.
#[derive(Debug, thiserror::Error)]
#[error("ISA '{name}' is not available on this CPU; available: {available}")]
pub struct UnknownIsa {
    name: String,
    available: String,
}
