//! Copies of the library that lack functions, as older runtimes do, or devices.

/// Read by the library when it is loaded: its last byte is [`LISTS_DEVICES`] or another one.
static MARK: &[u8] = b"rf-emu-hip lists devices: +";
const LISTS_DEVICES: u8 = b'+';

/// Why a function cannot be removed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the library has no function {symbol}")]
pub struct SymbolError {
    symbol: String,
}

/// A copy of a shared library in which nobody finds these functions: their names are changed in
/// the string table, which the hash table does not lead to.
///
/// # Errors
///
/// The library has no such function.
pub fn without_symbols(library: &[u8], symbols: &[&str]) -> Result<Vec<u8>, SymbolError> {
    let mut copy = library.to_vec();
    for &symbol in symbols {
        let name = [b"\0", symbol.as_bytes(), b"\0"].concat();
        let windows = copy.windows(name.len()).enumerate();
        let places: Vec<_> =
            windows.filter(|(_, bytes)| *bytes == name).map(|(at, _)| at).collect();
        if symbol.is_empty() || places.is_empty() {
            return Err(SymbolError { symbol: symbol.to_owned() });
        }
        for at in places {
            copy[at + 1] = b'_';
        }
    }
    Ok(copy)
}

/// A copy of a shared library that lists no devices, as a runtime that does not fit the card or its
/// driver.
///
/// # Errors
///
/// The library is not this one.
pub fn without_devices(library: &[u8]) -> Result<Vec<u8>, SymbolError> {
    let mut copy = library.to_vec();
    let places: Vec<_> =
        copy.windows(MARK.len()).enumerate().filter(|(_, bytes)| *bytes == MARK).collect();
    let places: Vec<_> = places.into_iter().map(|(at, _)| at).collect();
    if places.is_empty() {
        return Err(SymbolError { symbol: "that lists devices".to_owned() });
    }
    for at in places {
        copy[at + MARK.len() - 1] = b'-';
    }
    Ok(copy)
}

/// Returns false in a copy of [`without_devices`].
pub(crate) fn lists_devices() -> bool {
    // The compiler must not know the byte, which is another one in a copy.
    std::hint::black_box(MARK).last() == Some(&LISTS_DEVICES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_names_are_changed() {
        let library = b"x\0hipFree\0hipFreeAsync\0hipMalloc\0";
        let copy = without_symbols(library, &["hipFree", "hipMalloc"]).unwrap();
        assert_eq!(copy, b"x\0_ipFree\0hipFreeAsync\0_ipMalloc\0");
        let error = without_symbols(library, &["hipInit"]).unwrap_err();
        assert_eq!(error.to_string(), "the library has no function hipInit");
    }
}
