//! What the build script put into this program.

use std::borrow::Cow;

use miniz_oxide::inflate;

/// A translation unit with all its headers in one text.
pub(crate) struct Source {
    pub(crate) unit: &'static str,
    pub(crate) text: &'static str,
}

/// A unit compiled for a target, deflated.
pub(crate) struct Embedded {
    pub(crate) unit: &'static str,
    pub(crate) target: &'static str,
    deflated: &'static [u8],
}

impl Embedded {
    /// The code object; `None` when what is embedded fails its checksum.
    pub(crate) fn inflate(&self) -> Option<Cow<'static, [u8]>> {
        inflate::decompress_to_vec_zlib(self.deflated).ok().map(Cow::Owned)
    }
}

/// The targets that objects are embedded for, each once.
pub(crate) fn targets() -> impl Iterator<Item = &'static str> {
    let mut last = None;
    OBJECTS.iter().filter_map(move |object| {
        let new = last != Some(object.target);
        last = Some(object.target);
        new.then_some(object.target)
    })
}

include!(concat!(env!("OUT_DIR"), "/embedded.rs"));
