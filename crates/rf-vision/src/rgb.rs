//! Pictures in memory.

/// A picture of 8-bit RGB pixels, rows from the top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rgb {
    width: usize,
    height: usize,
    pixels: Vec<u8>,
}

impl Rgb {
    /// A picture of `width · height` pixels of three bytes; `None` if it has none, or `pixels` has
    /// another size.
    pub fn new(width: usize, height: usize, pixels: Vec<u8>) -> Option<Self> {
        let bytes = width.checked_mul(height)?.checked_mul(3)?;
        (bytes > 0 && pixels.len() == bytes).then_some(Self { width, height, pixels })
    }

    /// Pixels from left to right.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Pixels from top to bottom.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Width and height.
    pub fn size(&self) -> [usize; 2] {
        [self.width, self.height]
    }

    /// The bytes of all pixels.
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    /// The bytes of a row of pixels.
    pub(crate) fn row(&self, y: usize) -> &[u8] {
        &self.pixels[y * self.width * 3..][..self.width * 3]
    }

    /// A black picture.
    pub(crate) fn black([width, height]: [usize; 2]) -> Self {
        Self { width, height, pixels: vec![0; width * height * 3] }
    }

    /// Puts another picture on this one, whose upper left corner is at `(x, y)`.
    pub(crate) fn paste(&mut self, other: &Self, [x, y]: [usize; 2]) {
        for row in 0..other.height {
            let start = ((y + row) * self.width + x) * 3;
            self.pixels[start..start + other.width * 3].copy_from_slice(other.row(row));
        }
    }

    /// The part of a size whose upper left corner is at `(x, y)`.
    pub(crate) fn crop(&self, [x, y]: [usize; 2], [width, height]: [usize; 2]) -> Self {
        let rows = (y..y + height).flat_map(|row| &self.row(row)[x * 3..(x + width) * 3]);
        Self { width, height, pixels: rows.copied().collect() }
    }
}
