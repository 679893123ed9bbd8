import assert from "node:assert/strict";
import { test } from "node:test";
import { toHtml } from "../../src/markdown/parse";

const html = (text: string) => toHtml(text, false)?.trim();

test("text of a model is no HTML", () => {
  assert.equal(html("a <b>b</b> <script>x</script>"), "<p>a &lt;b&gt;b&lt;/b&gt; &lt;script&gt;x&lt;/script&gt;</p>");
  assert.equal(html("<img src=x onerror=y>"), "&lt;img src=x onerror=y&gt;");
  assert.equal(html("[a](javascript:alert(1))"), "<p>a</p>");
  assert.equal(html("![a](https://example.org/a.png)"), '<p><a href="https://example.org/a.png">a</a></p>');
  assert.equal(html('[a](https://example.org/"x)'), '<p><a href="https://example.org/&quot;x">a</a></p>');
});

test("what models write every day is shown as they mean it", () => {
  assert.match(html("- [x] done\n- [ ] open") ?? "", /checked.*type="checkbox"/s);
  assert.match(html("| a |\n|--:|\n| 1<br>2 |") ?? "", /align="right"[^]*1<br>2/);
  assert.equal(html("A &amp; B, window.__a b.__c"), "<p>A &amp; B, window.__a b.__c</p>");
  assert.equal(html("| a |\n|---|\n| 1 | 2 |")?.match(/<td>/g)?.length, 1);
});

test("formulas are marked, prices are not", () => {
  const formula = (text: string) =>
    [...(html(text) ?? "").matchAll(/data-math="([^"]*)" data-display="(\w+)"/g)].map(([, tex, display]) => [
      tex,
      display,
    ]);
  assert.deepEqual(formula("so \\(a+b\\) and $x_1$ and $$y$$ and \\[z\\]"), [
    ["a+b", "inline"],
    ["x_1", "inline"],
    ["y", "block"],
    ["z", "block"],
  ]);
  assert.deepEqual(formula("It costs $5 or $ 6 $ and $7 to $8."), []);
  assert.deepEqual(formula("`$a$` \\$b\\$"), []);
  assert.deepEqual(formula('$a"<b$'), [["a&quot;&lt;b", "inline"]]);
});

test("deep nesting is shown as plain text", () => {
  for (const text of [
    ">".repeat(3000),
    "> ".repeat(6000),
    "- ".repeat(3000),
    "[".repeat(5000),
    "*".repeat(5000),
    "1. ".repeat(400) + "x",
  ]) {
    assert.equal(toHtml(text, false), null, text.slice(0, 10));
  }
  assert.notEqual(toHtml(">>> three\n- - two", false), null);
});

// A rendering whose time is not bounded would take minutes.
test("hostile text is rendered", { timeout: 60_000 }, () => {
  const cases = [
    "**a ".repeat(2000),
    "**a **b ".repeat(1000),
    "_a ".repeat(2700),
    "[a](".repeat(2000),
    "![".repeat(4000),
    "`".repeat(8000),
    "<a ".repeat(2700),
    "$a ".repeat(2700),
    "\\(".repeat(4000),
    "a**b".repeat(2000),
    "|".repeat(8000),
    "&#".repeat(4000),
    "~~a ".repeat(2000),
    "[a][".repeat(2000),
    "*a_b".repeat(2000),
    "http://".repeat(1100),
    "a@".repeat(4000),
  ];
  for (const text of cases) {
    for (const joins of [true, false]) assert.doesNotThrow(() => toHtml(text, joins), text.slice(0, 8));
  }
});
