//! Writes the Rust source that embeds code objects and kernel sources.

use std::{fmt::Write as _, fs, io, path::Path};

use crate::toolchain::{compile::Object, sources::Unit};

/// Balance of time and size: 9 is three times slower for two percent.
const LEVEL: u8 = 6;

/// Writes `embedded.rs` into `out`, which `src/objects/embedded.rs` includes, and the objects beside it. They are
/// deflated: a program that carries sixteen targets should stay small.
pub(crate) fn write(
    out: &Path,
    units: &[Unit],
    objects: &[Object<'_>],
    note: &str,
) -> io::Result<()> {
    let mut text = format!("pub(crate) const NOTE: &str = {note:?};\n");

    text.push_str("pub(crate) static SOURCES: &[Source] = &[\n");
    for unit in units {
        writeln!(text, "Source {{ unit: {:?}, text: {:?} }},", unit.name, unit.text)
            .map_err(io::Error::other)?;
    }
    text.push_str("];\npub(crate) static OBJECTS: &[Embedded] = &[\n");
    for object in objects {
        let deflated = object.path.with_added_extension("zlib");
        if !deflated.is_file() {
            let partial = deflated.with_added_extension("part");
            fs::write(
                &partial,
                miniz_oxide::deflate::compress_to_vec_zlib(&fs::read(&object.path)?, LEVEL),
            )?;
            fs::rename(&partial, &deflated)?;
        }
        // Not included from the cache: a later build may prune it, and cargo would not run this script again.
        let (unit, target) = (&object.unit.name, object.target.name);
        let name = format!("{unit}.{target}.zlib");
        fs::copy(&deflated, out.join(&name))?;
        writeln!(
            text,
            "Embedded {{ unit: {unit:?}, target: {target:?}, \
             deflated: include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{name}\")) }},"
        )
        .map_err(io::Error::other)?;
    }
    text.push_str("];\n");
    fs::write(out.join("embedded.rs"), text)
}
