//! `hipError_t`: numbers, names and texts.

use std::ffi::CStr;

/// A status other than success: `hipError_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(i32);

macro_rules! statuses {
    ($($constant:ident = $number:literal, $name:literal, $text:literal;)*) => {
        #[expect(missing_docs, reason = "the names are those of HIP")]
        impl Status {
            $(pub const $constant: Self = Self($number);)*
        }

        /// Number, name and text of every status.
        const TABLE: &[(i32, &CStr, &CStr)] = &[$(($number, $name, $text),)*];
    };
}

statuses! {
    INVALID_VALUE = 1, c"hipErrorInvalidValue", c"invalid argument";
    OUT_OF_MEMORY = 2, c"hipErrorOutOfMemory", c"out of memory";
    NOT_INITIALIZED = 3, c"hipErrorNotInitialized", c"initialization error";
    DEINITIALIZED = 4, c"hipErrorDeinitialized", c"driver shutting down";
    INVALID_CONFIGURATION = 9, c"hipErrorInvalidConfiguration", c"invalid configuration argument";
    INVALID_DEVICE_FUNCTION = 98, c"hipErrorInvalidDeviceFunction", c"invalid device function";
    NO_DEVICE = 100, c"hipErrorNoDevice", c"no ROCm-capable device is detected";
    INVALID_DEVICE = 101, c"hipErrorInvalidDevice", c"invalid device ordinal";
    INVALID_IMAGE = 200, c"hipErrorInvalidImage", c"device kernel image is invalid";
    NO_BINARY_FOR_GPU = 209, c"hipErrorNoBinaryForGpu",
        c"no kernel image is available for execution on the device";
    ECC_NOT_CORRECTABLE = 214, c"hipErrorECCNotCorrectable", c"uncorrectable ECC error encountered";
    FILE_NOT_FOUND = 301, c"hipErrorFileNotFound", c"file not found";
    INVALID_HANDLE = 400, c"hipErrorInvalidHandle", c"invalid resource handle";
    ILLEGAL_STATE = 401, c"hipErrorIllegalState", c"the operation cannot be performed in this state";
    NOT_FOUND = 500, c"hipErrorNotFound", c"named symbol not found";
    NOT_READY = 600, c"hipErrorNotReady", c"device not ready";
    ILLEGAL_ADDRESS = 700, c"hipErrorIllegalAddress", c"an illegal memory access was encountered";
    LAUNCH_OUT_OF_RESOURCES = 701, c"hipErrorLaunchOutOfResources",
        c"too many resources requested for launch";
    LAUNCH_TIMEOUT = 702, c"hipErrorLaunchTimeOut", c"the launch timed out and was terminated";
    PEER_ACCESS_ALREADY_ENABLED = 704, c"hipErrorPeerAccessAlreadyEnabled",
        c"peer access is already enabled";
    PEER_ACCESS_NOT_ENABLED = 705, c"hipErrorPeerAccessNotEnabled",
        c"peer access has not been enabled";
    CONTEXT_ACTIVE = 708, c"hipErrorSetOnActiveProcess",
        c"cannot set while device is active in this process";
    CONTEXT_DESTROYED = 709, c"hipErrorContextIsDestroyed", c"context is destroyed";
    ASSERT = 710, c"hipErrorAssert", c"device-side assert triggered";
    LAUNCH_FAILURE = 719, c"hipErrorLaunchFailure", c"unspecified launch failure";
    NOT_SUPPORTED = 801, c"hipErrorNotSupported", c"operation not supported";
    CAPTURE_UNSUPPORTED = 900, c"hipErrorStreamCaptureUnsupported",
        c"operation not permitted when stream is capturing";
    CAPTURE_INVALIDATED = 901, c"hipErrorStreamCaptureInvalidated",
        c"operation failed due to a previous error during capture";
    CAPTURE_MERGE = 902, c"hipErrorStreamCaptureMerge",
        c"operation would result in a merge of separate capture sequences";
    CAPTURE_UNMATCHED = 903, c"hipErrorStreamCaptureUnmatched",
        c"capture was not initiated in this stream";
    CAPTURE_UNJOINED = 904, c"hipErrorStreamCaptureUnjoined",
        c"capturing stream has unjoined work";
    CAPTURE_IMPLICIT = 906, c"hipErrorStreamCaptureImplicit",
        c"operation would make the legacy stream depend on a capturing blocking stream";
    CAPTURED_EVENT = 907, c"hipErrorCapturedEvent",
        c"operation not permitted on an event last recorded in a capturing stream";
    GRAPH_UPDATE_FAILURE = 910, c"hipErrorGraphExecUpdateFailure",
        c"the graph update was not performed because it included changes which violated constraints";
    UNKNOWN = 999, c"hipErrorUnknown", c"unknown error";
}

impl Status {
    /// The status with this number; `None` for success.
    pub fn from_number(number: i32) -> Option<Self> {
        (number != 0).then_some(Self(number))
    }

    /// The status with this name (`hipErrorOutOfMemory`) or number (`2`).
    pub fn from_text(text: &str) -> Option<Self> {
        if let Ok(number) = text.parse() {
            return Self::from_number(number);
        }
        let row = TABLE.iter().find(|row| row.1.to_str() == Ok(text));
        row.map(|row| Self(row.0))
    }

    /// The number.
    pub fn number(self) -> i32 {
        self.0
    }

    /// Returns true if every later call on the device fails the same way.
    pub fn loses_device(self) -> bool {
        matches!(self.0, 4 | 214 | 700 | 702 | 709 | 710 | 714..=719)
    }
}

/// The name of a status, or `None` for an unknown one.
pub(crate) fn name(number: i32) -> Option<&'static CStr> {
    described(number).map(|row| row.0)
}

/// The text of a status, or `None` for an unknown one.
pub(crate) fn text(number: i32) -> Option<&'static CStr> {
    described(number).map(|row| row.1)
}

fn described(number: i32) -> Option<(&'static CStr, &'static CStr)> {
    if number == 0 {
        return Some((c"hipSuccess", c"no error"));
    }
    TABLE.iter().find(|row| row.0 == number).map(|row| (row.1, row.2))
}
