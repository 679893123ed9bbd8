//! Properties of every input: error bounds, stability, and no panic on any bytes or floats.

use proptest::collection::vec;
use proptest::prelude::*;
use rf_quant::{
    DType, Error, Family, dequantize, first_non_finite_block, quantize, quantize_to_vec,
    quantize_weighted,
};

proptest! {
    #[test]
    #[cfg_attr(miri, ignore = "takes minutes under Miri")]
    fn round_trip_error_is_bounded_by_bit_width(
        values in vec(-1.0f32..1.0, 256),
        exponent in -3i32..10,
    ) {
        let values: Vec<f32> = values.iter().map(|x| x * 2f32.powi(exponent)).collect();
        for dtype in DType::ALL {
            let bytes = quantize_to_vec(dtype, &values).unwrap();
            let restored = restore(dtype, &bytes);
            let blocks = values.chunks(dtype.block_elements());
            for (x, y) in blocks.zip(restored.chunks(dtype.block_elements())) {
                let largest = x.iter().fold(0.0f32, |max, x| max.max(x.abs()));
                if largest < SUBNORMAL_SCALES {
                    continue;
                }
                let error = x.iter().zip(y).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max);
                let bound = error_bound(dtype) * largest;
                prop_assert!(error <= bound, "{dtype}: {error} above {bound}, {x:?}");
            }
        }
    }

    /// Formats whose scale follows from the largest magnitude alone find the same blocks again.
    #[test]
    fn quantizing_restored_values_gives_the_same_blocks(values in vec(-1e3f32..1e3, 256)) {
        use DType::{Bf16, F16, F32, Mxfp4, Mxfp6E2M3, Mxfp6E3M2, Q4_0, Q5_0, Q8_0};
        for dtype in [F32, F16, Bf16, Q4_0, Q5_0, Q8_0, Mxfp4, Mxfp6E2M3, Mxfp6E3M2] {
            let bytes = quantize_to_vec(dtype, &values).unwrap();
            let again = quantize_to_vec(dtype, &restore(dtype, &bytes)).unwrap();
            prop_assert_eq!(bytes, again, "{}", dtype);
        }
    }

    #[test]
    fn any_bytes_dequantize_and_their_scales_tell_finite_blocks(bytes in vec(any::<u8>(), 210 * 2)) {
        for dtype in DType::ALL {
            let blocks = bytes.len() / dtype.block_bytes();
            let bytes = &bytes[..blocks * dtype.block_bytes()];
            let values = restore(dtype, bytes);
            let first = values.iter().position(|value| !value.is_finite());
            let block = first.map(|index| index / dtype.block_elements());
            prop_assert_eq!(first_non_finite_block(dtype, bytes), Ok(block), "{}", dtype);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes under Miri")]
    fn any_floats_quantize_to_finite_values_or_are_refused(
        bits in vec(prop_oneof![any::<u32>(), Just(0x7f7f_ffff), Just(0xff7f_ffff), Just(1)], 256),
    ) {
        let values: Vec<f32> = bits.iter().map(|bits| f32::from_bits(*bits)).collect();
        let clean: Vec<f32> =
            values.iter().map(|x| if x.is_finite() { *x } else { 1.0 }).collect();
        for dtype in block_formats() {
            let first = values.iter().position(|x| !x.is_finite());
            match (quantize_to_vec(dtype, &values), first) {
                (Ok(_), None) => {}
                (Err(Error::NonFinite { index, nan, .. }), Some(first)) => {
                    prop_assert_eq!((index, nan), (first, values[first].is_nan()));
                }
                (result, first) => prop_assert!(false, "{dtype}: {result:?} with {first:?}"),
            }
            let restored = restore(dtype, &quantize_to_vec(dtype, &clean).unwrap());
            prop_assert!(restored.iter().all(|x| x.is_finite()), "{dtype}: {restored:?}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes under Miri")]
    fn blocks_start_at_any_address(values in vec(-1.0f32..1.0, 256), offset in 0usize..8) {
        for dtype in DType::ALL {
            let bytes = quantize_to_vec(dtype, &values).unwrap();
            let mut moved = vec![0; offset + bytes.len()];
            quantize(dtype, &values, &mut moved[offset..]).unwrap();
            prop_assert_eq!(&moved[offset..], &bytes);
            prop_assert_eq!(restore(dtype, &moved[offset..]), restore(dtype, &bytes));
        }
    }
}

#[test]
fn wrong_lengths_are_errors() {
    for dtype in DType::ALL {
        let block = dtype.block_elements();
        let bytes = vec![0; dtype.block_bytes() * 2];
        for short in [&bytes[..bytes.len() - 1], &bytes[..dtype.block_bytes()], &[]] {
            let error = dequantize(dtype, short, &mut vec![0.0; 2 * block]).unwrap_err();
            let (values, expected, actual) = (2 * block, bytes.len(), short.len());
            assert_eq!(error, Error::ByteLength { dtype, values, expected, actual });
            let error = quantize(dtype, &vec![0.0; 2 * block], &mut short.to_vec()).unwrap_err();
            assert_eq!(error, Error::ByteLength { dtype, values, expected, actual });
            let whole = short.len().is_multiple_of(dtype.block_bytes());
            assert_eq!(first_non_finite_block(dtype, short).is_ok(), whole, "{dtype}");
        }
        if block > 1 {
            let partial = Error::PartialBlock { dtype, values: block + 1 };
            assert_eq!(quantize_to_vec(dtype, &vec![0.0; block + 1]), Err(partial.clone()));
            assert_eq!(dequantize(dtype, &bytes, &mut vec![0.0; block + 1]), Err(partial));
        }
        assert_eq!(quantize_to_vec(dtype, &[]), Ok(vec![]));
    }
}

#[test]
fn errors_read_as_fragments() {
    let error = quantize_to_vec(DType::Q4K, &[0.0; 100]).unwrap_err();
    assert_eq!(error.to_string(), "100 values are not a whole number of Q4_K blocks of 256");
    let error = dequantize(DType::Q8_0, &[0; 33], &mut [0.0; 32]).unwrap_err();
    assert_eq!(error.to_string(), "32 values take 34 bytes as Q8_0, not 33");
    let mut values = [0.0; 64];
    values[40] = f32::NAN;
    let error = quantize_to_vec(DType::Q8_0, &values).unwrap_err();
    assert_eq!(error.to_string(), "value 40 is NaN, which Q8_0 cannot store");
    values[40] = f32::NEG_INFINITY;
    let error = quantize_to_vec(DType::Q8_0, &values).unwrap_err();
    assert_eq!(error.to_string(), "value 40 is infinite, which Q8_0 cannot store");
}

/// The importance of columns: some count 1000 times as much as others.
fn importance(len: usize) -> Vec<f32> {
    (0..len).map(|i| [1.0, 1000.0, 30.0, 0.5, 200.0][i * i % 5]).collect()
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes under Miri")]
fn importance_lowers_the_weighted_error_of_every_search() {
    let values: Vec<f32> =
        (0..4096u32).map(|i| ((i * i * 31 + 7 * i) as f32 * 0.37).sin()).collect();
    let importance = importance(values.len());
    let error = |dtype, bytes: &[u8]| -> f32 {
        let restored = restore(dtype, bytes);
        let errors = restored.iter().zip(&values).zip(&importance);
        errors.map(|((a, b), weight)| weight * (a - b).powi(2)).sum()
    };
    for dtype in block_formats() {
        let plain = quantize_to_vec(dtype, &values).unwrap();
        let mut weighted = vec![0; plain.len()];
        quantize_weighted(dtype, &values, &importance, &mut weighted).unwrap();
        let (plain, weighted) = (error(dtype, &plain), error(dtype, &weighted));
        println!("{dtype}: {weighted} with importance, {plain} without");
        let is_one_pass = {
            use DType::{Q1_0, Q2_0, Q8_0, Tq1_0, Tq2_0};
            matches!(dtype, Q8_0 | Tq1_0 | Tq2_0 | Q1_0 | Q2_0)
        };
        let is_searched = dtype.family() != Family::Microscaling && !is_one_pass;
        let bound = if is_searched { 0.95 } else { 1.0 };
        assert!(weighted <= bound * plain, "{dtype}: {weighted}, without importance {plain}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes under Miri")]
fn any_importance_gives_finite_values() {
    let values: Vec<f32> = (0..256).map(|i| (i as f32 * 0.7).sin()).collect();
    for weight in [0.0, -1.0, f32::NAN, f32::INFINITY, f32::MAX, 1e-45] {
        let mut importance = importance(256);
        importance.iter_mut().step_by(3).for_each(|x| *x = weight);
        for importance in [importance, vec![weight; 256]] {
            for dtype in block_formats() {
                let mut bytes = vec![0; dtype.row_bytes(256).unwrap()];
                quantize_weighted(dtype, &values, &importance, &mut bytes).unwrap();
                let restored = restore(dtype, &bytes);
                assert!(restored.iter().all(|x| x.is_finite()), "{dtype} with {weight}");
            }
        }
    }
    let error = quantize_weighted(DType::Q4_0, &values, &[1.0; 32], &mut [0; 144]).unwrap_err();
    assert_eq!(error, Error::ImportanceLength { values: 256, actual: 32 });
}

#[test]
fn normalized_codebook_blocks_have_the_given_magnitude() {
    for dtype in DType::ALL.into_iter().filter(|dtype| dtype.family() == Family::Codebook) {
        let mut bytes: Vec<u8> = (0..dtype.block_bytes()).map(|i| (i * 89 + 7) as u8).collect();
        rf_quant::normalize_codebook_blocks(dtype, &mut bytes, 0.5);
        let values = restore(dtype, &bytes);
        let mean = values.iter().map(|x| x * x).sum::<f32>() / 256.0;
        assert!((mean.sqrt() - 0.5).abs() < 1e-3, "{dtype}: {}", mean.sqrt());
    }
}

/// A constant needs one level and one scale, so the only error is the rounding of scales to f16.
/// Scales of microscaling formats are powers of two, and codebooks may lack points of equal values.
#[test]
#[cfg_attr(miri, ignore = "takes minutes under Miri")]
fn constant_blocks_keep_their_value() {
    let has_levels =
        |dtype: &DType| !matches!(dtype.family(), Family::Microscaling | Family::Codebook);
    for dtype in block_formats().filter(has_levels) {
        for value in [0.7f32, -0.7, 123.4, -0.003, 60_000.0, -60_000.0, 0.0] {
            // The scale of the scales is a subnormal f16, and codes ignore its rounding error.
            if dtype == DType::Iq4Xs && (-0.01..0.0).contains(&value) {
                continue;
            }
            let restored = restore(dtype, &quantize_to_vec(dtype, &[value; 256]).unwrap());
            for x in restored {
                assert!((x - value).abs() <= value.abs() / 500.0, "{dtype}: {x} for {value}");
            }
        }
    }
}

#[test]
fn floats_keep_nan_and_infinities() {
    let values = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30];
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        let restored = restore(dtype, &quantize_to_vec(dtype, &values).unwrap());
        assert!(restored[0].is_nan(), "{dtype}");
        assert_eq!(restored[1..3], values[1..3], "{dtype}");
        assert_eq!(restored[3].is_infinite(), dtype == DType::F16, "{dtype}");
    }
}

/// The scales of blocks with smaller values are subnormal f16, which are less precise.
const SUBNORMAL_SCALES: f32 = 1.0 / 16.0;

/// The largest error of a value, in units of the largest magnitude of its block.
fn error_bound(dtype: DType) -> f32 {
    // Half a unit in the last place of f16, which rounds every block scale and minimum.
    const F16: f32 = 1.0 / 2048.0;
    match dtype {
        DType::F32 => 0.0,
        DType::F16 => F16,
        DType::Bf16 => 1.0 / 256.0,
        // The signed range has one level less on the side without the largest magnitude.
        DType::Q4_0 => 1.0 / 8.0 + F16,
        DType::Q5_0 => 1.0 / 16.0 + F16,
        DType::Q4_1 => 1.0 / 15.0 + 3.0 * F16,
        DType::Q5_1 => 1.0 / 31.0 + 3.0 * F16,
        DType::Q8_0 => 0.5 / 127.0 + F16,
        // Half a step at the top of the binade, or the error of saturation there.
        DType::Mxfp4 => 2.0 / 8.0,
        DType::Mxfp6E2M3 => 0.5 / 8.0,
        DType::Mxfp6E3M2 => 4.0 / 32.0,
        DType::Q3K => 1.0 / 3.0,
        DType::Tq1_0 | DType::Tq2_0 | DType::Q2_0 => 0.5 + F16,
        // Only the sign of a value is stored.
        DType::Q1_0 => 1.0 + F16,
        // Half a step at the top of the range, and the rounding of a scale, which may be subnormal.
        DType::Nvfp4 => 1.0 / 6.0 + 0.05,
        // The search shrinks the scale to as little as largest / 134, and the codebook ends at 113
        // on the side without the largest magnitude.
        DType::Iq4Nl | DType::Iq4Xs => 1.0 - 113.0 / 134.0 + F16,
        // There may be no point near eight or four values, and the nearest one may have another
        // sign where a value is small.
        _ if dtype.family() == Family::Codebook => 2.0,
        // The search may clip one value to reduce the error of the others: twice the half step
        // of the plain range from minimum to maximum.
        _ => 2.0 / ((1 << (8 * dtype.block_bytes() / dtype.block_elements())) - 1) as f32,
    }
}

fn block_formats() -> impl Iterator<Item = DType> {
    DType::ALL.into_iter().filter(|dtype| dtype.block_elements() > 1)
}

fn restore(dtype: DType, bytes: &[u8]) -> Vec<f32> {
    let mut values = vec![0.0; bytes.len() / dtype.block_bytes() * dtype.block_elements()];
    dequantize(dtype, bytes, &mut values).expect("whole blocks");
    values
}
