//! `hipError_t`.

/// Defines the errors with their names and texts.
macro_rules! errors {
    ($($constant:ident = $number:literal, $name:literal, $text:literal;)*) => {
        /// A `hipError_t` other than success.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) struct Error(pub(crate) i32);

        #[allow(dead_code)] // the list is whole, not all of it happens here
        impl Error {
            $(pub(crate) const $constant: Self = Self($number);)*
        }

        /// Symbol and text of a result, each with a NUL at its end.
        pub(crate) fn describe(result: i32) -> Option<(&'static str, &'static str)> {
            match result {
                0 => Some(("hipSuccess\0", "no error\0")),
                $($number => Some((concat!("hipError", $name, "\0"), concat!($text, "\0"))),)*
                _ => None,
            }
        }
    };
}

errors! {
    INVALID_VALUE = 1, "InvalidValue", "invalid argument";
    OUT_OF_MEMORY = 2, "OutOfMemory", "out of memory";
    NOT_INITIALIZED = 3, "NotInitialized", "initialization error";
    DEINITIALIZED = 4, "Deinitialized", "driver shutting down";
    INVALID_CONFIGURATION = 9, "InvalidConfiguration", "invalid configuration argument";
    INVALID_PITCH_VALUE = 12, "InvalidPitchValue", "invalid pitch argument";
    INVALID_SYMBOL = 13, "InvalidSymbol", "invalid device symbol";
    INVALID_DEVICE_POINTER = 17, "InvalidDevicePointer", "invalid device pointer";
    INVALID_MEMCPY_DIRECTION = 21, "InvalidMemcpyDirection", "invalid copy direction for memcpy";
    INSUFFICIENT_DRIVER = 35, "InsufficientDriver", "driver version is insufficient for runtime version";
    MISSING_CONFIGURATION = 52, "MissingConfiguration", "__global__ function call is not configured";
    PRIOR_LAUNCH_FAILURE = 53, "PriorLaunchFailure", "unspecified launch failure in prior launch";
    INVALID_DEVICE_FUNCTION = 98, "InvalidDeviceFunction", "invalid device function";
    NO_DEVICE = 100, "NoDevice", "no ROCm-capable device is detected";
    INVALID_DEVICE = 101, "InvalidDevice", "invalid device ordinal";
    INVALID_IMAGE = 200, "InvalidImage", "device kernel image is invalid";
    INVALID_CONTEXT = 201, "InvalidContext", "invalid device context";
    NO_BINARY_FOR_GPU = 209, "NoBinaryForGpu", "no kernel image is available for execution on the device";
    FILE_NOT_FOUND = 301, "FileNotFound", "file not found";
    INVALID_HANDLE = 400, "InvalidHandle", "invalid resource handle";
    ILLEGAL_STATE = 401, "IllegalState", "the operation cannot be performed in the present state";
    NOT_FOUND = 500, "NotFound", "named symbol not found";
    NOT_READY = 600, "NotReady", "device not ready";
    ILLEGAL_ADDRESS = 700, "IllegalAddress", "an illegal memory access was encountered";
    PEER_ACCESS_UNSUPPORTED = 217, "PeerAccessUnsupported", "peer access is not supported between these two devices";
    PEER_ACCESS_ALREADY_ENABLED = 704, "PeerAccessAlreadyEnabled", "peer access is already enabled";
    PEER_ACCESS_NOT_ENABLED = 705, "PeerAccessNotEnabled", "peer access has not been enabled";
    SET_ON_ACTIVE_PROCESS = 708, "SetOnActiveProcess", "cannot set while device is active in this process";
    CONTEXT_IS_DESTROYED = 709, "ContextIsDestroyed", "context is destroyed";
    HOST_MEMORY_ALREADY_REGISTERED = 712, "HostMemoryAlreadyRegistered",
        "part or all of the requested memory range is already mapped";
    HOST_MEMORY_NOT_REGISTERED = 713, "HostMemoryNotRegistered",
        "pointer does not correspond to a registered memory region";
    LAUNCH_FAILURE = 719, "LaunchFailure", "unspecified launch failure";
    COOPERATIVE_LAUNCH_TOO_LARGE = 720, "CooperativeLaunchTooLarge", "too many blocks in cooperative launch";
    NOT_PERMITTED = 800, "NotPermitted", "operation not permitted";
    NOT_SUPPORTED = 801, "NotSupported", "operation not supported";
    STREAM_CAPTURE_UNSUPPORTED = 900, "StreamCaptureUnsupported", "operation not permitted when stream is capturing";
    STREAM_CAPTURE_INVALIDATED = 901, "StreamCaptureInvalidated",
        "operation failed due to a previous error during capture";
    STREAM_CAPTURE_MERGE = 902, "StreamCaptureMerge",
        "operation would result in a merge of separate capture sequences";
    STREAM_CAPTURE_UNMATCHED = 903, "StreamCaptureUnmatched",
        "capture was not ended in the same stream as it began";
    STREAM_CAPTURE_UNJOINED = 904, "StreamCaptureUnjoined", "capturing stream has unjoined work";
    STREAM_CAPTURE_ISOLATION = 905, "StreamCaptureIsolation",
        "dependency created on uncaptured work in another stream";
    STREAM_CAPTURE_IMPLICIT = 906, "StreamCaptureImplicit",
        "operation would make the legacy stream depend on a capturing blocking stream";
    CAPTURED_EVENT = 907, "CapturedEvent", "operation not permitted on an event last recorded in a capturing stream";
    STREAM_CAPTURE_WRONG_THREAD = 908, "StreamCaptureWrongThread",
        "attempt to terminate a thread-local capture sequence from another thread";
    GRAPH_EXEC_UPDATE_FAILURE = 910, "GraphExecUpdateFailure",
        "the graph update was not performed because it included changes which violated constraints";
    UNKNOWN = 999, "Unknown", "unknown error";
}

pub(crate) type Result<T> = std::result::Result<T, Error>;

impl From<fakecuda::Error> for Error {
    /// HIP uses CUDA's numbers.
    fn from(error: fakecuda::Error) -> Self {
        Self(error.0)
    }
}
