//! The machine code for a device: embedded for it, embedded for its family, or compiled at run
//! time.
//!
//! The build script embeds the kernel sources, and code objects for the requested targets (see
//! [`build_note`]). [`choose`] prefers the exact architecture to the generic one of its family.
//! Without either, ROCm's libhiprtc compiles the sources into a per-user cache. An NVIDIA device
//! uses the newest PTX that it supports; its driver compiles the PTX.
//!
//! Code that the AMD driver refuses is replaced by the next kind: exact, generic, compiled. ROCm
//! before 6.4 refuses generic code, for instance.

mod compiled;
mod delta;
mod embedded;

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

pub(crate) use compiled::Variant;
use embedded::Embedded;
use memchr::memmem;
use rayon::prelude::*;
use thiserror::Error;

/// The origin of the code for a device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CodeOrigin {
    /// Embedded for this architecture.
    Exact {
        /// The target, such as `gfx1100`.
        target: &'static str,
    },
    /// Embedded for the family; loading it needs ROCm 6.4 or newer.
    Generic {
        /// The target, such as `gfx11-generic`.
        target: &'static str,
    },
    /// PTX embedded for this compute capability or an older one; the driver compiles it.
    Ptx {
        /// The target, such as `sm_80`.
        target: &'static str,
    },
    /// Compiled from the embedded sources by this machine's ROCm, on first use.
    RunTime {
        /// The architecture, such as `gfx1036`.
        arch: String,
    },
}

/// A failure to find or load the code for a device.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// No build has kernels for this device.
    #[error("no kernels for {arch}: {why}")]
    Unsupported {
        /// Architecture, as the driver reports it.
        arch: String,
        /// The requirement that the device does not meet.
        why: &'static str,
    },
    /// The program was built without kernels for this device and cannot compile them.
    #[error("this program carries no kernels for {arch} ({note}): {remedy}")]
    NotEmbedded {
        /// Architecture, as the driver reports it.
        arch: String,
        /// The text of [`build_note`].
        note: &'static str,
        /// The cure.
        remedy: String,
    },
    /// The program was built without kernels for this device, and compiling the sources failed.
    #[error("kernels for {arch} could not be compiled on this machine")]
    RunTime {
        /// Architecture, as the driver reports it.
        arch: String,
        /// The error of libhiprtc.
        source: rf_hip::Error,
    },
    /// The driver refuses the code, and nothing replaces it.
    #[error("the driver refuses the kernels for {arch} ({}): {remedy}", refused.join("; "))]
    Refused {
        /// Architecture, as the driver reports it.
        arch: String,
        /// Each kind of code with the reason of its refusal.
        refused: Vec<String>,
        /// The cure.
        remedy: &'static str,
    },
    /// An embedded code object is damaged, and so is the program's file.
    #[error("embedded code of {unit} for {target} is damaged: install the program again")]
    Damaged {
        /// Name of the translation unit.
        unit: &'static str,
        /// Target of the code object.
        target: &'static str,
    },
}

/// The code for one device.
pub(crate) struct CodeObjects {
    arch: String,
    choice: CodeOrigin,
    /// The code of each translation unit `kernels/NAME.hip`, ordered by name: AMD code objects, or
    /// PTX as text without a NUL at the end. Units are found by it also when other code replaces
    /// it.
    units: Vec<Vec<u8>>,
    /// Each kind of code that the driver refused, with the reason.
    refused: Vec<String>,
}

/// One sentence about the embedded kernels: their compiler and targets, or the reason for their
/// absence.
pub fn build_note() -> &'static str {
    embedded::NOTE
}

/// The targets of the embedded code objects.
pub fn embedded_targets() -> impl Iterator<Item = &'static str> {
    embedded::targets()
}

/// `$XDG_CACHE_HOME/rocmforge`, where files of a card are kept; `XDG_CACHE_HOME` defaults to
/// `~/.cache`, on Windows to `%LOCALAPPDATA%`. `None` if the environment has no home directory.
pub fn cache_folder() -> Option<PathBuf> {
    compiled::cache_folder()
}

