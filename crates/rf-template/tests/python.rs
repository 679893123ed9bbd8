//! Templates render as in Python: texts of the library jinja2 with the settings of `transformers`.

use rf_template::Template;
use serde_json::Value;

#[test]
fn templates_render_as_jinja2_renders_them() {
    let fixture: Value = serde_json::from_str(include_str!("jinja2.json")).unwrap();
    let variables = fixture["variables"].as_object().unwrap();
    let mut failures = Vec::new();
    for case in fixture["cases"].as_array().unwrap() {
        let source = case["template"].as_str().unwrap();
        let expected = case["text"].as_str().unwrap();
        let variables = variables.iter().map(|(name, value)| (name.as_str(), value));
        let text = Template::new(source).and_then(|template| template.render(variables, &|_| None));
        if text.as_deref() != Ok(expected) {
            failures.push(format!("{source}\n  expected {expected:?}\n  found    {text:?}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
