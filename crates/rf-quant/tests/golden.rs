//! Compares every format with reference data: the subset in `tests/golden`, and the full set if it
//! is present.

use std::fs;
use std::path::{Path, PathBuf};

use rf_quant::{DType, Family, dequantize, quantize_to_vec};

/// The rows of the source, which `golden/README.md` describes.
const ROWS: usize = 8;

#[test]
#[cfg_attr(miri, ignore = "takes minutes under Miri")]
fn dequantize_matches_golden_bit_for_bit() {
    for set in GoldenSet::all() {
        for dtype in set.formats() {
            for (blocks, values) in [("quantized", "dequantized.f32"), ("random", "random.f32")] {
                if blocks == "quantized" && !set.has_quantized(dtype) {
                    continue;
                }
                let bytes = set.bytes(&format!("{dtype}.{blocks}"));
                let expected = set.floats(&format!("{dtype}.{values}"));
                let mut actual = vec![0.0; expected.len()];
                dequantize(dtype, &bytes, &mut actual).unwrap();
                for (i, (actual, expected)) in actual.iter().zip(&expected).enumerate() {
                    assert!(
                        actual.to_bits() == expected.to_bits()
                            || actual.is_nan() && expected.is_nan(),
                        "{dtype}.{blocks}, value {i}: {actual} instead of {expected}"
                    );
                }
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes under Miri")]
fn quantize_matches_golden_byte_for_byte() {
    for set in GoldenSet::all() {
        let source = set.source();
        for dtype in set.formats().filter(|dtype| !is_searched(*dtype)) {
            let expected = set.bytes(&format!("{dtype}.quantized"));
            let actual = quantize_to_vec(dtype, &source).unwrap();
            assert_eq!(actual.len(), expected.len());
            let blocks =
                actual.chunks(dtype.block_bytes()).zip(expected.chunks(dtype.block_bytes()));
            for (i, (actual, expected)) in blocks.enumerate() {
                let first = i * dtype.block_elements();
                let values = &source[first..first + dtype.block_elements()];
                assert_eq!(actual, expected, "{dtype}, block {i}: {values:?}");
            }
        }
    }
}

/// In formats with a search for scales, the error is at most 2 % above the reference's.
#[test]
#[cfg_attr(miri, ignore = "takes minutes under Miri")]
fn searched_rmse_of_each_row_is_within_two_percent_of_golden() {
    for set in GoldenSet::all() {
        let source = set.source();
        let columns = source.len() / ROWS;
        for dtype in set.formats().filter(|dtype| is_searched(*dtype) && set.has_quantized(*dtype))
        {
            let reference = set.floats(&format!("{dtype}.dequantized.f32"));
            let blocks = quantize_to_vec(dtype, &source).unwrap();
            let mut actual = vec![0.0; source.len()];
            dequantize(dtype, &blocks, &mut actual).unwrap();

            for row in 0..ROWS {
                let range = row * columns..(row + 1) * columns;
                let source = &source[range.clone()];
                let ours = root_mean_square(source, &actual[range.clone()]);
                let theirs = root_mean_square(source, &reference[range]);
                println!("{dtype}, {columns} columns, row {row}: {ours:.4e} ({theirs:.4e})");
                assert!(ours <= 1.02 * theirs, "{dtype}, row {row}: {ours}, reference {theirs}");
            }
        }
    }
}

struct GoldenSet {
    folder: PathBuf,
    /// The folder of the source.
    source: PathBuf,
    /// False if other folders have the other formats.
    is_complete: bool,
}

impl GoldenSet {
    fn all() -> Vec<Self> {
        let subset = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
        let mut sets = vec![Self { folder: subset.clone(), source: subset, is_complete: true }];
        if let Some(source) = rf_testing::shared("golden/quant") {
            let folders = [Some(source.clone()), rf_testing::shared("golden/quant3")];
            sets.extend(folders.into_iter().flatten().map(|folder| Self {
                folder,
                source: source.clone(),
                is_complete: false,
            }));
        }
        sets
    }

    /// The formats with reference data: all but F32.
    fn formats(&self) -> impl Iterator<Item = DType> {
        DType::ALL.into_iter().filter(|dtype| {
            let is_here = || self.folder.join(format!("{dtype}.random")).is_file();
            *dtype != DType::F32 && (self.is_complete || is_here())
        })
    }

    fn source(&self) -> Vec<f32> {
        floats(&read(&self.source.join("source.f32")))
    }

    /// Codebook formats have only random blocks in the subset.
    fn has_quantized(&self, dtype: DType) -> bool {
        dtype.family() != Family::Codebook
            || self.folder.join(format!("{dtype}.quantized")).is_file()
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        read(&self.folder.join(name))
    }

    fn floats(&self, name: &str) -> Vec<f32> {
        floats(&self.bytes(name))
    }
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(rf_testing::plain_or_unpacked(path))
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// Formats whose quantisation is a search, so that the bytes may differ.
fn is_searched(dtype: DType) -> bool {
    matches!(dtype, DType::Q2K | DType::Q3K | DType::Q4K | DType::Q5K | DType::Q6K)
        || dtype.family() == Family::Codebook
}

fn root_mean_square(a: &[f32], b: &[f32]) -> f64 {
    let squares = a.iter().zip(b).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2));
    (squares.sum::<f64>() / a.len() as f64).sqrt()
}