/// The origin of the code for a device of `arch` (`gfx1100`, `sm_90`; features after a colon are
/// ignored), without loading or compiling it.
///
/// # Errors
///
/// [`Error::Unsupported`] if no kernels for the device exist, [`Error::NotEmbedded`] if the program
/// has none and cannot compile them.
pub fn choose(arch: &str) -> Result<CodeOrigin, Error> {
    let arch = base(arch);
    let available: Vec<_> = embedded::targets().collect();
    let device = Device::parse(arch).ok_or_else(|| unsupported(arch))?;
    if let Some(choice) = device.choose(arch, &available) {
        return Ok(choice);
    }
    match device {
        Device::Amd { .. } if compiled::available() => {
            Ok(CodeOrigin::RunTime { arch: arch.to_owned() })
        }
        _ => Err(not_embedded(arch, &device)),
    }
}

impl CodeObjects {
    /// The code that [`choose`] selects for a device of `arch`.
    ///
    /// # Errors
    ///
    /// The errors of [`choose`], and [`Error::Damaged`], or [`Error::RunTime`] if compiling fails.
    pub(crate) fn for_device(arch: &str) -> Result<Self, Error> {
        let choice = choose(arch)?;
        let units = match &choice {
            CodeOrigin::RunTime { arch } => compiled::units(arch)
                .map_err(|source| Error::RunTime { arch: arch.clone(), source })?,
            CodeOrigin::Exact { target }
            | CodeOrigin::Generic { target }
            | CodeOrigin::Ptx { target } => embedded_units(target)?,
        };
        Ok(Self { arch: base(arch).to_owned(), choice, units, refused: Vec::new() })
    }

    /// The origin of the code in use.
    pub(crate) fn choice(&self) -> &CodeOrigin {
        &self.choice
    }

    /// The index of the unit that has a kernel.
    pub(crate) fn unit_of(&self, kernel: &str) -> Option<usize> {
        // PTX contains `.entry name(`. A code object contains the symbol between zero bytes.
        let names = [format!(".entry {kernel}("), format!("\0{kernel}\0")];
        let finders = names.each_ref().map(|name| memmem::Finder::new(name.as_bytes()));
        let has_kernel = |code: &Vec<u8>| finders.iter().any(|name| name.find(code).is_some());
        self.units.iter().position(has_kernel)
    }

    /// Returns true if a kernel of a unit waits for earlier kernels itself, so that it can start
    /// before these end: `await_previous_kernels` in the sources.
    pub(crate) fn waits(&self, unit: usize, kernel: &str) -> bool {
        matches!(self.choice, CodeOrigin::Ptx { .. }) && waits(&self.units[unit], kernel)
    }

