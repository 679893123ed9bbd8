//! Slots in files.

use std::fs;

use serde_json::json;
use tempfile::TempDir;

use crate::server::{Setup, TestServer};

fn server(folder: &TempDir) -> TestServer {
    let mut setup = Setup::default();
    setup.server.slot_save_path = Some(folder.path().to_owned());
    TestServer::with(setup)
}

#[test]
fn a_conversation_goes_on_from_a_slot_that_another_server_has_saved() {
    let folder = TempDir::new().unwrap();
    let first = server(&folder);
    let story = "Once upon a time there was a little dog. ".repeat(8);
    let ask = |server: &TestServer| {
        let body = json!({ "prompt": story, "n_predict": 8, "temperature": 0.0 });
        server.post("/completion", &body).ok()
    };
    let expected = ask(&first);
    let name = json!({ "filename": "dog.bin" });
    let saved = first.post("/slots/0?action=save", &name).ok();
    let bytes = fs::metadata(folder.path().join("dog.bin")).unwrap().len();
    assert_eq!((&saved["id_slot"], &saved["filename"]), (&json!(0), &json!("dog.bin")));
    assert_eq!(saved["n_written"], bytes);
    let tokens = saved["n_saved"].as_u64().unwrap();
    assert!(tokens >= 32 && tokens.is_multiple_of(32), "{saved}");
    assert!(saved["timings"]["save_ms"].as_f64().unwrap() > 0.0);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);

    let second = server(&folder);
    let restored = second.post("/slots/5?action=restore", &name).ok();
    assert_eq!((&restored["n_restored"], &restored["n_read"]), (&json!(tokens), &json!(bytes)));
    let again = ask(&second);
    assert_eq!(again["content"], expected["content"]);
    assert!(again["timings"]["cache_n"].as_u64().unwrap() >= 32, "{again}");
    let erased = second.post("/slots/5?action=erase", &json!({})).ok();
    assert_eq!((&erased["id_slot"], &erased["n_erased"]), (&json!(5), &json!(tokens)));
}

#[test]
fn slots_that_cannot_be_saved_or_restored_are_refused() {
    let folder = TempDir::new().unwrap();
    let server = server(&folder);
    fs::write(folder.path().join("other"), "no slot").unwrap();
    for (path, name, status, message) in [
        ("/slots/0?action=save", "../dog", 400, "filename"),
        ("/slots/0?action=restore", "a/b", 400, "filename"),
        ("/slots/0?action=restore", "missing", 400, "no such file"),
        ("/slots/0?action=restore", "other", 400, "not a prompt cache"),
        ("/slots/0?action=keep", "dog", 400, "action"),
        ("/slots/0", "dog", 400, "action"),
        ("/slots/9999?action=save", "dog", 400, "id_slot"),
        ("/slots/-1?action=save", "dog", 400, "id_slot"),
    ] {
        let response = server.post(path, &json!({ "filename": name }));
        assert_eq!(response.status, status, "{path} {name}: {}", response.text);
        assert!(response.text.contains(message), "{path} {name}: {}", response.text);
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    let without = TestServer::start();
    let response = without.post("/slots/0?action=save", &json!({ "filename": "dog" }));
    assert_eq!(response.status, 501);
    assert!(response.text.contains("--slot-save-path"), "{}", response.text);
}
