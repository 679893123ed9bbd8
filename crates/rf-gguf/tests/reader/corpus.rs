//! The committed corpus: damaged and unusual files with their exact error messages.
//!
//! `tests/corpus` holds one file per case and `outcomes.txt`. Both are made from the table below:
//! after changing it, run `RF_GGUF_BLESS=1 cargo test -p rf-gguf corpus` and read the difference.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use rf_gguf::{Error, Gguf};

use crate::raw::{F32, Q4_K, Raw, kind, valid};

#[test]
fn corpus_files_have_their_recorded_outcome() {
    let directory = directory();
    let mut outcomes = String::new();
    let mut expected_files = BTreeSet::from(["outcomes.txt".to_owned()]);
    for (name, bytes) in cases() {
        writeln!(outcomes, "{name}: {}", outcome(bytes.clone())).unwrap();
        let file = format!("{name}.gguf");
        check_or_bless(&directory.join(&file), &bytes);
        assert!(expected_files.insert(file), "{name} is in the table twice");
    }
    check_or_bless(&directory.join("outcomes.txt"), outcomes.as_bytes());

    let entries = fs::read_dir(directory).unwrap();
    let files: BTreeSet<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(files, expected_files, "files without a case, or cases without a file");
}

#[test]
#[cfg_attr(miri, ignore = "maps files, which Miri does not support")]
fn corpus_outcome_is_the_same_through_a_map() {
    for (name, bytes) in cases().into_iter().filter(|(_, bytes)| !bytes.is_empty()) {
        let path = directory().join(format!("{name}.gguf"));
        let mapped = match Gguf::open(&path).and_then(|model| model.check_types()) {
            Ok(()) => "ok".to_owned(),
            Err(Error::InFile { path: named, error }) => {
                assert_eq!(named, path);
                error.to_string()
            }
            // A part of a split model fails differently with a path than without.
            Err(error) => error.to_string(),
        };
        if !name.starts_with("split") {
            assert_eq!(mapped, outcome(bytes), "{name}");
        }
    }
}

fn outcome(bytes: Vec<u8>) -> String {
    match Gguf::from_bytes(bytes).and_then(|model| model.check_types()) {
        Ok(()) => "ok".to_owned(),
        Err(error) => error.to_string(),
    }
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
}

fn check_or_bless(path: &Path, contents: &[u8]) {
    if std::env::var_os("RF_GGUF_BLESS").is_some() {
        fs::write(path, contents).unwrap();
    }
    let stored = fs::read(path).unwrap_or_default();
    assert!(
        stored == contents,
        "{} is not what the test makes:\n{}",
        path.display(),
        String::from_utf8_lossy(contents)
    );
}

fn cases() -> Vec<(&'static str, Vec<u8>)> {
    let mut cases = files_of_other_kinds();
    cases.extend(headers());
    cases.extend(truncated());
    cases.extend(entries());
    cases.extend(tensors());
    cases.push(("valid", valid()));
    cases
}

fn files_of_other_kinds() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("empty", Vec::new()),
        ("other-text", b"Once upon a time there was a text.\n".to_vec()),
        ("other-short-text", b"Hi\n".to_vec()),
        ("other-web-page", b"<!DOCTYPE html><html></html>".to_vec()),
        ("other-git-lfs", b"version https://git-lfs.github.com/spec/v1\n".to_vec()),
        ("other-zip", b"PK\x03\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00".to_vec()),
        ("other-ggjt", b"tjgg\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00".to_vec()),
        ("other-safetensors", Raw::default().text(b"{\"__metadata__\":{}}").build()),
        ("other-binary", vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
    ]
}

fn headers() -> Vec<(&'static str, Vec<u8>)> {
    let version_only = |version: u32| Raw::header(version, 0, 0).build();
    vec![
        ("version-0", version_only(0)),
        ("version-1", version_only(1)),
        ("version-2-without-content", version_only(2)),
        ("version-3-without-content", version_only(3)),
        ("version-4", version_only(4)),
        ("big-endian-2", version_only(2_u32.swap_bytes())),
        ("big-endian-3", version_only(3_u32.swap_bytes())),
        ("count-of-tensors-huge", Raw::header(3, u64::MAX, 0).data(64).build()),
        ("count-of-tensors-beyond-file", Raw::header(3, 3, 0).data(64).build()),
        ("count-of-entries-huge", Raw::header(3, 0, 1 << 60).data(64).build()),
        ("count-of-entries-beyond-file", Raw::header(3, 0, 100).data(64).build()),
    ]
}

