//! Reading takes at most a small multiple of the file size in memory, regardless of the counts in
//! the file.

#![expect(unsafe_code, reason = "a global allocator that counts")]

#[path = "reader/raw.rs"]
mod raw;

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use raw::{F32, Raw, kind, valid};
use rf_gguf::Gguf;

#[global_allocator]
static COUNTING: Counting = Counting;

static LIVE_BYTES: AtomicUsize = AtomicUsize::new(0);
static PEAK_BYTES: AtomicUsize = AtomicUsize::new(0);

/// An allocator that forwards to the system's and records the peak.
struct Counting;

// SAFETY: every call goes to the system's allocator with the same arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE_BYTES.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK_BYTES.fetch_max(live, Ordering::Relaxed);
        // SAFETY: the caller fulfils the contract of the trait.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller fulfils the contract of the trait.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// The bound that the crate documents.
const TIMES_FILE: usize = 12;
/// An allowance for errors, paths and the first steps of growing tables.
const CONSTANT_BYTES: usize = 16 << 10;

// A single test, because concurrent tests would allocate too.
#[test]
#[cfg_attr(miri, ignore = "measures the allocator of the system")]
fn memory_stays_within_a_small_multiple_of_the_file() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut files: Vec<(String, Vec<u8>)> = fs::read_dir(corpus)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.display().to_string(), fs::read(path).unwrap()))
        .collect();
    files.extend(dense().map(|(name, bytes)| (name.to_owned(), bytes)));
    files.push(("valid".to_owned(), valid()));
    let mut worst = 0.0_f64;
    for (name, bytes) in files {
        let file_bytes = bytes.len();
        let before = LIVE_BYTES.load(Ordering::Relaxed);
        PEAK_BYTES.store(before, Ordering::Relaxed);
        let model = Gguf::from_bytes(bytes);
        let used = PEAK_BYTES.load(Ordering::Relaxed) - before;
        drop(model);
        if file_bytes > 1 << 16 {
            worst = worst.max(used as f64 / file_bytes as f64);
        }
        assert!(
            used <= TIMES_FILE * file_bytes + CONSTANT_BYTES,
            "{name}: {used} bytes for a file of {file_bytes}"
        );
    }
    println!("at most {worst:.2} times the file");
}

/// Files that require the most memory per byte.
fn dense() -> impl Iterator<Item = (&'static str, Vec<u8>)> {
    const COUNT: u64 = (1 << 16) + 1;
    let many = |raw: Raw, add: &dyn Fn(Raw, u64) -> Raw| (0..COUNT).fold(raw, add);
    let array = |of: u32| Raw::header(3, 0, 1).key("a", kind::ARRAY).array(of, COUNT);
    let entries = many(Raw::header(3, 0, COUNT), &|raw, index| {
        raw.text(format!("{index:x}")).u32(kind::U8).u8(1)
    });
    let strings = many(array(kind::STRING), &|raw, _| raw.text(""));
    let arrays = many(array(kind::ARRAY), &|raw, _| raw.array(kind::U8, 0));
    let bools = many(array(kind::BOOL), &|raw, _| raw.u8(1));
    let one_alignment = Raw::header(3, COUNT, 1).key("general.alignment", kind::U32).u32(1);
    let tensors =
        many(one_alignment, &|raw, index| raw.tensor(&format!("{index:x}"), &[1], F32, 4 * index));
    let with_data = tensors.clone().bytes(&vec![0; 4 * COUNT as usize]);
    // Every level has the largest count that the following bytes could hold.
    let claims = (0..4).fold(Raw::header(3, 0, 1).key("a", kind::ARRAY), |raw, _| {
        raw.array(kind::ARRAY, (1 << 20) / 12 - 8)
    });
    [
        ("many entries", entries),
        ("many strings", strings),
        ("many arrays", arrays),
        ("many bools", bools),
        ("many tensors without data", tensors),
        ("many tensors", with_data),
        ("nested claims", claims.bytes(&vec![0; 1 << 20])),
    ]
    .into_iter()
    .map(|(name, raw)| (name, raw.build()))
}
