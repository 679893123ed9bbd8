// What is seen and heard, models, keys and settings.
import assert from "node:assert/strict";
import { ask, withSettings } from "../harness.mjs";
import { messages, conversations, lastRequest } from "./steps.mjs";

export default [
  [
    "read tables, formulas, code and boxes",
    "scripted",
    async (page) => {
      await ask(page, "markdown");
      const markdown = page.locator(".markdown");
      assert.equal(await markdown.locator("math").count(), 2);
      assert.equal(await markdown.locator("input[type=checkbox]").count(), 2);
      assert.equal(await markdown.locator("td[align=right]").count(), 2);
      assert.ok((await markdown.locator(".hljs-keyword").count()) > 0);
      const streamed = await markdown.innerHTML();
      await page.reload();
      await page.locator("article").nth(1).waitFor();
      assert.equal(await markdown.innerHTML(), streamed);
      await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
      await page.getByRole("button", { name: "Copy code" }).click();
      assert.match(await page.evaluate(() => navigator.clipboard.readText()), /^def merge/);
    },
  ],
  [
    "read from right to left",
    "scripted",
    async (page) => {
      await ask(page, "arabic");
      assert.equal(await page.locator(".markdown p").evaluate((p) => getComputedStyle(p).direction), "rtl");
    },
  ],
  [
    "hear the answer sentence by sentence",
    "scripted",
    async (page) => {
      await ask(page, "Hi");
      const heard = await page.locator("#announcer p").allInnerTexts();
      assert.deepEqual(heard, ["Answering.", "You wrote 2 characters.", "This is the second sentence of the answer."]);
    },
  ],
  [
    "choose, load and unload models",
    "scripted",
    async (page, it) => {
      await page.locator("#model").click();
      await page.getByRole("menuitemradio", { name: /second/ }).click();
      assert.equal(await page.locator(".model-name").innerText(), "second");
      await page.locator("#model").click();
      await page.getByRole("menuitem", { name: "Load second" }).click();
      await page.getByText("loading …").waitFor();
      await page.locator("#model .dot.loaded").waitFor();
      await ask(page, "Hi");
      assert.equal(lastRequest(it).model, "second");
      await page.locator("#model").click();
      await page.getByRole("menuitem", { name: "Unload second" }).click();
      await page.locator("#model .dot.unloaded").waitFor();
    },
  ],
  [
    "look at the server",
    "demo",
    async (page) => {
      await ask(page, "Tell me a story.");
      await page.getByRole("button", { name: "Server", exact: true }).click();
      await page.getByRole("heading", { name: "KV pages" }).waitFor();
      await page.waitForFunction(() => document.querySelectorAll(".plot .line").length === 5, null, {
        timeout: 10_000,
      });
      assert.match(await page.locator(".server-page").innerText(), /Generated tokens\s+[\d,]+/);
      await page.getByRole("button", { name: "Back to the chat" }).click();
      await messages(page).first().waitFor();
    },
  ],
  [
    "download a model",
    "scripted",
    async (page, it) => {
      await page.getByRole("button", { name: "Server", exact: true }).click();
      const field = page.getByLabel("Name of the model to download");
      const download = async (name) => {
        await field.fill(name);
        await field.press("Enter");
      };
      await download("org/third-GGUF:Q4_K_M");
      await page.getByText("1.00 of 3.00 GiB").waitFor();
      // The page around the field is drawn anew every two seconds.
      await field.fill("typed");
      await page.getByText("is ready").waitFor();
      await page.locator(".models").getByText("org/third-GGUF:Q4_K_M").waitFor();
      await page.waitForTimeout(2500);
      assert.equal(await field.inputValue(), "typed");
      await download("missing");
      await page.getByText("There is no model 'missing'.").waitFor();
      await download("broken");
      await page.getByText("the disk is full").waitFor();
      it.scripted.state.models.delete("org/third-GGUF:Q4_K_M");
    },
  ],
  [
    "enter a key",
    "scripted",
    async (page, it) => {
      it.scripted.state.key = "secret";
      await page.reload();
      await page.getByText("The server wants an API key").waitFor();
      await page.keyboard.press("Control+,");
      await page.locator("dialog [name=apiKey]").fill("secret");
      await page.keyboard.press("Enter");
      await page.waitForFunction(() => document.querySelector(".model-name")?.textContent === "scripted");
      await ask(page, "Hi");
      it.scripted.state.key = null;
    },
  ],
  [
    "use the keys",
    "scripted",
    async (page) => {
      await ask(page, "Hi");
      await page.keyboard.press("Control+Shift+o");
      await page.getByText("What shall we talk about?").waitFor();
      await page.keyboard.press("Control+b");
      assert.equal(await page.locator("#sidebar").isVisible(), false);
      await page.keyboard.press("Control+b");
      await page.keyboard.press("Control+.");
      await page.getByRole("heading", { name: "Parameters of the conversation" }).waitFor();
      await page.keyboard.press("Escape");
      await page.locator("#messages").focus();
      await page.keyboard.press("/");
      await page.keyboard.type("typed");
      assert.equal(await page.locator("#input").inputValue(), "typed");
    },
  ],
  [
    "go on when the storage is full",
    "scripted",
    async (page) => {
      await page.evaluate(() => {
        IDBObjectStore.prototype.put = () => {
          throw new DOMException("full", "QuotaExceededError");
        };
      });
      await ask(page, "Hi");
      await page.getByText("The storage of the browser is full").waitFor();
      await ask(page, "Ho");
      assert.equal(await messages(page).count(), 4);
    },
  ],
  [
    "find the conversations of the earlier page",
    "scripted",
    async (page) => {
      await page.evaluate(() => {
        localStorage.setItem("rocmforge.conversations", JSON.stringify([{ id: "x", title: "Old talk" }]));
        localStorage.setItem(
          "rocmforge.conversation.x",
          JSON.stringify({
            id: "x",
            messages: [
              { role: "user", content: "old" },
              { role: "assistant", content: "older" },
            ],
          }),
        );
      });
      await page.reload();
      await conversations(page).getByText("Old talk").click();
      await page.getByText("older").first().waitFor();
      assert.equal(
        await page.evaluate(() => Object.keys(localStorage).filter((key) => key.includes("conversation")).length),
        0,
      );
    },
  ],
  [
    "use a phone",
    "scripted",
    async (page) => {
      await page.setViewportSize({ width: 360, height: 700 });
      await ask(page, "markdown");
      assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 360);
      await page.getByRole("button", { name: "Show conversations" }).click();
      await page.getByRole("button", { name: "New conversation" }).click();
      await page.getByText("What shall we talk about?").waitFor();
      assert.equal(await page.locator("#sidebar").isVisible(), false);
    },
  ],
  [
    "choose the dark theme, and keep it",
    "scripted",
    async (page) => {
      await page.getByRole("button", { name: "Settings" }).click();
      await page.locator("dialog [name=theme]").selectOption("dark");
      await page.reload();
      assert.equal(await page.evaluate(() => getComputedStyle(document.documentElement).colorScheme), "dark");
    },
  ],
  [
    "use defaults for new conversations",
    "scripted",
    async (page, it) => {
      await withSettings(page, { params: { temperature: 0.1 } });
      await page.evaluate(() => localStorage.clear());
      // A message that is written before the list of models is there waits for it.
      await page.route("**/v1/models", (route) => setTimeout(() => void route.continue(), 500));
      await page.reload();
      await ask(page, "Hi");
      assert.equal(lastRequest(it).temperature, 0.1);
    },
  ],
];
