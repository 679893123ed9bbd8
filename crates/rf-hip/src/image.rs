//! Validates modules before the driver loads them.
//!
//! The drivers' load calls take an address without a length and trust the headers. A truncated file
//! would make them read past its end, so the headers are checked against the length first.

use crate::{Error, Platform};

/// `EM_AMDGPU`
const MACHINE_AMDGPU: u16 = 224;
/// `EM_CUDA`
const MACHINE_CUDA: u16 = 190;

const ELF_MAGIC: &[u8] = b"\x7fELF";
const BUNDLE_MAGIC: &[u8] = b"__CLANG_OFFLOAD_BUNDLE__";
const FATBIN_MAGIC: &[u8] = &0xBA55_ED50_u32.to_le_bytes();

/// Checks that the bytes are safe to pass to the platform's load call.
pub(crate) fn check(platform: Platform, image: &[u8]) -> Result<(), Error> {
    let outcome = match platform {
        Platform::Amd if image.starts_with(BUNDLE_MAGIC) => check_bundle(image),
        Platform::Amd => check_elf(image, MACHINE_AMDGPU),
        Platform::Nvidia if image.starts_with(ELF_MAGIC) => check_elf(image, MACHINE_CUDA),
        Platform::Nvidia if image.starts_with(FATBIN_MAGIC) => check_fatbin(image),
        Platform::Nvidia => check_ptx(image),
    };
    outcome.map_err(|reason| Error::Image { reason })
}

const TRUNCATED: &str = "the file is truncated";

/// Checks the program headers, the section headers and their ranges in a little-endian ELF64.
fn check_elf(image: &[u8], machine: u16) -> Result<(), &'static str> {
    if !image.starts_with(ELF_MAGIC) {
        return Err("it is not an ELF file");
    }
    if image.get(4..6) != Some(&[2, 1]) {
        return Err("it is not a 64-bit little-endian ELF file");
    }
    if u16_at(image, 18)? != machine {
        return Err("it contains code for another processor");
    }
    let table = |offset: usize, entry: usize, count: usize| -> Result<_, &'static str> {
        Ok((u64_at(image, offset)?, u16_at(image, entry)?, u16_at(image, count)?))
    };
    let (start, entry_bytes, count) = table(32, 54, 56)?;
    for entry in 0..u64::from(count) {
        let at = entry_at(image, start, entry_bytes, entry, 56)?;
        within(image, u64_at(image, at + 8)?, u64_at(image, at + 32)?)?;
    }
    let (start, entry_bytes, count) = table(40, 58, 60)?;
    for entry in 0..u64::from(count) {
        const NO_BITS: u32 = 8;
        let at = entry_at(image, start, entry_bytes, entry, 64)?;
        if u32_at(image, at + 4)? != NO_BITS {
            within(image, u64_at(image, at + 24)?, u64_at(image, at + 32)?)?;
        }
    }
    Ok(())
}

/// Checks that every code object of a bundle is complete.
fn check_bundle(image: &[u8]) -> Result<(), &'static str> {
    let mut at = BUNDLE_MAGIC.len();
    let count = u64_at(image, at)?;
    at += 8;
    for _ in 0..count {
        let (start, bytes) = (u64_at(image, at)?, u64_at(image, at + 8)?);
        let name_bytes = usize::try_from(u64_at(image, at + 16)?).map_err(|_| TRUNCATED)?;
        within(image, start, bytes)?;
        at = at.checked_add(24 + name_bytes).filter(|&at| at <= image.len()).ok_or(TRUNCATED)?;
    }
    Ok(())
}

/// Checks the header size and the payload size, which follow the magic and a version.
fn check_fatbin(image: &[u8]) -> Result<(), &'static str> {
    within(image, u64::from(u16_at(image, 6)?), u64_at(image, 8)?)
}

fn check_ptx(image: &[u8]) -> Result<(), &'static str> {
    let text = std::str::from_utf8(image).map_err(|_| "it is neither a cubin nor text")?;
    if !text.lines().any(|line| line.trim_start().starts_with(".version")) {
        return Err("it is not PTX: the text has no .version line");
    }
    let whole = text.trim_end_matches('\0');
    if whole.contains('\0') { Err("the text contains a zero byte") } else { Ok(()) }
}

