//! Decoding of image files: untrusted bytes, within limits on pixels and memory.

use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};

use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits};

use crate::error::ImageError;
use crate::rgb::Rgb;

/// The formats, with their names in errors.
const FORMATS: [(ImageFormat, &str); 5] = [
    (ImageFormat::Png, "PNG"),
    (ImageFormat::Jpeg, "JPEG"),
    (ImageFormat::WebP, "WebP"),
    (ImageFormat::Gif, "GIF"),
    (ImageFormat::Bmp, "BMP"),
];

/// The limits on an image file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DecodeLimits {
    /// Bytes of the file.
    pub file_bytes: usize,
    /// Width and height in pixels.
    pub side: u32,
    /// Pixels.
    pub pixels: u64,
    /// Bytes that the decoder allocates, as far as it counts them.
    pub memory_bytes: u64,
}

impl Default for DecodeLimits {
    /// 20 MB, 16,384 pixels per side, 64 megapixels, 512 MiB.
    fn default() -> Self {
        Self { file_bytes: 20_000_000, side: 16_384, pixels: 64_000_000, memory_bytes: 512 << 20 }
    }
}

impl DecodeLimits {
    /// Sets [`file_bytes`](Self::file_bytes).
    #[must_use]
    pub fn with_file_bytes(mut self, file_bytes: usize) -> Self {
        self.file_bytes = file_bytes;
        self
    }

    /// Sets [`side`](Self::side).
    #[must_use]
    pub fn with_side(mut self, side: u32) -> Self {
        self.side = side;
        self
    }

    /// Sets [`pixels`](Self::pixels).
    #[must_use]
    pub fn with_pixels(mut self, pixels: u64) -> Self {
        self.pixels = pixels;
        self
    }

    /// Sets [`memory_bytes`](Self::memory_bytes).
    #[must_use]
    pub fn with_memory_bytes(mut self, memory_bytes: u64) -> Self {
        self.memory_bytes = memory_bytes;
        self
    }
}

/// Decodes a PNG, JPEG, `WebP`, GIF or BMP file; the first frame of an animation. The format
/// follows from the first bytes. The picture is turned upright as its EXIF orientation says.
/// Transparency is dropped, not blended with a background, and the low byte of 16-bit channels is
/// dropped.
///
/// # Errors
///
/// If the bytes are no such file, it is damaged or incomplete, or it exceeds a limit. The limits on
/// pixels are checked before any pixel is decoded.
pub fn decode(bytes: &[u8], limits: &DecodeLimits) -> Result<Rgb, ImageError> {
    guarded(bytes, limits, |mut decoder, name| {
        let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
        let image = DynamicImage::from_decoder(decoder);
        let mut image = image.map_err(|error| failure(name, &error))?;
        image.apply_orientation(orientation);
        Ok(rgb(image))
    })
}

/// Reads the width and height of an upright picture from the header of its file.
///
/// # Errors
///
/// As [`decode`], as far as the header shows it.
pub fn dimensions(bytes: &[u8], limits: &DecodeLimits) -> Result<[usize; 2], ImageError> {
    guarded(bytes, limits, |mut decoder, _| {
        let (width, height) = decoder.dimensions();
        let [width, height] = [width as usize, height as usize];
        let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
        Ok(if swaps_sides(orientation) { [height, width] } else { [width, height] })
    })
}

/// Opens the decoder, checks the limits, and runs `read` with the decoder and the format's name. A
/// panic in a decoder is an error: their files are untrusted.
fn guarded<T>(
    bytes: &[u8],
    limits: &DecodeLimits,
    read: impl FnOnce(Box<dyn ImageDecoder + '_>, &'static str) -> Result<T, ImageError>,
) -> Result<T, ImageError> {
    if bytes.len() > limits.file_bytes {
        let max_bytes = limits.file_bytes;
        return Err(ImageError::FileSize { bytes: bytes.len(), max_bytes });
    }
    let format = image::guess_format(bytes).ok();
    let known = FORMATS.iter().find(|(known, _)| Some(*known) == format);
    let Some((format, name)) = known.copied() else { return Err(ImageError::UnknownFormat) };
    let run = || {
        let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
        reader.limits(library_limits(limits));
        let decoder = reader.into_decoder().map_err(|error| failure(name, &error))?;
        let (width, height) = decoder.dimensions();
        let (max_side, max_pixels) = (limits.side, limits.pixels);
        let pixels = u64::from(width) * u64::from(height);
        if pixels == 0 || pixels > max_pixels || width.max(height) > max_side {
            return Err(ImageError::Size { width, height, max_side, max_pixels });
        }
        read(Box::new(decoder), name)
    };
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
        let reason = "its decoder failed".to_owned();
        Err(ImageError::Decode { format: name, reason })
    })
}

/// Sides are checked by [`guarded`], whose error has the numbers.
fn library_limits(limits: &DecodeLimits) -> Limits {
    let mut library = Limits::default();
    library.max_alloc = Some(limits.memory_bytes);
    library
}

fn failure(format: &'static str, error: &image::ImageError) -> ImageError {
    ImageError::Decode { format, reason: error.to_string() }
}

fn swaps_sides(orientation: Orientation) -> bool {
    use Orientation::{Rotate90, Rotate90FlipH, Rotate270, Rotate270FlipH};
    matches!(orientation, Rotate90 | Rotate270 | Rotate90FlipH | Rotate270FlipH)
}

/// The three colours of each pixel, the high byte of wider channels.
fn rgb(image: DynamicImage) -> Rgb {
    let (width, height) = (image.width() as usize, image.height() as usize);
    let is_wide = image.color().bytes_per_pixel() > image.color().channel_count();
    let pixels = if is_wide {
        image.into_rgb16().into_raw().into_iter().map(|value| (value >> 8) as u8).collect()
    } else {
        image.into_rgb8().into_raw()
    };
    Rgb::new(width, height, pixels).expect("a decoded image has three bytes per pixel")
}
