// What goes wrong, and what is long.
import assert from "node:assert/strict";
import { ask, done, frameTimes, lastAnswer } from "../harness.mjs";
import { lastRequest } from "./steps.mjs";

export default [
  [
    "watch a long prompt being read",
    "scripted",
    async (page) => {
      await page.locator("#input").fill("a long prompt");
      await page.keyboard.press("Enter");
      await page.getByText(/Reading the prompt: [\d,]+ of 2,048 tokens, 256 of them cached/).waitFor();
      await done(page);
    },
  ],
  [
    "go on when the server is gone and back",
    "scripted",
    async (page, it) => {
      await ask(page, "one");
      const { url } = it.upstream;
      it.upstream.url = "http://127.0.0.1:9";
      await ask(page, "two");
      assert.match(await page.locator("article:last-child .error").innerText(), /server cannot be reached/);
      await page.getByText("The server does not answer").waitFor();
      it.upstream.url = url;
      await page.waitForFunction(() => document.querySelectorAll("#notices p").length === 0, null, { timeout: 10_000 });
      await ask(page, "three");
      assert.equal(lastRequest(it).messages.at(-1).content, "two\n\nthree");
    },
  ],
  [
    "wait for a busy server",
    "scripted",
    async (page, it) => {
      it.scripted.state.busy = 1;
      await page.locator("#input").fill("Hi");
      await page.keyboard.press("Enter");
      await page.getByText("The server is busy. Next attempt in").waitFor();
      await done(page);
      assert.match(await lastAnswer(page), /^You wrote/);
    },
  ],
  [
    "keep the text of a broken stream",
    "scripted",
    async (page) => {
      await ask(page, "break");
      assert.equal(await lastAnswer(page), "This answer breaks");
      assert.match(await page.locator("article .error").innerText(), /connection/i);
      await page.getByRole("button", { name: "Continue" }).click();
      await page.waitForFunction(() => document.querySelector(".assistant .markdown")?.innerText.endsWith("its end."));
      await done(page);
      assert.equal(await page.locator("article .error").isVisible(), false);
    },
  ],
  [
    "survive 3,000 quotation marks and a megabyte of text",
    "scripted",
    async (page) => {
      await ask(page, "many quotes");
      await page.getByText("After the quotes.").first().waitFor();
      await ask(page, "a megabyte");
      await page.reload();
      await page.waitForFunction(() => document.querySelectorAll(".markdown")[1]?.textContent.length > 1_000_000);
      await ask(page, "still here?");
    },
  ],
  [
    "watch a paragraph of 100 KB stream",
    "scripted",
    async (page, it) => {
      const start = Date.now();
      const frames = await frameTimes(page, () => ask(page, "one paragraph"));
      it.report(
        `100 KB paragraph: ${Date.now() - start} ms, frame 50 % ${frames[frames.length >> 1].toFixed(0)} ms, 95 % ${frames[Math.floor(frames.length * 0.95)].toFixed(0)} ms, longest ${frames.at(-1).toFixed(0)} ms`,
      );
      const content = page.locator("article > .content > .markdown");
      const streamed = await content.innerHTML();
      assert.ok((await page.locator(".markdown strong").count()) > 1000);
      await page.reload();
      const isSame = (html) => document.querySelector("article > .content > .markdown")?.innerHTML === html;
      await page.waitForFunction(isSame, streamed);
    },
  ],
];
