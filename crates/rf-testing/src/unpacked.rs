//! Compressed test data.

use std::fs;
use std::path::{Path, PathBuf};

use miniz_oxide::inflate::decompress_to_vec;
use tempfile::NamedTempFile;

use crate::folders::root;

/// The text of a file, which is unpacked if its name ends in `.gz`.
pub fn packed_text(path: &Path) -> String {
    String::from_utf8(packed_bytes(path)).unwrap()
}

/// The content of a file, which is unpacked if its name ends in `.gz`.
pub fn packed_bytes(path: &Path) -> Vec<u8> {
    let path = unpacked(path);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The file if there is one, or the content of the compressed file with its name and `.gz`.
pub fn plain_or_unpacked(path: &Path) -> PathBuf {
    if path.is_file() { path.to_owned() } else { unpacked(&path.with_added_extension("gz")) }
}

/// The file itself, or its content as a file if its name ends in `.gz`.
///
/// A content is unpacked once, into a folder of `target` with the content's checksum in its name.
/// Other tests may do the same at the same time.
pub(crate) fn unpacked(path: &Path) -> PathBuf {
    if path.extension().is_none_or(|extension| extension != "gz") {
        return path.to_owned();
    }
    let packed = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let Gzip { deflated, crc32, bytes } = Gzip::parse(&packed).expect("a gzip file of one member");
    let folder = root().join(format!("target/golden/{crc32:08x}-{bytes}"));
    let file = folder.join(path.file_stem().unwrap());
    if !file.is_file() {
        let content = decompress_to_vec(deflated).unwrap();
        assert_eq!(content.len(), bytes as usize, "{} is damaged", path.display());
        fs::create_dir_all(&folder).unwrap();
        // The file gets its name when it is whole.
        let part = NamedTempFile::new_in(&folder).unwrap();
        fs::write(part.path(), content).unwrap();
        part.persist(&file).unwrap();
    }
    file
}

/// A gzip file (RFC 1952) without a name and other optional fields.
struct Gzip<'a> {
    deflated: &'a [u8],
    crc32: u32,
    bytes: u32,
}

impl<'a> Gzip<'a> {
    fn parse(file: &'a [u8]) -> Option<Self> {
        let rest = file.strip_prefix(&[0x1f, 0x8b, 8, 0])?;
        let (_time_and_system, rest) = rest.split_at_checked(6)?;
        let (rest, bytes) = rest.split_last_chunk()?;
        let (deflated, crc32) = rest.split_last_chunk()?;
        let [crc32, bytes] = [*crc32, *bytes].map(u32::from_le_bytes);
        Some(Self { deflated, crc32, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compressed_file_is_unpacked_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text.txt.gz");
        let deflated = miniz_oxide::deflate::compress_to_vec(b"some text", 9);
        let head = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 3];
        let tail = [0xba, 0xbd, 0xba, 0x4f, 9, 0, 0, 0];
        fs::write(&path, [&head[..], &deflated, &tail].concat()).unwrap();
        let file = unpacked(&path);
        assert!(file.ends_with("4fbabdba-9/text.txt"), "{}", file.display());
        assert_eq!(fs::read(&file).unwrap(), b"some text");
        let time = fs::metadata(&file).unwrap().modified().unwrap();
        assert_eq!(unpacked(&path), file);
        assert_eq!(fs::metadata(&file).unwrap().modified().unwrap(), time);
    }

    #[test]
    fn other_files_stay_where_they_are() {
        assert_eq!(unpacked(Path::new("no/such/model.gguf")), Path::new("no/such/model.gguf"));
    }
}
