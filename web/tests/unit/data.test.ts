import assert from "node:assert/strict";
import { test } from "node:test";
import { textOf } from "../../src/attachments";
import { parseMetrics, rates, snapshot } from "../../src/metrics";
import { Sentences } from "../../src/sentences";
import { fileName, fromJson, fromMarkdown, toJson, toMarkdown } from "../../src/transfer";
import { headWithout, leafBelow, pathTo, subtree, successors } from "../../src/tree";
import type { Message } from "../../src/conversation";

const message = (id: string, parent: string | null, created: number, role: Message["role"] = "user"): Message => ({
  id,
  conversation: "c",
  parent,
  role,
  content: `text ${id}`,
  created,
});

const all = new Map(
  [
    message("a", null, 1),
    message("b", "a", 2, "assistant"),
    message("c", "b", 3),
    message("d", "a", 4, "assistant"),
    message("e", "d", 5),
    message("f", null, 6),
  ].map((m) => [m.id, m]),
);

test("a path leads from the first message to the head", () => {
  assert.deepEqual(
    pathTo(all, "e").map(({ id }) => id),
    ["a", "d", "e"],
  );
  assert.deepEqual(pathTo(all, "missing"), []);
  assert.deepEqual(pathTo(new Map([["x", message("x", "x", 1)]]), "x").length, 1);
});

test("branches are found, left and deleted", () => {
  assert.deepEqual(
    successors(all)
      .get("a")
      ?.map(({ id }) => id),
    ["b", "d"],
  );
  assert.equal(leafBelow(all, "a"), "e");
  assert.deepEqual(subtree(all, "a").sort(), ["a", "b", "c", "d", "e"]);
  assert.equal(headWithout(all, "e", new Set(subtree(all, "d"))), "c");
  assert.equal(headWithout(all, "e", new Set(subtree(all, "a"))), "f");
  assert.equal(headWithout(new Map([["x", message("x", null, 1)]]), "x", new Set(["x"])), null);
});

test("an export can be imported, with new ids and all branches", () => {
  const conversation = {
    id: "c",
    title: "T",
    created: 1,
    updated: 2,
    head: "e",
    system: "S",
    params: { top_k: 3 },
    pinned: true,
  };
  const [read] = fromJson(toJson([{ conversation, messages: [...all.values()] }]));
  assert.ok(read);
  assert.notEqual(read.conversation.id, "c");
  assert.equal(read.messages.length, 6);
  assert.ok(read.messages.every((m) => m.conversation === read.conversation.id));
  const path = pathTo(new Map(read.messages.map((m) => [m.id, m])), read.conversation.head);
  assert.deepEqual(
    path.map(({ content }) => content),
    ["text a", "text d", "text e"],
  );
  assert.deepEqual(
    [read.conversation.system, read.conversation.params, read.conversation.pinned],
    ["S", { top_k: 3 }, true],
  );
});

test("conversations of OpenAI's clients are imported, other files are refused", () => {
  const text = JSON.stringify({
    messages: [
      { role: "system", content: "S" },
      { role: "user", content: [{ type: "text", text: "Hi" }] },
      { role: "assistant", content: "Yes" },
    ],
  });
  const [read] = fromJson(text);
  assert.deepEqual([read?.conversation.title, read?.conversation.system, read?.messages.length], ["Hi", "S", 2]);
  assert.equal(fromJson('[{"role":"user","content":"x"}]').length, 1);
  for (const wrong of [
    "{",
    "{}",
    "3",
    '{"messages":[3]}',
    '{"format":"rocmforge-conversations","conversations":[{}]}',
    '{"format":"rocmforge-conversations","conversations":[{"messages":[{"role":"x"}]}]}',
  ]) {
    assert.throws(() => fromJson(wrong), Error, wrong);
  }
});

