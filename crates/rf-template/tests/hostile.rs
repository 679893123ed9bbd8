//! Templates that overflowed a stack, took all memory or hung an engine without bounds. Each is an
//! error here, on a small stack.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

use rf_template::{Error, Limits, Template};

fn render(source: &str) -> Result<String, Error> {
    Template::new(source)?.render([], &|_| Some("now".to_owned()))
}

/// Smaller than the stack of any thread of this project.
const STACK_BYTES: usize = 1 << 20;

fn assert_errors(sources: Vec<String>) {
    let check = move || {
        for source in sources {
            let shown: String = source.chars().take(90).collect();
            let result = render(&source);
            assert!(result.is_err(), "{shown} gave {} bytes", result.unwrap().len());
        }
    };
    std::thread::Builder::new().stack_size(STACK_BYTES).spawn(check).unwrap().join().unwrap();
}

#[test]
fn deep_sources_are_refused() {
    let many = |text: &str| text.repeat(30_000);
    assert_errors(vec![
        format!("{{{{ {} 1 }}}}", many("not ")),
        format!("{{{{ {} 1 }}}}", many("-")),
        format!("{{{{ {} 1 }}}}", many("- ")),
        format!("{{{{ {} 1 }}}}", many("+")),
        format!("{{{{ {} 1 }}}}", many("1 ~ ")),
        format!("{{{{ {} 1 }}}}", many("1 + ")),
        format!("{{{{ {} 1 }}}}", many("1 and ")),
        format!("{{{{ {} 1 }}}}", many("1 or ")),
        format!("{{{{ {} 1 }}}}", many("1 ** ")),
        format!("{{{{ {} }}}}", many("(")),
        format!("{{{{ {} }}}}", many("[")),
        format!("{{{{ {} }}}}", many("{1:")),
        format!("{{{{ x{} }}}}", many("[0]")),
        format!("{{{{ x{} }}}}", many(".a")),
        format!("{{{{ x{} }}}}", many("()")),
        format!("{{{{ x{} }}}}", many("|trim")),
        format!("{{{{ x{} }}}}", many(" is odd")),
        format!("{{{{ x{} }}}}", many(" if x else x")),
        many("{% if x %}"),
        many("{% for x in y %}"),
        many("{% macro m() %}"),
        many("{% with %}"),
        many("{% filter trim %}"),
        format!("{}{}", "{% if x %}", many("{% elif x %}")),
        "x".repeat(300 << 10),
    ]);
}

#[test]
fn deep_values_and_recursion_are_errors() {
    let nested = "{% set ns = namespace(l=[]) %}{% for i in range(100000) %}\
                  {% set ns.l = [ns.l] %}{% endfor %}";
    let macros = "{% macro m(x) %}{{ m([x]) }}{% endmacro %}{{ m(1) }}";
    let deep_macro = format!(
        "{{% macro m() %}}{}{{{{ {}m(){} }}}}{}{{% endmacro %}}{{{{ m() }}}}",
        "{% if true %}".repeat(50),
        "(".repeat(50),
        ")".repeat(50),
        "{% endif %}".repeat(50)
    );
    assert_errors(vec![
        format!("{nested}{{{{ ns.l }}}}"),
        format!("{nested}{{{{ ns.l | tojson }}}}"),
        format!("{nested}{{{{ ns.l == ns.l }}}}"),
        macros.to_owned(),
        deep_macro,
        "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}"
            .to_owned(),
        "{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{% endmacro %}{{ m() }}"
            .to_owned(),
    ]);
}

/// A namespace may contain itself: it prints without its fields.
#[test]
fn a_namespace_within_itself_ends() {
    let source = "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}{{ ns.a.a.a == ns }}";
    assert_eq!(render(source).unwrap(), "<namespace>True");
}

