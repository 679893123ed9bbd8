//! Bundles: files with the code of several targets, as `hipcc` and `clang-offload-bundler` write.

use crate::Error;
use crate::isa::Arch;

const MAGIC: &[u8] = b"__CLANG_OFFLOAD_BUNDLE__";
const COMPRESSED_MAGIC: &[u8] = b"CCOB";

/// The code object for a device: the file itself unless it is a bundle, otherwise the part for
/// exactly this architecture or for the generic one of its family.
///
/// # Errors
///
/// The bundle is damaged or compressed, or has no code for the device.
///
/// # Examples
///
/// ```
/// use rf_emu::{Arch, select_bundle};
///
/// let file = include_bytes!("../../tests/fixtures/two_kernels.gfx1100.co");
/// assert_eq!(select_bundle(file, Arch::Gfx1100)?.len(), file.len());
/// # Ok::<(), rf_emu::Error>(())
/// ```
pub fn select_bundle(file: &[u8], device: Arch) -> Result<&[u8], Error> {
    if file.starts_with(COMPRESSED_MAGIC) {
        let reason = "the bundle is compressed: compile it with --no-offload-compress".into();
        return Err(Error::Unsupported { reason });
    }
    if !file.starts_with(MAGIC) {
        return Ok(file);
    }
    let entries = entries(file)
        .ok_or_else(|| Error::Damaged { reason: "the bundle is truncated".to_owned() })?;
    let mut found: Option<(Arch, &[u8])> = None;
    for &(target, code) in &entries {
        let arch = target.rsplit("--").next().and_then(Arch::from_name);
        if let Some(arch) = arch.filter(|arch| arch.runs_on(device))
            && found.is_none_or(|(other, _)| other.is_generic())
        {
            found = Some((arch, code));
        }
    }
    found.map(|(_, code)| code).ok_or_else(|| {
        let available = entries.iter().map(|(target, _)| (*target).to_owned()).collect();
        Error::NoCodeForDevice { device, available }
    })
}

/// The targets with their code; `None` if the file ends before one of them.
fn entries(file: &[u8]) -> Option<Vec<(&str, &[u8])>> {
    let number = |at: usize| {
        let bytes = file.get(at..)?.first_chunk()?;
        usize::try_from(u64::from_le_bytes(*bytes)).ok()
    };
    let range = |start: usize, bytes: usize| file.get(start..start.checked_add(bytes)?);
    let mut entries = Vec::new();
    let mut at = MAGIC.len() + 8;
    for _ in 0..number(MAGIC.len())? {
        let code = range(number(at)?, number(at + 8)?)?;
        let name_bytes = number(at + 16)?;
        let target = std::str::from_utf8(range(at + 24, name_bytes)?).ok()?;
        entries.push((target, code));
        at = at.checked_add(24)?.checked_add(name_bytes)?;
    }
    Some(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bundle(targets: &[&str]) -> Vec<u8> {
        let table: usize = targets.iter().map(|target| 24 + target.len()).sum();
        let mut file = MAGIC.to_vec();
        file.extend((targets.len() as u64).to_le_bytes());
        for (position, target) in targets.iter().enumerate() {
            let start = MAGIC.len() + 8 + table + position * 4;
            for number in [start, 4, target.len()] {
                file.extend((number as u64).to_le_bytes());
            }
            file.extend(target.as_bytes());
        }
        for position in 0..targets.len() {
            file.extend([position as u8; 4]);
        }
        file
    }

    #[test]
    fn the_code_of_the_device_is_preferred_to_generic_code() {
        let file = bundle(&[
            "host-x86_64-unknown-linux-gnu--",
            "hipv4-amdgcn-amd-amdhsa--gfx11-generic",
            "hipv4-amdgcn-amd-amdhsa--gfx1100",
        ]);
        assert_eq!(select_bundle(&file, Arch::Gfx1100).unwrap(), [2; 4]);
        assert_eq!(select_bundle(&file, Arch::Gfx1151).unwrap(), [1; 4]);
        let error = select_bundle(&file, Arch::Gfx1201).unwrap_err().to_string();
        assert!(error.starts_with("the bundle has no code for gfx1201, only for host-"), "{error}");
    }

    #[test]
    fn every_prefix_of_a_bundle_is_an_error() {
        let file = bundle(&["hipv4-amdgcn-amd-amdhsa--gfx1100"]);
        for len in MAGIC.len()..file.len() {
            assert!(select_bundle(&file[..len], Arch::Gfx1100).is_err(), "{len} bytes");
        }
        assert!(select_bundle(b"CCOB....", Arch::Gfx1100).is_err());
    }
}
