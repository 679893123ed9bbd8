import assert from "node:assert/strict";
import { test } from "node:test";
import { type Block, Splitter } from "../../src/markdown/split";

function blocks(text: string, pieces: number[] = []): Block[] {
  const splitter = new Splitter();
  for (const end of pieces) splitter.advance(text.slice(0, end));
  splitter.advance(text);
  const open = splitter.open(text);
  return open ? [...splitter.blocks, open] : [...splitter.blocks];
}

const texts = (text: string) => blocks(text).map((block) => block.text);

test("blocks end where Markdown ends them", () => {
  assert.deepEqual(texts("one\ntwo\n\nthree\n"), ["one\ntwo\n", "three\n"]);
  assert.deepEqual(texts("# head\ntext\n## next\n"), ["# head\n", "text\n", "## next\n"]);
  assert.deepEqual(texts("Title\n===\ntext"), ["Title\n===\n", "text"]);
  assert.deepEqual(texts("text\n- a\n- b\n\n- c\n\nend\n"), ["text\n", "- a\n- b\n\n- c\n\n", "end\n"]);
  assert.deepEqual(texts("1. one\n2. two\n- todo\n"), ["1. one\n2. two\n", "- todo\n"]);
  assert.deepEqual(texts("- a\n\n  ```\n  x\n\ny\n  ```\n- b\n"), ["- a\n\n  ```\n  x\n\ny\n  ```\n- b\n"]);
  assert.deepEqual(texts("> a\n> b\nlazy\n\n> c"), ["> a\n> b\nlazy\n", "> c"]);
  assert.deepEqual(texts("| a | b |\n|---|:-:|\n| 1 | 2 |\n\nend"), ["| a | b |\n|---|:-:|\n| 1 | 2 |\n", "end"]);
});

test("code and formulas are blocks of their own", () => {
  const found = blocks("text\n```rust\nfn a() {}\n\n# no heading\n```\nafter\n\n$$\nx^2\n$$\n\\[ y \\]\n$$ z $$\n");
  assert.deepEqual(
    found.map(({ kind, text, language }) => [kind, text.trim(), language]),
    [
      ["text", "text", ""],
      ["code", "fn a() {}\n\n# no heading", "rust"],
      ["text", "after", ""],
      ["math", "x^2", ""],
      ["math", "y", ""],
      ["math", "z", ""],
    ],
  );
  assert.equal(blocks("~~~\n```\n~~~\nx").length, 2);
  assert.equal(blocks("````\n```\n````\nx")[0]?.text, "```\n");
});

test("a formula within a sentence stays in its paragraph", () => {
  assert.deepEqual(texts("$$a$$ is a formula\n"), ["$$a$$ is a formula\n"]);
  assert.deepEqual(texts("\\[a\\] is one\n"), ["\\[a\\] is one\n"]);
});

test("a long paragraph is cut between words, outside of emphasis", () => {
  const text = `${"word ".repeat(1000)}**${"bold ".repeat(600)}** ${"end ".repeat(900)}`;
  const found = blocks(text);
  assert.ok(found.length >= 3);
  assert.equal(found.map((block) => block.text).join(""), text);
  assert.ok(found.slice(1).every((block) => block.joins));
  assert.ok(found.every((block) => (block.text.split("**").length - 1) % 2 === 0));
  const one = "x".repeat(100_000);
  assert.equal(texts(one).join(""), one);
  assert.ok(blocks(one).every((block) => block.text.length <= 8192));
});

test("the blocks do not depend on the pieces in which a text comes", () => {
  const parts = [
    "# A\n",
    "text **b** ",
    "\n\n",
    "- item\n",
    "  more\n",
    "1. one\n",
    "```js\n",
    "let x\n",
    "```\n",
    "> q\n",
    "| a |\n",
    "|---|\n",
    "$$\n",
    "x\n",
    "$$\n",
    "---\n",
    "long words ".repeat(300),
    "\\[\n",
    "\\]\n",
    "\r\n",
    "😀",
  ];
  let seed = 7;
  const random = (n: number) => (seed = (seed * 1103515245 + 12345) % 2147483648) % n;
  for (let round = 0; round < 300; round++) {
    const text = Array.from({ length: 12 }, () => parts[random(parts.length)]).join("");
    const pieces = Array.from({ length: 20 }, () => random(text.length + 1)).sort((a, b) => a - b);
    assert.deepEqual(blocks(text, pieces), blocks(text), JSON.stringify(text));
  }
});

test("the time is linear in the length of the text", () => {
  const cost = (text: string) => {
    const splitter = new Splitter();
    let steps = 0;
    for (let end = 0; end <= text.length; end += 50) {
      splitter.advance(text.slice(0, end));
      steps += splitter.open(text.slice(0, end))?.text.length ?? 0;
    }
    return steps;
  };
  for (const unit of ["some plain words in a long line ", "**a ", "[a](b) ", "- item\n", "`x "]) {
    const [small, large] = [cost(unit.repeat(2000)), cost(unit.repeat(8000))];
    assert.ok(large < 6 * small, `${unit}: ${small} ${large}`);
  }
});
