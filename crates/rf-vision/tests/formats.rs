//! Image files in every format against the pixels of Pillow, and files that must be refused.

use rf_vision::{DecodeLimits, ImageError, decode, dimensions};
use serde_json::Value;

#[test]
fn files_decode_to_the_pixels_of_pillow() {
    let Some(folder) = rf_testing::shared("golden/vision/formats") else { return };
    let text = std::fs::read_to_string(folder.join("formats.json")).unwrap();
    let files: Vec<Value> = serde_json::from_str(&text).unwrap();
    let limits = DecodeLimits::default();
    for file in files {
        let name = file["file"].as_str().unwrap();
        let bytes = std::fs::read(folder.join(name)).unwrap();
        let decoded = decode(&bytes, &limits);
        if file["pillow"].is_null() {
            let error = decoded.err();
            assert!(error.is_some(), "{name} must be refused");
            continue;
        }
        let picture = decoded.unwrap_or_else(|error| panic!("{name}: {error}"));
        let size = [&file["pillow"]["width"], &file["pillow"]["height"]];
        assert_eq!(picture.size().map(|n| n as u64), size.map(|n| n.as_u64().unwrap()), "{name}");
        assert_eq!(dimensions(&bytes, &limits).unwrap(), picture.size(), "{name}");
        let expected = std::fs::read(folder.join(format!("{name}.pillow.rgb"))).unwrap();
        assert_eq!(picture.pixels().len(), expected.len(), "{name}");
        let differences = picture.pixels().iter().zip(&expected).map(|(a, b)| a.abs_diff(*b));
        // Decoders of JPEG interpolate colours in different ways.
        let tolerance = match name {
            "progressive.jpg" => 20,
            _ if bytes.starts_with(&[0xFF, 0xD8]) => 8,
            _ => 0,
        };
        let largest = differences.max().unwrap();
        assert!(largest <= tolerance, "{name}: {largest}");
    }
}

/// A BMP header of a picture of a size, without pixels.
fn bmp(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = b"BM".to_vec();
    for field in [54, 0, 54, 40, width, height, 1 | 24 << 16, 0, 0, 0, 0, 0, 0] {
        bytes.extend_from_slice(&u32::to_le_bytes(field));
    }
    bytes
}

#[test]
fn sizes_are_checked_before_pixels() {
    let limits = DecodeLimits::default().with_side(100).with_pixels(5000);
    for (width, height) in [(101, 1), (1, 101), (100, 51)] {
        let error = decode(&bmp(width, height), &limits).unwrap_err();
        assert!(matches!(error, ImageError::Size { .. }), "{width}x{height}: {error}");
    }
    // Within the limits, the missing pixels are the error.
    let error = decode(&bmp(100, 50), &limits).unwrap_err();
    assert!(matches!(error, ImageError::Decode { format: "BMP", .. }), "{error}");
    assert_eq!(dimensions(&bmp(100, 50), &limits).unwrap(), [100, 50]);
}

#[test]
fn other_data_are_refused() {
    let limits = DecodeLimits::default().with_file_bytes(64);
    for bytes in [&b""[..], b"hello", b"<svg></svg>", b"\x89PN"] {
        let error = decode(bytes, &limits).unwrap_err();
        assert!(matches!(error, ImageError::UnknownFormat), "{error}");
    }
    let error = decode(&[0; 65], &limits).unwrap_err();
    assert!(matches!(error, ImageError::FileSize { bytes: 65, max_bytes: 64 }), "{error}");
}