/// Files truncated in every section. Counts are checked against the remaining bytes, so a file can
/// be truncated inside an entry only if earlier entries exceed the minimum size.
fn truncated() -> Vec<(&'static str, Vec<u8>)> {
    let valid = valid();
    let cut = |at: usize| valid[..at].to_vec();
    let last = valid.windows(8).position(|window| window == b"b.weight").unwrap();
    let second = || Raw::header(3, 0, 2).key("first.of.two", kind::STRING).text("long enough");
    let array = |of: u32| Raw::header(3, 0, 1).key("a", kind::ARRAY).array(of, 2);
    vec![
        ("truncated-magic", cut(3)),
        ("truncated-version", cut(6)),
        ("truncated-tensor-count", cut(12)),
        ("truncated-entry-count", Raw::header(3, 0, 0).build()[..20].to_vec()),
        ("truncated-key-length", second().bytes(&[5, 0, 0]).build()),
        ("truncated-key", second().u64(9).bytes(b"abc").build()),
        ("truncated-value-type", second().text("b").bytes(&[4, 0]).build()),
        ("truncated-value", second().key("b", kind::U32).bytes(&[1]).build()),
        ("truncated-string", second().key("b", kind::STRING).u64(9).bytes(b"abc").build()),
        ("truncated-string-array", array(kind::STRING).text("long enough").bytes(&[3, 0]).build()),
        ("truncated-number-array", array(kind::U32).u32(1).bytes(&[2, 0]).build()),
        (
            "truncated-nested-array",
            array(kind::ARRAY).array(kind::U8, 2).bytes(&[1, 2, 0, 0]).build(),
        ),
        ("truncated-nested-count", array(kind::ARRAY).array(kind::U32, 2).u64(0).u32(0).build()),
        ("truncated-tensor-name", cut(last + 4)),
        ("truncated-tensor-shape", cut(last + 8 + 4 + 6)),
        ("truncated-tensor-type", cut(last + 8 + 4 + 8 + 2)),
        ("truncated-tensor-offset", cut(last + 8 + 4 + 8 + 4 + 7)),
        ("truncated-before-data", cut(last + 8 + 4 + 8 + 4 + 8)),
        ("truncated-data-of-first", cut(valid.len() - 144 - 64 + 20)),
        ("truncated-data-of-last", cut(valid.len() - 1)),
    ]
}

fn entries() -> Vec<(&'static str, Vec<u8>)> {
    let one = || Raw::header(3, 0, 1);
    let two = || Raw::header(3, 0, 2);
    let array = |of: u32, count: u64| one().key("a", kind::ARRAY).array(of, count);
    let alignment = |raw: Raw| raw.data(64).build();
    let key = "general.alignment";
    vec![
        ("key-empty", one().key("", kind::U8).u8(1).u8(1).build()),
        ("key-length-huge", one().u64(u64::MAX).data(32).build()),
        ("key-not-utf8", one().text([b'a', 0xff, b'b']).u32(kind::U8).u8(1).build()),
        ("key-twice", two().key("a", kind::U8).u8(1).key("a", kind::U8).u8(2).build()),
        ("key-with-control-characters", one().key("a\x1b[31m\n", 99).u8(1).build()),
        ("value-type-unknown", one().key("a", 13).u64(0).build()),
        ("value-bool-2", one().key("a", kind::BOOL).u8(2).build()),
        ("value-string-huge", one().key("a", kind::STRING).u64(1 << 40).data(32).build()),
        ("value-string-not-utf8", one().key("a", kind::STRING).text([0xc3, 0x28]).build()),
        ("array-type-unknown", array(77, 1).u64(0).build()),
        ("array-count-huge", array(kind::U32, 1 << 62).data(64).build()),
        ("array-count-times-size-overflows", array(10, u64::MAX / 8 + 2).data(64).build()),
        ("array-of-strings-count-huge", array(kind::STRING, u64::MAX).data(64).build()),
        ("array-of-arrays-count-huge", array(kind::ARRAY, 1 << 50).data(64).build()),
        ("array-of-bools-3", array(kind::BOOL, 2).u8(1).u8(3).build()),
        ("array-of-strings-not-utf8", array(kind::STRING, 2).text("ab").text([b'c', 0xff]).build()),
        (
            "array-of-strings-splits-a-character",
            array(kind::STRING, 3).text("a").text([0xc3]).text([0xa9]).build(),
        ),
        (
            "array-nested-4-deep",
            (0..3).fold(array(kind::ARRAY, 1), |raw, _| raw.array(kind::ARRAY, 0)).build(),
        ),
        (
            "array-nested-5-deep",
            (0..3)
                .fold(array(kind::ARRAY, 1), |raw, _| raw.array(kind::ARRAY, 1))
                .array(kind::U8, 1)
                .u8(1)
                .build(),
        ),
        ("alignment-0", alignment(one().key(key, kind::U32).u32(0))),
        ("alignment-48", alignment(one().key(key, kind::U32).u32(48))),
        ("alignment-huge", alignment(one().key(key, kind::U32).u32(1 << 31))),
        ("alignment-negative", alignment(one().key(key, kind::I32).u32((-32_i32).cast_unsigned()))),
        ("alignment-text", alignment(one().key(key, kind::STRING).text("32"))),
        ("split-part", one().key("split.count", kind::U32).u32(3).build()),
        (
            "split-part-2-of-3",
            two().key("split.count", kind::U32).u32(3).key("split.no", kind::U32).u32(1).build(),
        ),
        (
            "split-part-beyond-count",
            two().key("split.count", kind::U32).u32(3).key("split.no", kind::U32).u32(3).build(),
        ),
    ]
}

