//! Any body of a request on any route: no panic, and the errors are those of the client.
//!
//! The first byte of the input selects the route.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rf_server::fuzzing::request_status;

fuzz_target!(|input: &[u8]| {
    let Some((&route, body)) = input.split_first() else { return };
    let status = request_status(route, body);
    assert!(matches!(status, 200 | 400 | 404 | 413), "{status}");
});