    /// The code of a unit in use.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`], or [`Error::RunTime`] if compiling fails.
    pub(crate) fn unit(&self, index: usize) -> Result<Cow<'_, [u8]>, Error> {
        if self.refused.is_empty() {
            return Ok(Cow::Borrowed(&self.units[index]));
        }
        match &self.choice {
            CodeOrigin::RunTime { arch } => {
                let code = compiled::unit(arch, &embedded::SOURCES[index], None);
                code.map(Cow::Owned).map_err(|source| Error::RunTime { arch: arch.clone(), source })
            }
            CodeOrigin::Exact { target }
            | CodeOrigin::Generic { target }
            | CodeOrigin::Ptx { target } => {
                let unit = embedded::SOURCES[index].unit;
                let of = |object: &&Embedded| object.target == *target && object.unit == unit;
                let object = embedded::OBJECTS.iter().find(of);
                let code = object.and_then(Embedded::inflate);
                code.map(Cow::Owned).ok_or(Error::Damaged { unit, target })
            }
        }
    }

    /// Returns true if this machine can compile variants of units.
    pub(crate) fn compiles(&self) -> bool {
        !matches!(self.choice, CodeOrigin::Ptx { .. }) && compiled::available()
    }

    /// The code of a variant of a unit, compiled on this machine or earlier.
    ///
    /// # Errors
    ///
    /// [`Error::RunTime`] if compiling fails.
    pub(crate) fn variant(&self, index: usize, variant: Variant) -> Result<Vec<u8>, Error> {
        let code = compiled::unit(&self.arch, &embedded::SOURCES[index], Some(variant));
        code.map_err(|source| Error::RunTime { arch: self.arch.clone(), source })
    }

    /// Replaces the code in use, which the driver refuses.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] if nothing replaces it.
    pub(crate) fn replace(&mut self, refusal: &rf_hip::Error) -> Result<(), Error> {
        let refused = format!("{}: {refusal}", self.choice);
        let generic = match (&self.choice, Device::parse(&self.arch)) {
            (CodeOrigin::Exact { .. }, Some(Device::Amd { generic: Some(generic) })) => {
                embedded::targets().find(|target| *target == generic)
            }
            _ => None,
        };
        let next = match (&self.choice, generic) {
            (_, Some(target)) => Some(CodeOrigin::Generic { target }),
            (CodeOrigin::Exact { .. } | CodeOrigin::Generic { .. }, None)
                if compiled::available() =>
            {
                Some(CodeOrigin::RunTime { arch: self.arch.clone() })
            }
            _ => None,
        };
        self.refused.push(refused);
        let Some(next) = next else {
            let remedy = match self.choice {
                CodeOrigin::Exact { .. } | CodeOrigin::Generic { .. } => {
                    "install ROCm's libhiprtc, which compiles them on first use, or ROCm 6.4 or newer"
                }
                _ => "update the driver",
            };
            let (arch, refused) = (self.arch.clone(), self.refused.clone());
            return Err(Error::Refused { arch, refused, remedy });
        };
        tracing::warn!("the driver refuses the code for {}; using {next}", self.refused.join("; "));
        self.choice = next;
        Ok(())
    }
}

impl fmt::Display for CodeOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact { target } => write!(f, "{target}"),
            Self::Generic { target } => write!(f, "{target} (family)"),
            Self::Ptx { target } => write!(f, "{target} (PTX)"),
            Self::RunTime { arch } => write!(f, "{arch} (compiled on first use)"),
        }
    }
}

/// Returns true if a kernel in PTX contains `griddepcontrol.wait`.
fn waits(ptx: &[u8], kernel: &str) -> bool {
    let Some(start) = memmem::find(ptx, format!(".entry {kernel}(").as_bytes()) else {
        return false;
    };
    let body = &ptx[start + 1..];
    let end = memmem::find(body, b".entry ").unwrap_or(body.len());
    memmem::find(&body[..end], b"griddepcontrol.wait").is_some()
}

fn embedded_units(target: &str) -> Result<Vec<Vec<u8>>, Error> {
    let objects = embedded::OBJECTS.par_iter().filter(|object| object.target == target);
    let inflated = objects.map(|object| {
        let (unit, target) = (object.unit, object.target);
        object.inflate().ok_or(Error::Damaged { unit, target })
    });
    inflated.collect()
}

/// The parts of an architecture's name that select its code.
enum Device {
    /// An AMD device and the generic target of its family, if that exists.
    Amd { generic: Option<&'static str> },
    /// An NVIDIA device of this compute capability, times ten.
    Nvidia { capability: u32 },
}

impl Device {
    fn parse(arch: &str) -> Option<Self> {
        if let Some(capability) = arch.strip_prefix("sm_") {
            let digits = capability.trim_end_matches(|c: char| c.is_ascii_lowercase());
            return Some(Self::Nvidia { capability: digits.parse().ok()? });
        }
        // LLVM's "Generic processors" in its AMDGPU usage guide.
        let generic = match arch.strip_prefix("gfx")? {
            "900" | "902" | "904" | "906" | "909" | "90c" => Some("gfx9-generic"),
            "90a" | "940" | "941" | "942" | "950" => None,
            "1030" | "1031" | "1032" | "1033" | "1034" | "1035" | "1036" => Some("gfx10-3-generic"),
            "1100" | "1101" | "1102" | "1103" | "1150" | "1151" | "1152" | "1153" => {
                Some("gfx11-generic")
            }
            "1200" | "1201" => Some("gfx12-generic"),
            _ => return None,
        };
        Some(Self::Amd { generic })
    }

