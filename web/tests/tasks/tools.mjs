// Tools of MCP servers.
import assert from "node:assert/strict";
import { ask, done } from "../harness.mjs";
import { conversations, lastRequest } from "./steps.mjs";

/** Turns the tools on in the settings, and waits for a text there. */
async function turnOn(page, it, text) {
  it.scripted.state.mcp = [it.mcp.url];
  await page.reload();
  await page.keyboard.press("Control+,");
  await page.getByLabel("Offer the tools of MCP servers to the model").check();
  await page.locator(".tool-servers").getByText(text).waitFor();
}

const question = (page) => page.getByRole("group", { name: "Question about get_weather" });
const hear = (page, text) => page.locator("article:last-child").getByText(text).waitFor();

export default [
  [
    "let the model use a tool of an MCP server",
    "scripted",
    async (page, it) => {
      it.scripted.state.mcp = [it.mcp.url];
      await page.reload();
      await ask(page, "Hi");
      assert.equal(lastRequest(it).tools, undefined);
      assert.equal(it.mcp.state.requests, 0);
      await turnOn(page, it, "Test tools: 2 tools");
      await page.locator(".tool-names").getByText("The weather of a city.").waitFor();
      await page.keyboard.press("Escape");
      await page.getByRole("button", { name: "2 tools" }).waitFor();
      await ask(page, "the weather?");
      const [weather, search] = lastRequest(it).tools.map((tool) => tool.function);
      assert.deepEqual([weather.name, search.name], ["get_weather", "notes_search"]);
      assert.deepEqual(weather.parameters.required, ["city"]);
      // Nothing runs before the person agrees.
      await question(page).getByText("Run get_weather on Test tools with these arguments?").waitFor();
      assert.deepEqual(it.mcp.state.calls, []);
      await question(page).getByRole("button", { name: "Run" }).click();
      await hear(page, "The tool says Oslo: sun.");
      assert.deepEqual(it.mcp.state.calls, [{ name: "get_weather", arguments: { city: "Oslo" } }]);
      assert.deepEqual(lastRequest(it).messages.at(-1), {
        role: "tool",
        content: "Oslo: sun",
        tool_call_id: "call_1",
      });
      // Off again, after a reload with them on.
      await page.reload();
      await page.getByRole("button", { name: "2 tools" }).click();
      await page.getByLabel("Offer the tools of MCP servers to the model").uncheck();
      await page.keyboard.press("Escape");
      await ask(page, "Hi");
      assert.equal(lastRequest(it).tools, undefined);
    },
  ],
  [
    "refuse a call, and let a tool run unasked",
    "scripted",
    async (page, it) => {
      await turnOn(page, it, "Test tools: 2 tools");
      await page.keyboard.press("Escape");
      await ask(page, "the weather?");
      await question(page).getByRole("button", { name: "Refuse" }).click();
      await hear(page, "The tool says The user refused this call.");
      assert.deepEqual(it.mcp.state.calls, []);
      await done(page);
      await ask(page, "the weather?");
      await question(page).getByLabel("Do not ask again").check();
      await question(page).getByRole("button", { name: "Run" }).click();
      await hear(page, "The tool says Oslo: sun.");
      await done(page);
      await page.locator("#input").fill("the weather again?");
      await page.keyboard.press("Enter");
      await page.waitForFunction(() => document.querySelectorAll("article").length === 12);
      await hear(page, "The tool says Oslo: sun.");
      assert.equal(it.mcp.state.calls.length, 2);
      // It asks again after a reload.
      await done(page);
      await page.reload();
      await page.getByRole("button", { name: "2 tools" }).waitFor();
      await ask(page, "the weather?");
      await question(page).waitFor();
    },
  ],
  [
    "leave a conversation while its tool runs",
    "scripted",
    async (page, it) => {
      await turnOn(page, it, "Test tools: 2 tools");
      await page.keyboard.press("Escape");
      await ask(page, "the weather?");
      it.mcp.state.isSlow = true;
      await question(page).getByRole("button", { name: "Run" }).click();
      await page.getByText("get_weather runs on Test tools").waitFor();
      await page.getByRole("button", { name: "New conversation" }).click();
      await ask(page, "meanwhile");
      await conversations(page).getByText("the weather?").click();
      await page.getByRole("button", { name: "Stop the call" }).click();
      await page.getByText("The call was stopped.").waitFor();
      it.mcp.state.isSlow = false;
      await page.getByRole("button", { name: "Try again" }).click();
      await hear(page, "The tool says Oslo: sun.");
    },
  ],
  [
    "see what is wrong with a server of tools",
    "scripted",
    async (page, it) => {
      it.mcp.state.token = "secret";
      await turnOn(page, it, "It wants a token");
      await page.getByLabel(`Token for ${it.mcp.url}`).fill("secret");
      await page.keyboard.press("Tab");
      await page.locator(".tool-servers").getByText("Test tools: 2 tools").waitFor();
      await page.keyboard.press("Escape");
      // A server that was started anew knows no session.
      it.mcp.state.sessions.clear();
      it.mcp.state.isBroken = true;
      await ask(page, "the weather?");
      await question(page).getByRole("button", { name: "Run" }).click();
      await hear(page, "The tool says Error: no such city.");
      await done(page);
      await ask(page, "the weather?");
      it.mcp.state.token = "another";
      await question(page).getByRole("button", { name: "Run" }).click();
      await page.getByText("It wants a token, or another one.").waitFor();
      await page.getByRole("button", { name: "Tell the model" }).click();
      await hear(page, "The tool says Error: It wants a token");
    },
  ],
];
