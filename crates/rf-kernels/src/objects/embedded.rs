//! The sources and code objects that the build script embeds.

use miniz_oxide::inflate;

use super::delta;

/// The source of a translation unit, with all of its headers.
pub(crate) struct UnitSource {
    pub(crate) unit: &'static str,
    pub(crate) text: &'static str,
}

/// The compressed code object of a unit for a target.
pub(crate) struct Embedded {
    pub(crate) unit: &'static str,
    pub(crate) target: &'static str,
    /// The target of the unit's object from which this one is a difference; otherwise it is one
    /// from nothing.
    base: Option<&'static str>,
    /// Objects packed by `rf_kernels_build::packed`.
    packed: &'static [u8],
}

impl Embedded {
    /// The code object; `None` if its checksum is wrong.
    pub(crate) fn inflate(&self) -> Option<Vec<u8>> {
        let difference = inflate::decompress_to_vec_zlib(self.packed).ok()?;
        let Some(base) = self.base else { return delta::apply(&[], &difference) };
        // A base has none itself.
        let is_base =
            |other: &&Self| other.unit == self.unit && other.target == base && other.base.is_none();
        delta::apply(&OBJECTS.iter().find(is_base)?.inflate()?, &difference)
    }
}

/// The targets of the embedded objects, without duplicates.
pub(crate) fn targets() -> impl Iterator<Item = &'static str> {
    let mut last = None;
    OBJECTS.iter().filter_map(move |object| {
        let new = last != Some(object.target);
        last = Some(object.target);
        new.then_some(object.target)
    })
}

include!(concat!(env!("OUT_DIR"), "/embedded.rs"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_detected() {
        let whole = rf_kernels_build::packed(&[], b"\x7fELF and what follows");
        let inflate = |bytes: &[u8]| {
            let packed = bytes.to_vec().leak();
            Embedded { unit: "unit", target: "gfx1100", base: None, packed }.inflate()
        };
        assert_eq!(inflate(&whole).as_deref(), Some(&b"\x7fELF and what follows"[..]));
        for length in 0..whole.len() {
            assert_eq!(inflate(&whole[..length]), None, "{length}");
        }
        for bit in 0..8 * whole.len() {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            // Some bits of the header do not affect the content.
            let inflated = inflate(&bytes);
            assert!(inflated.is_none() || inflated == inflate(&whole), "{bit}");
        }
    }
}