    fn choose(&self, arch: &str, available: &[&'static str]) -> Option<CodeOrigin> {
        let find = |name: &str| available.iter().copied().find(|&target| target == name);
        match *self {
            Self::Amd { generic } => find(arch)
                .map(|target| CodeOrigin::Exact { target })
                .or_else(|| generic.and_then(find).map(|target| CodeOrigin::Generic { target })),
            Self::Nvidia { capability } => available
                .iter()
                .filter(|target| is_supported(target, capability))
                .max()
                .map(|&target| CodeOrigin::Ptx { target }),
        }
    }
}

/// Returns true if a device of a compute capability, times ten, runs PTX for a target: `sm_90` from
/// 90 on, `sm_90a` with 90 alone.
fn is_supported(target: &str, capability: u32) -> bool {
    let Some(name) = target.strip_prefix("sm_") else { return false };
    match name.strip_suffix('a') {
        Some(only) => only.parse() == Ok(capability),
        None => name.parse().is_ok_and(|needed: u32| needed <= capability),
    }
}

/// The architecture without features: `gfx90a` for `gfx90a:sramecc+:xnack-`.
fn base(arch: &str) -> &str {
    arch.split(':').next().unwrap_or(arch)
}

fn not_embedded(arch: &str, device: &Device) -> Error {
    let rebuild = |target: &str| {
        format!("build it with clang 19 and lld 19 installed and ROCFORGE_KERNEL_TARGETS={target}")
    };
    let remedy = match device {
        Device::Amd { .. } => {
            format!(
                "install ROCm's libhiprtc, which compiles them on first use, or {}",
                rebuild(arch)
            )
        }
        Device::Nvidia { .. } => rebuild("sm_80"),
    };
    Error::NotEmbedded { arch: arch.to_owned(), note: embedded::NOTE, remedy }
}

fn unsupported(arch: &str) -> Error {
    let why = "AMD cards from gfx900 (Vega) to gfx12 and NVIDIA cards of compute capability 8.0 or newer are supported";
    Error::Unsupported { arch: arch.to_owned(), why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::Gpu;

    fn chosen(arch: &str, available: &[&'static str]) -> Option<CodeOrigin> {
        Device::parse(arch).and_then(|device| device.choose(arch, available))
    }

    #[test]
    fn exact_code_is_preferred_to_family_code() {
        let both = ["gfx11-generic", "gfx1100"];
        assert_eq!(chosen("gfx1100", &both), Some(CodeOrigin::Exact { target: "gfx1100" }));
        assert_eq!(chosen("gfx1151", &both), Some(CodeOrigin::Generic { target: "gfx11-generic" }));
        assert_eq!(chosen("gfx1201", &both), None);
        // Clang 19 has no generic target for gfx90a and gfx942.
        assert_eq!(chosen("gfx90a", &["gfx9-generic"]), None);
    }

    #[test]
    fn nvidia_devices_use_the_newest_supported_ptx() {
        let all = ["sm_80", "sm_90", "gfx1100"];
        assert_eq!(chosen("sm_86", &all), Some(CodeOrigin::Ptx { target: "sm_80" }));
        assert_eq!(chosen("sm_90a", &all), Some(CodeOrigin::Ptx { target: "sm_90" }));
        assert_eq!(chosen("sm_120", &all), Some(CodeOrigin::Ptx { target: "sm_90" }));
        let with_exact = ["sm_80", "sm_90", "sm_90a"];
        assert_eq!(chosen("sm_90", &with_exact), Some(CodeOrigin::Ptx { target: "sm_90a" }));
        assert_eq!(chosen("sm_100", &with_exact), Some(CodeOrigin::Ptx { target: "sm_90" }));
        assert_eq!(chosen("sm_80", &with_exact), Some(CodeOrigin::Ptx { target: "sm_80" }));
        assert_eq!(chosen("sm_75", &all), None);
    }

    #[test]
    fn kernels_that_wait_are_found_in_ptx() {
        let ptx =
            b".visible .entry first(\n{ ret; }\n.visible .entry second(\n{ griddepcontrol.wait; }";
        assert!(!waits(ptx, "first"));
        assert!(waits(ptx, "second"));
        assert!(!waits(ptx, "seco"));
    }

    #[test]
    fn invalid_code_is_an_error_and_the_device_stays_usable() {
        const KERNEL: &str = "rope_f32";
        let context = match rf_hip::Runtime::load().and_then(|runtime| runtime.device(0)?.context())
        {
            Ok(context) => context,
            Err(error) => {
                rf_testing::skip!("{error}");
                return;
            }
        };
        let good = match CodeObjects::for_device(&context.info().arch) {
            Ok(good) => good,
            Err(error) => {
                rf_testing::skip!("{error}");
                return;
            }
        };
        let gpu = |units| {
            let choice = CodeOrigin::RunTime { arch: good.arch.clone() };
            let (arch, refused) = (good.arch.clone(), Vec::new());
            Gpu::new(context.clone(), CodeObjects { arch, choice, units, refused }, 1, false)
        };
        // Every sample contains the kernel's name, so that the lookup selects it.
        let name = format!(".entry {KERNEL}(\0{KERNEL}\0").into_bytes();
        let rest: Vec<u8> = good.units.iter().flat_map(|code| &code[4..]).copied().collect();
        let first = &good.units[0];
        let wrong: [Vec<u8>; 4] = [
            name.clone(),
            [&b"\x7fELF"[..], &name].concat(),
            rest,
            [&first[..first.len() / 2], &name].concat(),
        ];
        for code in wrong {
            let error = gpu(vec![code]).kernel(KERNEL).err();
            let is_refused = matches!(error, Some(crate::Error::Objects(Error::Refused { .. })));
            assert!(is_refused, "{error:?}");
        }
        let error = gpu(Vec::new()).kernel(KERNEL).err();
        assert!(matches!(error, Some(crate::Error::NoKernel { name: KERNEL })), "{error:?}");
        gpu(good.units.clone()).kernel(KERNEL).unwrap();
    }

    #[test]
    fn unsupported_devices_are_named_in_the_error() {
        for arch in ["gfx803", "gfx1010", "gfx", "sm_", "sm_x", "", "llvmpipe"] {
            let error = choose(arch).unwrap_err();
            assert!(
                matches!(&error, Error::Unsupported { arch: named, .. } if named == arch),
                "{error}"
            );
        }
    }

    #[test]
    fn every_embedded_target_has_complete_code_of_every_unit() {
        if embedded::OBJECTS.is_empty() {
            rf_testing::skip!("{}", build_note());
            return;
        }
        for target in embedded_targets() {
            let objects: Vec<_> =
                embedded::OBJECTS.iter().filter(|object| object.target == target).collect();
            let units: Vec<_> = objects.iter().map(|object| object.unit).collect();
            let sources: Vec<_> = embedded::SOURCES.iter().map(|source| source.unit).collect();
            assert_eq!(units, sources, "{target}");
            for object in objects {
                let code = object.inflate().unwrap();
                let start: &[u8] = if target.starts_with("sm_") { b"//" } else { b"\x7fELF" };
                assert!(code.starts_with(start), "{} for {target}", object.unit);
            }
        }
    }
}
