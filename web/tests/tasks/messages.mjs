// Asking, and what can be done with messages.
import assert from "node:assert/strict";
import { ask, done, lastAnswer } from "../harness.mjs";
import { messages, lastRequest } from "./steps.mjs";

export default [
  [
    "open the page and see which model answers",
    "demo",
    async (page, it) => {
      await page.getByText("What shall we talk about?").waitFor();
      assert.equal(await page.locator(".model-name").innerText(), "demo");
      const paint = await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime);
      it.report(`first paint after ${paint?.toFixed(0)} ms`);
    },
  ],
  [
    "ask and read the answer with its speed",
    "demo",
    async (page) => {
      await ask(page, "Tell me a story about a fox.");
      assert.ok((await lastAnswer(page)).length > 20);
      assert.match(await page.locator("article.assistant footer").innerText(), /\d+ tokens · [\d.,]+ tokens\/s/);
      assert.match(await page.locator("#gauge").getAttribute("title"), /\d+ of 1,024 tokens/);
    },
  ],
  [
    "write a message of several lines",
    "scripted",
    async (page, it) => {
      await page.locator("#input").fill("one");
      await page.keyboard.press("Shift+Enter");
      await page.keyboard.type("two");
      await page.keyboard.press("Enter");
      await done(page);
      assert.equal(lastRequest(it).messages.at(-1).content, "one\ntwo");
    },
  ],
  [
    "begin with a suggestion",
    "scripted",
    async (page) => {
      await page.getByRole("button", { name: /Python/ }).click();
      await page.keyboard.press("Enter");
      await done(page);
      assert.match(await page.locator(".bubble").innerText(), /Python/);
    },
  ],
  [
    "stop an answer and continue it",
    "scripted",
    async (page, it) => {
      await page.locator("#input").fill("slow");
      await page.keyboard.press("Enter");
      await page.waitForFunction(() => document.querySelector(".assistant .markdown")?.textContent.length > 20);
      assert.match(await page.locator("article.assistant footer").innerText(), /tokens/);
      await page.keyboard.press("Escape");
      await done(page);
      const before = await lastAnswer(page);
      assert.match(await page.locator("article.assistant footer").innerText(), /stopped/);
      await page.getByRole("button", { name: "Continue" }).click();
      await page.waitForFunction(() => document.querySelector(".assistant .markdown")?.innerText.endsWith("its end."));
      await done(page);
      assert.equal(lastRequest(it).continue_final_message, true);
      assert.ok((await lastAnswer(page)).startsWith(before.slice(0, 20)));
      assert.equal(await messages(page).count(), 2);
    },
  ],
  [
    "edit a question, which makes a branch, and go back",
    "scripted",
    async (page) => {
      await ask(page, "a question");
      await ask(page, "a second one");
      await messages(page).first().hover();
      await messages(page).first().getByRole("button", { name: "Edit" }).click();
      await page.getByRole("textbox", { name: "Edit the message" }).fill("a better question");
      await page.getByRole("button", { name: "Send", exact: true }).first().click();
      await done(page);
      await page.waitForFunction(() => document.querySelectorAll("article").length === 2);
      assert.equal(await page.locator(".branches").innerText(), "2/2");
      await page.getByRole("button", { name: "Branch before" }).click();
      assert.equal(await messages(page).count(), 4);
      await page.reload();
      await page.locator("article").nth(3).waitFor();
    },
  ],
  [
    "compute an answer again and compare",
    "scripted",
    async (page) => {
      await ask(page, "something");
      await page.getByRole("button", { name: "Regenerate" }).click();
      await page.getByText("2/2").waitFor();
      await done(page);
      await page.getByRole("button", { name: "Branch before" }).click();
      await page.getByText("1/2").waitFor();
    },
  ],
  [
    "correct an answer",
    "scripted",
    async (page, it) => {
      await ask(page, "something");
      await messages(page).last().getByRole("button", { name: "Edit" }).click();
      await page.getByRole("textbox", { name: "Edit the message" }).fill("My own answer.");
      await page.getByRole("button", { name: "Save" }).click();
      assert.equal(await lastAnswer(page), "My own answer.");
      await ask(page, "and then?");
      assert.equal(lastRequest(it).messages[1].content, "My own answer.");
    },
  ],
  [
    "edit the last question with the arrow key",
    "scripted",
    async (page) => {
      await ask(page, "a typo");
      await page.locator("#input").focus();
      await page.keyboard.press("ArrowUp");
      await page.getByRole("textbox", { name: "Edit the message" }).fill("no typo");
      await page.keyboard.press("Control+Enter");
      await page.getByText("2/2").waitFor();
    },
  ],
  [
    "delete a message",
    "scripted",
    async (page) => {
      await ask(page, "one");
      await ask(page, "two");
      await messages(page).nth(2).hover();
      await messages(page).nth(2).getByRole("button", { name: "Delete" }).click();
      await page.locator("dialog").getByRole("button", { name: "Delete" }).click();
      await page.waitForFunction(() => document.querySelectorAll("article").length === 2);
      await page.reload();
      await messages(page).nth(1).waitFor();
      assert.equal(await messages(page).count(), 2);
    },
  ],
];
