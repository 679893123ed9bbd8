//! The loaded runtime library.

use std::{env, fmt, path::Path, sync::Arc};

use crate::{
    Device, Error,
    result::{self, Api},
    sys::library::Search,
};

/// Whose GPUs a [`Runtime`] drives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Platform {
    /// AMD, through HIP (libamdhip64).
    Amd,
    /// NVIDIA, through the CUDA driver (libcuda).
    Nvidia,
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Amd => "AMD",
            Self::Nvidia => "NVIDIA",
        })
    }
}

/// A GPU runtime library, loaded; cloning is cheap.
///
/// The library stays loaded until the process ends.
#[derive(Debug, Clone)]
pub struct Runtime {
    api: Arc<Api>,
}

impl Runtime {
    /// Loads the AMD runtime, or the NVIDIA one where the AMD one is absent or finds no device.
    ///
    /// Environment: `ROCFORGE_GPU_PLATFORM` (`amd` or `nvidia`) admits only that one;
    /// `ROCFORGE_HIP_LIBRARY` and `ROCFORGE_CUDA_LIBRARY` name the library to open instead of the
    /// usual ones; `ROCM_PATH` is looked into first.
    ///
    /// # Errors
    ///
    /// [`Error::LibraryNotFound`] with everything that was tried, or why a library that is there
    /// cannot be used.
    pub fn load() -> Result<Self, Error> {
        match env::var_os("ROCFORGE_GPU_PLATFORM").filter(|value| !value.is_empty()) {
            Some(name) if name.eq_ignore_ascii_case("amd") => Self::load_platform(Platform::Amd),
            Some(name) if name.eq_ignore_ascii_case("nvidia") => {
                Self::load_platform(Platform::Nvidia)
            }
            Some(name) => Err(Error::UnknownPlatform { name: name.to_string_lossy().into_owned() }),
            None => Self::load_any(),
        }
    }

    /// Loads the runtime of one platform; the environment may still name the library.
    ///
    /// # Errors
    ///
    /// As [`Runtime::load`].
    pub fn load_platform(platform: Platform) -> Result<Self, Error> {
        let api = Api::load(platform, &Search::from_environment(platform))?;
        Ok(Self { api: Arc::new(api) })
    }

    fn load_any() -> Result<Self, Error> {
        let amd = Self::load_platform(Platform::Amd);
        let asked_for = Search::from_environment(Platform::Amd).only.is_some();
        if asked_for || amd.as_ref().is_ok_and(Self::has_devices) {
            return amd;
        }
        let nvidia = Self::load_platform(Platform::Nvidia);
        match (amd, nvidia) {
            (_, Ok(nvidia)) if nvidia.has_devices() => Ok(nvidia),
            (Ok(amd), _) => Ok(amd),
            (Err(Error::LibraryNotFound { .. }), Ok(nvidia)) => Ok(nvidia),
            (
                Err(Error::LibraryNotFound { tried: mut all }),
                Err(Error::LibraryNotFound { tried }),
            ) => {
                all.extend(tried);
                Err(Error::LibraryNotFound { tried: all })
            }
            (Err(Error::LibraryNotFound { .. }), Err(nvidia)) => Err(nvidia),
            (Err(amd), _) => Err(amd),
        }
    }

    fn has_devices(&self) -> bool {
        self.device_count().is_ok_and(|count| count > 0)
    }

    /// Whose GPUs this runtime drives.
    pub fn platform(&self) -> Platform {
        self.api.platform
    }

    /// The library, by the name or path it was opened with.
    pub fn library_path(&self) -> &Path {
        &self.api.library_path
    }

    /// The versions the library states.
    ///
    /// # Errors
    ///
    /// What the runtime's version calls return.
    pub fn versions(&self) -> Result<Versions, Error> {
        let (runtime, driver) = self.api.versions()?;
        let unpack = |packed| Version::unpack(self.platform(), packed);
        Ok(Versions { runtime: runtime.map(unpack), driver: unpack(driver) })
    }

    /// How many devices there are; none is no error.
    ///
    /// # Errors
    ///
    /// What the runtime's call returns.
    pub fn device_count(&self) -> Result<usize, Error> {
        result::device::count(&self.api)
    }

    /// The device with this number, from 0.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchDevice`], or what the runtime's call returns.
    pub fn device(&self, ordinal: usize) -> Result<Device, Error> {
        let count = self.device_count()?;
        if ordinal >= count {
            return Err(Error::NoSuchDevice { ordinal, count });
        }
        Device::open(Arc::clone(&self.api), ordinal)
    }

    /// All devices, in the runtime's order.
    ///
    /// # Errors
    ///
    /// As [`Runtime::device`].
    pub fn devices(&self) -> Result<Vec<Device>, Error> {
        (0..self.device_count()?).map(|ordinal| self.device(ordinal)).collect()
    }
}

/// Versions of a runtime library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Versions {
    /// HIP's; the CUDA driver has no runtime below it.
    pub runtime: Option<Version>,
    /// The driver interface's: on NVIDIA the newest CUDA version it serves.
    pub driver: Version,
}

/// A version as the runtime packs it into a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Version {
    /// Incompatible changes.
    pub major: u32,
    /// Additions.
    pub minor: u32,
    /// Build or patch number; 0 on NVIDIA.
    pub patch: u32,
}

impl Version {
    fn unpack(platform: Platform, packed: i32) -> Self {
        let packed = packed.unsigned_abs();
        match platform {
            // HIP_VERSION = major * 10^7 + minor * 10^5 + patch
            Platform::Amd => Self {
                major: packed / 10_000_000,
                minor: packed / 100_000 % 100,
                patch: packed % 100_000,
            },
            // CUDA_VERSION = major * 1000 + minor * 10
            Platform::Nvidia => Self { major: packed / 1000, minor: packed % 1000 / 10, patch: 0 },
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        if self.patch == 0 { Ok(()) } else { write!(f, ".{}", self.patch) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_versions_are_read() {
        assert_eq!(Version::unpack(Platform::Amd, 60_342_134).to_string(), "6.3.42134");
        assert_eq!(Version::unpack(Platform::Amd, 50_221_153).to_string(), "5.2.21153");
        assert_eq!(Version::unpack(Platform::Nvidia, 12_080).to_string(), "12.8");
    }
}
