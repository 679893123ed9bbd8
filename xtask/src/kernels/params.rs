//! The sizes of parameter structs, as the headers assert them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// The headers that rf-kernels generates from its table of parameters.
const FOLDER: &str = "kernels/include/rf/params";

/// Bytes by the name of the struct in Rust.
pub(super) type Sizes = BTreeMap<String, u32>;

/// Reads the assertions `static_assert(sizeof(RfNAME) == BYTES);` of all headers.
///
/// # Errors
///
/// A header cannot be read.
pub(super) fn sizes(root: &Path) -> Result<Sizes> {
    let folder = root.join(FOLDER);
    let mut sizes = Sizes::new();
    for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        sizes.extend(text.lines().filter_map(size));
    }
    Ok(sizes)
}

fn size(line: &str) -> Option<(String, u32)> {
    let (name, bytes) = line.strip_prefix("static_assert(sizeof(Rf")?.split_once(") == ")?;
    Some((name.to_owned(), bytes.strip_suffix(");")?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assertions_of_sizes_are_read() {
        let expected = Some(("PairParams".to_owned(), 32));
        assert_eq!(size("static_assert(sizeof(RfPairParams) == 32);"), expected);
        assert_eq!(size("static_assert(__builtin_offsetof(RfPairParams, b) == 8);"), None);
    }

    #[test]
    fn the_headers_have_the_structs_of_the_catalogue() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let sizes = sizes(root).unwrap();
        let catalogue = super::super::catalogue::Catalogue::read(root).unwrap();
        for row in catalogue.rows() {
            assert!(sizes.contains_key(&row.params), "{}: no Rf{}", row.name, row.params);
        }
    }
}