test("Markdown has the shown branch, and fences that hold", () => {
  const messages = [...all.values()].map((m) =>
    m.id === "a" ? { ...m, attachments: [{ kind: "text" as const, name: "x.md", data: "```\na\n```" }] } : m,
  );
  const text = toMarkdown({
    conversation: { id: "c", title: "T", created: 1, updated: 1, head: "e", params: {} },
    messages,
  });
  assert.ok(
    text.startsWith(
      "# T\n\n## You <!-- user -->\n\n*File: x.md*\n\n````\n```\na\n```\n````\n\ntext a\n\n## Answer <!-- assistant -->\n\ntext d",
    ),
  );
  assert.ok(!text.includes("text b"));
  assert.equal(fileName("../a b/ü?.x", "md"), "a-b-ü-.x.md");
  assert.equal(fileName("???", "md"), "conversation.md");
});

test("an export as Markdown can be imported", () => {
  const base = { conversation: "c", created: 1 };
  const heading = "## You <!-- user -->\n\n## A heading";
  const messages: Message[] = [
    { ...base, id: "1", parent: null, role: "user", content: heading },
    { ...base, id: "2", parent: "1", role: "assistant", model: "m", content: "Yes.\n\n## More", reasoning: "Hm\n\nno" },
    { ...base, id: "3", parent: "2", role: "tool", content: "42" },
    { ...base, id: "4", parent: "3", role: "assistant", model: "m", content: "It is 42." },
  ];
  const conversation = {
    id: "c",
    title: "A <b> title",
    created: 1,
    updated: 1,
    head: "4",
    system: "Be brief.",
    params: {},
  };
  const made = fromMarkdown(toMarkdown({ conversation, messages }));
  assert.equal(made.conversation.title, "A <b> title");
  assert.equal(made.conversation.system, "Be brief.");
  assert.deepEqual(
    made.messages.map(({ role, content, reasoning, model }) => [role, content, reasoning, model]),
    [
      ["user", heading, undefined, undefined],
      ["assistant", "Yes.\n\n## More\n\n*Result*\n\n```\n42\n```", "Hm\n\nno", "m"],
      ["assistant", "It is 42.", undefined, "m"],
    ],
  );
  assert.throws(() => fromMarkdown("# Notes\n\n## You\n"), /no headings of messages/);
});

test("sentences come once, whole, and without marks", () => {
  const sentences = new Sentences();
  const text =
    "This is the **first** sentence. And a [second](x) one! 1. no sentence here\n\n```js\ncode();\n```\nThe end";
  const found: string[] = [];
  for (let end = 0; end <= text.length; end++) found.push(...sentences.next(text.slice(0, end), false));
  found.push(...sentences.next(text, true));
  assert.deepEqual(found, [
    "This is the first sentence.",
    "And a second one!",
    "1. no sentence here",
    "code();",
    "The end",
  ]);
  assert.deepEqual(new Sentences().next("これは文です。次の文", false), ["これは文です。"]);
});

test("metrics are read with their labels, rates follow from two readings", () => {
  const text = (tokens: number) =>
    `# HELP x y\nrocmforge:generation_tokens_total{model_name="a \\"b\\"",engine="0"} ${tokens}\nrocmforge:generation_tokens_total{model_name="c"} 1\n` +
    'rocmforge:cache_config_info{model_name="c",num_gpu_blocks="256"} 1\nrocmforge:kv_cache_usage_perc{model_name="c"} 0.5\nrocmforge:prompt_tokens_total 30\nother +Inf\nbroken{\n';
  assert.equal(parseMetrics(text(1))[0]?.labels.model_name, 'a "b"');
  const [before, after] = [snapshot(parseMetrics(text(9)), 1), snapshot(parseMetrics(text(29)), 3)];
  assert.deepEqual([before.tokens, before.pages, before.usedPages], [10, 256, 128]);
  assert.equal(rates(before, after)?.tokensPerSecond, 10);
  assert.equal(rates(after, before), null);
});

test("text files are told from others", () => {
  const bytes = (text: string) => new TextEncoder().encode(text);
  assert.equal(textOf(bytes("ä\r\nb")), "ä\nb");
  assert.equal(textOf(new Uint8Array([0x25, 0x50, 0, 1])), null);
  assert.equal(textOf(new Uint8Array([0xc3, 0x28])), null);
  assert.equal(textOf(new Uint8Array([0xff, 0xfe, 0x61, 0])), "a");
});
