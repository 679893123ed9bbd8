//! Errors of pictures, sounds and projector files.

use rf_graph::BackendError;

/// A projector file that is not supported, or a picture that it cannot encode.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file is a model or something else, but no projector.
    #[error(
        "the file has architecture '{architecture}' and is no projector: a projector (mmproj) has \
         'clip'"
    )]
    NotAProjector {
        /// `general.architecture`, or `none`.
        architecture: String,
    },
    /// The projector encodes no images.
    #[error("the projector has no vision encoder")]
    NoVision,
    /// The projector encodes no sound.
    #[error("the projector has no audio encoder")]
    NoSound,
    /// The type of the projector is not supported.
    #[error("projector type '{name}' is not supported; supported are {}", .supported.join(", "))]
    UnsupportedProjector {
        /// The type in the file.
        name: String,
        /// The supported ones.
        supported: Vec<&'static str>,
    },
    /// A value of the file is invalid or not supported.
    #[error("{key} = {value} is not supported: {reason}")]
    Setting {
        /// Metadata key.
        key: String,
        /// The value in the file.
        value: String,
        /// The supported values.
        reason: &'static str,
    },
    /// The shape of a tensor contradicts the metadata.
    #[error("tensor '{name}' has shape {found:?}, expected {expected:?}")]
    Shape {
        /// Name of the tensor.
        name: String,
        /// Shape of the tensor, contiguous axis first.
        found: Vec<u64>,
        /// The shape that follows from the metadata.
        expected: Vec<u64>,
    },
    /// A norm, bias, factor or position has a value that is not a number or is infinite.
    #[error(
        "tensor '{name}' has a value that is not a number or infinite: the file is damaged, so \
         download or convert it again"
    )]
    NotFinite {
        /// Name of the tensor.
        name: String,
    },
    /// The file has tensors that the projector does not use, so its results would be wrong.
    #[error("projector type '{projector}' is not supported with these tensors: {}", .tensors.join(", "))]
    UnknownTensors {
        /// The type of the projector.
        projector: &'static str,
        /// Names of the first tensors.
        tensors: Vec<String>,
    },
    /// Limits on tokens were set for a projector that has none.
    #[error(
        "projector type '{projector}' has no limit on the tokens of a picture: they follow from its \
         fixed tile size, so remove the limit"
    )]
    FixedTokens {
        /// The type of the projector.
        projector: &'static str,
    },
    /// Limits on tokens contradict each other.
    #[error("a picture cannot have at least {min} and at most {max} tokens")]
    TokenLimits {
        /// The lower limit.
        min: usize,
        /// The upper limit.
        max: usize,
    },
    /// A picture needs more patches than the encoder computes at once.
    #[error(
        "a picture of {width}x{height} needs {patches} patches, the maximum is {max}: it is too \
         long and narrow, so crop it"
    )]
    TooManyPatches {
        /// Width of the picture.
        width: usize,
        /// Height of the picture.
        height: usize,
        /// Patches after resizing.
        patches: usize,
        /// The maximum.
        max: usize,
    },
    /// The container is damaged or incomplete.
    #[error(transparent)]
    Gguf(#[from] rf_gguf::Error),
    /// The backend does not support the encoder, or failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
}

/// Bytes that are no supported picture.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The bytes begin like no supported format.
    #[error("the data is no PNG, JPEG, WebP, GIF or BMP image")]
    UnknownFormat,
    /// The header announces more pixels than allowed, or none.
    #[error(
        "the image has {width}x{height} pixels, the maximum is {max_side} per side and {max_pixels} \
         in total"
    )]
    Size {
        /// Width in the header.
        width: u32,
        /// Height in the header.
        height: u32,
        /// Allowed width and height.
        max_side: u32,
        /// Allowed number of pixels.
        max_pixels: u64,
    },
    /// The file has more bytes than allowed.
    #[error("the image has {bytes} bytes, the maximum is {max_bytes}")]
    FileSize {
        /// Bytes of the file.
        bytes: usize,
        /// Allowed number of bytes.
        max_bytes: usize,
    },
    /// The image is damaged, incomplete, or of an unsupported kind.
    #[error("the {format} image cannot be decoded: {reason}")]
    Decode {
        /// Name of the format.
        format: &'static str,
        /// The cause.
        reason: String,
    },
}

/// Bytes that are no supported sound.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SoundError {
    /// The bytes begin like no known format.
    #[error("the data is no WAV or MP3 file: convert it to one of them")]
    UnknownFormat,
    /// The format is known, but not supported.
    #[error("{format} is not supported: convert the file to WAV or MP3")]
    UnsupportedFormat {
        /// Name of the format.
        format: &'static str,
    },
    /// The file has more bytes than allowed.
    #[error(
        "the sound has {bytes} bytes, the maximum is {max_bytes}: shorten it, or convert it to MP3"
    )]
    FileSize {
        /// Bytes of the file.
        bytes: usize,
        /// Allowed number of bytes.
        max_bytes: usize,
    },
    /// The sound is longer than allowed.
    #[error("the sound is longer than {max_seconds} seconds: cut it into shorter ones")]
    TooLong {
        /// Allowed length.
        max_seconds: u32,
    },
    /// The file has no samples.
    #[error("the {format} file has no samples")]
    Empty {
        /// Name of the format.
        format: &'static str,
    },
    /// The file is damaged, incomplete, or of an unsupported kind.
    #[error("the {format} file cannot be decoded: {reason}")]
    Decode {
        /// Name of the format.
        format: &'static str,
        /// The cause.
        reason: String,
    },
}