fn tensors() -> Vec<(&'static str, Vec<u8>)> {
    let one = |shape: &[u64], ty: u32, data_offset: u64| {
        Raw::header(3, 1, 0).tensor("t", shape, ty, data_offset).data(64).build()
    };
    let two = |first: u64, second: u64| {
        Raw::header(3, 2, 0)
            .tensor("a", &[16], F32, first)
            .tensor("b", &[16], F32, second)
            .data(128)
    };
    let mxfp6 = |layout: Option<u32>| {
        let head = Raw::header(3, 1, layout.is_some().into());
        let head = match layout {
            Some(layout) => head.key("rocmforge.mxfp6.layout", kind::U32).u32(layout),
            None => head,
        };
        head.tensor("t", &[32], 0x5246_0001, 0).data(25).build()
    };
    vec![
        ("tensor-name-empty", Raw::header(3, 1, 0).tensor("", &[1], F32, 0).data(64).build()),
        (
            "tensor-name-not-utf8",
            Raw::header(3, 1, 0).text([0xff]).u32(1).u64(1).u32(F32).u64(0).data(4).build(),
        ),
        (
            "tensor-twice",
            Raw::header(3, 2, 0)
                .tensor("t", &[8], F32, 0)
                .tensor("t", &[8], F32, 32)
                .data(64)
                .build(),
        ),
        ("tensor-without-dimensions", one(&[], F32, 0)),
        ("tensor-with-5-dimensions", one(&[1, 1, 1, 1, 1], F32, 0)),
        ("tensor-with-zero-dimension", one(&[4, 0, 2], F32, 0)),
        ("tensor-elements-overflow", one(&[1 << 40, 1 << 40], F32, 0)),
        ("tensor-elements-negative", one(&[1 << 63], F32, 0)),
        ("tensor-bytes-overflow", one(&[1 << 62], F32, 0)),
        ("tensor-partial-block", one(&[255, 2], Q4_K, 0)),
        ("tensor-misaligned", one(&[8], F32, 4)),
        ("tensor-past-end", one(&[17], F32, 0)),
        ("tensor-starts-past-end", one(&[1], F32, 1 << 20)),
        ("tensor-offset-overflows", one(&[8], F32, u64::MAX - 31)),
        ("tensors-overlap", two(0, 32).build()),
        ("tensors-overlap-in-reverse-order", two(32, 0).build()),
        ("tensors-at-the-same-place", two(64, 64).build()),
        ("tensors-in-reverse-order", two(64, 0).build()),
        ("type-i8", one(&[32], 24, 0)),
        ("type-unknown", one(&[3], 99, 0)),
        ("type-removed", one(&[3], 31, 0)),
        ("type-mxfp6", mxfp6(Some(1))),
        ("type-mxfp6-without-key", mxfp6(None)),
        ("type-mxfp6-layout-2", mxfp6(Some(2))),
    ]
}
