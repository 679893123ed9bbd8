//! The runtime library.

use std::path::Path;
use std::sync::Arc;
use std::{env, fmt};

use crate::result::{self, Api};
use crate::sys::library::{self, Search};
use crate::{Device, Error, Platform};

/// A loaded GPU runtime library. Cloning is cheap.
///
/// The library stays loaded until the process ends.
#[derive(Debug, Clone)]
pub struct Runtime {
    api: Arc<Api>,
}

impl Runtime {
    /// Loads the AMD runtime, or the NVIDIA runtime if the AMD runtime is absent or finds no
    /// device.
    ///
    /// The crate documentation lists the environment variables that select the platform and the
    /// library.
    ///
    /// # Errors
    ///
    /// [`Error::LibraryNotFound`] with every attempt, or the reason why an installed library cannot
    /// be used.
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

    /// Returns true if a runtime library of the platform is installed. No function of it is called,
    /// so a driver that hangs or crashes does no harm.
    pub fn is_installed(platform: Platform) -> bool {
        library::is_installed(platform)
    }

    /// Loads the runtime of one platform. The environment variables for the library still apply.
    ///
    /// # Errors
    ///
    /// The errors of [`Runtime::load`].
    pub fn load_platform(platform: Platform) -> Result<Self, Error> {
        let api = Api::load(platform, &Search::from_environment(platform))?;
        Ok(Self { api: Arc::new(api) })
    }

    fn load_any() -> Result<Self, Error> {
        let amd = Self::load_platform(Platform::Amd);
        let requested = Search::from_environment(Platform::Amd).only.is_some();
        if requested || amd.as_ref().is_ok_and(Self::has_devices) {
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

    /// The vendor whose GPUs this runtime drives.
    pub fn platform(&self) -> Platform {
        self.api.platform
    }

    /// The name or path under which the library was opened.
    pub fn library_path(&self) -> &Path {
        &self.api.library_path
    }

    /// The versions that the library reports.
    ///
    /// # Errors
    ///
    /// An error of the runtime calls.
    pub fn versions(&self) -> Result<Versions, Error> {
        let (runtime, driver) = self.api.versions()?;
        let unpack = |packed| Version::unpack(self.platform(), packed);
        Ok(Versions { runtime: runtime.map(unpack), driver: unpack(driver) })
    }

    /// The number of devices, which may be 0.
    ///
    /// # Errors
    ///
    /// An error of the runtime call.
    pub fn device_count(&self) -> Result<usize, Error> {
        result::device::count(&self.api)
    }

    /// The device with this ordinal, from 0.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchDevice`], or an error of the runtime call.
    pub fn device(&self, ordinal: usize) -> Result<Device, Error> {
        let count = self.device_count()?;
        if ordinal >= count {
            return Err(Error::NoSuchDevice { ordinal, count });
        }
        Device::open(Arc::clone(&self.api), ordinal)
    }

    /// All devices, in the order of the runtime.
    ///
    /// # Errors
    ///
    /// The errors of [`Runtime::device`].
    pub fn devices(&self) -> Result<Vec<Device>, Error> {
        (0..self.device_count()?).map(|ordinal| self.device(ordinal)).collect()
    }
}

/// Versions of a runtime library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Versions {
    /// The version of HIP; `None` on NVIDIA, where no runtime is used.
    pub runtime: Option<Version>,
    /// The version of the driver interface; on NVIDIA the newest CUDA version that it supports.
    pub driver: Version,
}

/// A version number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Version {
    /// The major version.
    pub major: u32,
    /// The minor version.
    pub minor: u32,
    /// The build or patch number; 0 on NVIDIA.
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
    fn packed_versions_are_unpacked() {
        assert_eq!(Version::unpack(Platform::Amd, 60_342_134).to_string(), "6.3.42134");
        assert_eq!(Version::unpack(Platform::Amd, 50_221_153).to_string(), "5.2.21153");
        assert_eq!(Version::unpack(Platform::Nvidia, 12_080).to_string(), "12.8");
    }
}
