// Many conversations, tabs and files of them.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { ask, done, lastAnswer } from "../harness.mjs";
import { messages, conversations, menu } from "./steps.mjs";

export default [
  [
    "rename, pin, search and delete conversations",
    "scripted",
    async (page) => {
      await ask(page, "apples");
      await page.getByRole("button", { name: "New conversation" }).click();
      await ask(page, "bananas");
      await menu(page, "apples", "Rename");
      await page.getByRole("textbox", { name: "Title" }).fill("Fruit");
      await page.keyboard.press("Enter");
      await menu(page, "Fruit", "Pin");
      await page.getByRole("heading", { name: "Pinned" }).waitFor();
      assert.match(await conversations(page).first().innerText(), /Fruit/);
      await page.keyboard.press("Control+k");
      await page.keyboard.type("BANANAS");
      await page.waitForFunction(() => document.querySelectorAll("#conversations li").length === 1);
      await page.locator("#search").fill("");
      await page.waitForFunction(() => document.querySelectorAll("#conversations li").length === 2);
      await menu(page, "bananas", "Delete");
      await page.locator("dialog").getByRole("button", { name: "Delete" }).click();
      await page.getByText("What shall we talk about?").waitFor();
      await page.reload();
      await conversations(page).first().waitFor();
      assert.equal(await conversations(page).count(), 1);
    },
  ],
  [
    "export conversations, lose them, and import them",
    "scripted",
    async (page) => {
      await ask(page, "keep me");
      await page.getByRole("button", { name: "Settings" }).click();
      const [download] = await Promise.all([
        page.waitForEvent("download"),
        page.getByRole("button", { name: "Export all" }).click(),
      ]);
      const path = await download.path();
      await page.getByRole("button", { name: "Delete all" }).click();
      await page.locator("dialog").last().getByRole("button", { name: "Delete all" }).click();
      await page.waitForFunction(() => document.querySelectorAll("#conversations li").length === 0);
      await page.getByRole("button", { name: "Settings" }).click();
      await page
        .locator("dialog input[type=file]")
        .setInputFiles({ name: "all.json", mimeType: "application/json", buffer: await readFile(path) });
      await page.getByText("one conversation imported").waitFor();
      await page.keyboard.press("Escape");
      await conversations(page).getByText("keep me").click();
      await messages(page).nth(1).waitFor();
    },
  ],
  [
    "export a conversation as Markdown, and import it",
    "scripted",
    async (page) => {
      await ask(page, "show markdown");
      const [download] = await Promise.all([
        page.waitForEvent("download"),
        menu(page, "show markdown", "Export as Markdown"),
      ]);
      assert.equal(download.suggestedFilename(), "show-markdown.md");
      assert.match(
        await readFile(await download.path(), "utf8"),
        /^# show markdown\n\n## You <!-- user -->\n\nshow markdown\n\n## scripted <!-- assistant -->\n\n# Everything/,
      );
      const before = await page.locator("article .markdown").innerHTML();
      await page.getByRole("button", { name: "Settings" }).click();
      await page.locator("dialog input[type=file]").setInputFiles(await download.path());
      await page.getByText("was not imported: the file is not JSON").waitFor();
      const buffer = await readFile(await download.path());
      await page.locator("dialog input[type=file]").setInputFiles({ name: "a.md", mimeType: "text/markdown", buffer });
      await page.getByText("one conversation imported").waitFor();
      await page.keyboard.press("Escape");
      assert.equal(await conversations(page).count(), 2);
      await conversations(page).locator(".open:not([aria-current])").click();
      await page.waitForFunction((html) => document.querySelector("article .markdown")?.innerHTML === html, before);
    },
  ],
  [
    "look at another conversation while an answer goes on",
    "scripted",
    async (page) => {
      await page.locator("#input").fill("slow");
      await page.keyboard.press("Enter");
      await page.waitForFunction(() => document.querySelector(".assistant .markdown")?.textContent.length > 5);
      await page.getByRole("button", { name: "New conversation" }).click();
      await ask(page, "meanwhile");
      await page.getByRole("img", { name: "Answering" }).waitFor();
      await conversations(page).getByText("slow").click();
      await done(page);
      const answer = await lastAnswer(page);
      assert.equal(answer.match(/Slow words/g).length, 5);
    },
  ],
  [
    "stop the answer of another conversation",
    "scripted",
    async (page) => {
      await page.locator("#input").fill("slow");
      await page.keyboard.press("Enter");
      await page.waitForFunction(() => document.querySelector(".assistant .markdown")?.textContent.length > 5);
      await page.getByRole("button", { name: "New conversation" }).click();
      await menu(page, "slow", "Stop the answer");
      await page.getByRole("img", { name: "Answering" }).waitFor({ state: "detached" });
      await conversations(page).getByText("slow").click();
      await page.getByText("stopped").waitFor();
    },
  ],
  [
    "reload during an answer, which goes on",
    "scripted",
    async (page) => {
      await page.locator("#input").fill("slow");
      await page.keyboard.press("Enter");
      await page.waitForFunction(() => document.querySelector(".assistant .markdown")?.textContent.length > 40);
      await page.reload();
      await page.waitForFunction(() => document.querySelector(".assistant .markdown")?.innerText.endsWith("its end."));
      assert.ok((await lastAnswer(page)).startsWith("Slow words"));
      assert.equal(await messages(page).count(), 2);
      await done(page);
    },
  ],
  [
    "find an answer that the browser ended, and continue it",
    "scripted",
    async (page) => {
      await page.locator("#input").fill("slow");
      await page.keyboard.press("Enter");
      await page.waitForFunction(() => document.querySelector(".assistant .markdown")?.textContent.length > 40);
      // The answer so far is stored once a second.
      await page.waitForTimeout(1200);
      const other = await page.context().newPage();
      const url = page.url();
      await page.close();
      await other.goto(url);
      await other.getByText("The answer was interrupted").waitFor();
      await other.getByRole("button", { name: "Continue" }).click();
      await other.waitForFunction(() => document.querySelector(".assistant .markdown")?.innerText.endsWith("its end."));
    },
  ],
  [
    "write in one conversation from two tabs",
    "scripted",
    async (page) => {
      await ask(page, "first");
      const other = await page.context().newPage();
      await other.goto(page.url());
      await other.locator("article").nth(1).waitFor();
      await ask(other, "from tab two");
      await page.getByText("from tab two").first().waitFor();
      await ask(page, "from tab one");
      await page.reload();
      await page.locator("article").nth(5).waitFor();
      // What is out of sight is not rendered, and has no inner text.
      const texts = await page.locator(".bubble").allTextContents();
      assert.deepEqual(texts, ["first", "from tab two", "from tab one"]);
      await other.close();
    },
  ],
];