/// The offset of an entry of a table, after checking that the entry is complete.
fn entry_at(
    image: &[u8],
    table: u64,
    entry_bytes: u16,
    entry: u64,
    at_least: u16,
) -> Result<usize, &'static str> {
    if entry_bytes < at_least {
        return Err("the table entries are too small");
    }
    let start = table.checked_add(entry * u64::from(entry_bytes)).ok_or(TRUNCATED)?;
    within(image, start, u64::from(entry_bytes))?;
    usize::try_from(start).map_err(|_| TRUNCATED)
}

fn within(image: &[u8], start: u64, bytes: u64) -> Result<(), &'static str> {
    let end = start.checked_add(bytes).ok_or(TRUNCATED)?;
    if end <= image.len() as u64 { Ok(()) } else { Err(TRUNCATED) }
}

fn bytes_at<const N: usize>(image: &[u8], at: usize) -> Result<[u8; N], &'static str> {
    let bytes = at.checked_add(N).and_then(|end| image.get(at..end)).ok_or(TRUNCATED)?;
    bytes.try_into().map_err(|_| TRUNCATED)
}

fn u16_at(image: &[u8], at: usize) -> Result<u16, &'static str> {
    bytes_at(image, at).map(u16::from_le_bytes)
}

fn u32_at(image: &[u8], at: usize) -> Result<u32, &'static str> {
    bytes_at(image, at).map(u32::from_le_bytes)
}

fn u64_at(image: &[u8], at: usize) -> Result<u64, &'static str> {
    bytes_at(image, at).map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF header for `machine`, followed by one section of 16 bytes.
    fn elf(machine: u16) -> Vec<u8> {
        let mut image = vec![0u8; 64 + 64 + 16];
        image[..6].copy_from_slice(b"\x7fELF\x02\x01");
        image[18..20].copy_from_slice(&machine.to_le_bytes());
        image[40..48].copy_from_slice(&64u64.to_le_bytes()); // section headers
        image[58..60].copy_from_slice(&64u16.to_le_bytes());
        image[60..62].copy_from_slice(&1u16.to_le_bytes());
        image[64 + 4..64 + 8].copy_from_slice(&1u32.to_le_bytes());
        image[64 + 24..64 + 32].copy_from_slice(&128u64.to_le_bytes());
        image[64 + 32..64 + 40].copy_from_slice(&16u64.to_le_bytes());
        image
    }

    #[test]
    fn a_code_object_is_accepted_and_every_prefix_of_it_rejected() {
        let image = elf(MACHINE_AMDGPU);
        assert_eq!(check(Platform::Amd, &image), Ok(()));
        for len in 0..image.len() {
            assert!(check(Platform::Amd, &image[..len]).is_err(), "{len} bytes were accepted");
        }
    }

    #[test]
    fn code_for_another_processor_is_rejected() {
        assert!(check(Platform::Amd, &elf(MACHINE_CUDA)).is_err());
        assert!(check(Platform::Nvidia, &elf(MACHINE_AMDGPU)).is_err());
        assert!(check(Platform::Nvidia, &elf(MACHINE_CUDA)).is_ok());
    }

    #[test]
    fn no_header_makes_the_check_panic_or_overflow() {
        let image = elf(MACHINE_AMDGPU);
        for at in 0..128 {
            let mut image = image.clone();
            for value in [0x00, 0x7f, 0xff] {
                image[at] = value;
                let _outcome = check(Platform::Amd, &image);
            }
            let end = (at + 8).min(image.len());
            image[at..end].fill(0xff);
            let _outcome = check(Platform::Amd, &image);
        }
    }

    #[test]
    fn a_bundle_is_checked_against_its_table() {
        let mut image = BUNDLE_MAGIC.to_vec();
        for number in [1u64, 52 + 8, 4, 4] {
            image.extend(number.to_le_bytes());
        }
        image.extend(b"nameCODE");
        image.resize(52 + 8 + 4, 0);
        assert_eq!(check(Platform::Amd, &image), Ok(()));
        image.pop();
        assert!(check(Platform::Amd, &image).is_err());
    }

    #[test]
    fn ptx_is_distinguished_from_other_text() {
        assert_eq!(check(Platform::Nvidia, b"// x\n.version 8.0\n.target sm_80\n"), Ok(()));
        assert!(check(Platform::Nvidia, b"").is_err());
        assert!(check(Platform::Nvidia, b"hello").is_err());
        assert!(check(Platform::Nvidia, b".version 8.0\n\0.target").is_err());
    }
}