#[test]
fn large_texts_and_lists_are_errors() {
    assert_errors(
        [
            "{% set ns = namespace(s='aaaaaaaaaa') %}{% for i in range(60) %}\
             {% set ns.s = ns.s ~ ns.s %}{% endfor %}",
            "{% set ns = namespace(s='aaaaaaaaaa') %}{% for i in range(60) %}\
             {% set ns.s = ns.s + ns.s %}{% endfor %}",
            "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}\
             {% set ns.l = ns.l + ns.l %}{% endfor %}",
            "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}\
             {% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
            "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}\
             {% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l == ns.l + [] }}{{ ns.l | tojson }}",
            "{{ '%999999999d' | format(1) }}",
            "{{ '%99999999999999999999999d' | format(1) }}",
            "{{ 'a\nb' | indent(9999999999) }}",
            "{{ range(100000) | join('x' * 100000) }}",
            "{{ ('a' * 100000).replace('a', 'b' * 100000) }}",
            "{{ ('a' * 100000).replace('', 'b' * 100000) }}",
            "{{ range(99999) | slice(99999999) }}",
            "{{ range(9) | batch(99999999, 0) }}",
            "{{ [1] * 9999999999 }}",
            "{{ ([1] * 9999999999) | sum }}",
            "{{ 'x' * 99999999999999999999 }}",
            "{{ '' | center(9999999999) }}",
            "{{ 'x'.ljust(9999999999) }}",
            "{{ 'x'.zfill(9999999999) }}",
            "{{ range(9999999999) | list }}",
            "{{ range(170141183460469231731687303715884105727) }}",
            "{{ ({} | tojson(indent=4)) ~ ([1] | tojson(indent=99999999999)) }}",
            "{{ strftime_now('%Y' * 10000000) }}",
            "{{ ('a ' * 9000000).split() }}",
            "{{ ('a' * 9000000) | list }}",
            "{{ 99999 ** 99999 }}",
            "{{ 170141183460469231731687303715884105727 + 1 }}",
            "{{ (-170141183460469231731687303715884105727 - 1) // -1 }}",
            "{{ (-170141183460469231731687303715884105727 - 1) | abs }}",
            "{% for i in range(9999) %}{% set x %}{{ 'y' * 99999 }}{% endset %}{% endfor %}",
        ]
        .map(str::to_owned)
        .into(),
    );
}

#[test]
fn long_runs_are_errors() {
    assert_errors(
        [
            "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
            "{% set s = 'a' * 9999999 %}{% for i in range(99999) %}{{ 'b' in s }}{% endfor %}",
            "{% set s = 'a' * 999999 %}{% for i in range(99999) %}{{ s == s ~ '' }}{% endfor %}",
            "{% set s = 'a' * 999999 %}{% for i in range(99999) %}{{ s | length }}{% endfor %}",
            "{% set s = 'a' * 999999 %}{% for i in range(99999) %}{{ s[5] }}{% endfor %}",
            "{% set s = 'a' * 99999 %}{{ s.strip('b' * 99999 ~ 'a') ~ s.strip('b' * 99999) }}",
            "{% set l = range(99999) | list %}{% for i in l %}{{ -1 in l }}{% endfor %}",
            "{{ range(99999) | map('string') | unique | list | length }}",
            "{% set l = range(999) | list %}{% for i in range(99999) %}\
             {% set x = l | sort(reverse=true) %}{% endfor %}",
            "{% set l = range(9999) | list %}{% for i in range(99999) %}\
             {% set x = l | sum %}{% endfor %}",
        ]
        .map(str::to_owned)
        .into(),
    );
}

#[test]
fn limits_can_be_replaced() {
    let template =
        || Template::new("{% for i in range(100) %}{{ 'word' * 100 }}{% endfor %}").unwrap();
    let none = || std::iter::empty::<(&str, &serde_json::Value)>();
    let text = template().render(none(), &|_| None).unwrap();
    assert_eq!(text.len(), 40_000);
    for (limits, expected) in [
        (Limits::default().with_steps(99), "the template runs for too long"),
        (Limits::default().with_bytes(39_999), "the template needs too much memory"),
    ] {
        let error = template().with_limits(limits).render(none(), &|_| None).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn malformed_sources_are_refused_with_a_line() {
    for source in [
        "{% for",
        "{{ a.b.c }",
        "{% endif %}",
        "{{ 'x' | nofilter",
        "{% if %}{% endif %}",
        "{#",
        "{% raw %}",
        "{{ 'a",
        "{{ '\\x4' }}",
        "{{ 1 2 }}",
        "{% set %}",
        "{% unknown %}",
        "{{ * }}",
        "{% for x in y recursive %}{% endfor %}",
        "{% break %}",
        "{{ a[1:2:3:4] }}",
        "{{ a[] }}",
        "{% macro m() %}{% break %}{% endmacro %}",
        "{% if x %}{% else %}{% else %}{% endif %}",
        "{{ f(a=1, 2) }}",
        "{{ é$ }}",
        "{{ 99999999999999999999999999999999999999999999 }}",
        "{% set x = %}",
        "{{",
        "{%",
        "{{ -",
        "{% -%",
        "{%-",
        "{{-}}",
        "{{ not }}",
    ] {
        let error = Template::new(source).unwrap_err();
        assert!(matches!(error, Error::Syntax { line: 1, .. }), "{source}: {error:?}");
    }
    let error = Template::new("a\nb\n{{ x }}\n{% nonsense %}").unwrap_err();
    assert_eq!(error.to_string(), "line 4: unknown tag `nonsense`");
    let error = render("a\n\n{{ x.y.z }}").unwrap_err();
    assert_eq!(error.to_string(), "line 3: an undefined value has no field `y`");
    let error = render("{{ raise_exception('no \x1b[31m') }}").unwrap_err();
    assert_eq!(error, Error::Refused("no \x1b[31m".into()));
}
