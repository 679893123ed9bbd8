// Pictures of the page in three widths, light and dark, to be looked at:
// `node tests/screenshots.mjs FOLDER`.
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { ask, launch, start, withSettings } from "./harness.mjs";

const folder = process.argv[2] ?? "screenshots";
await mkdir(folder, { recursive: true });
const shared = await launch("");
const it = await start(shared);
it.scripted.state.mcp = [it.mcp.url];
for (const colorScheme of ["light", "dark"]) {
  for (const [width, height] of [
    [360, 740],
    [768, 1000],
    [1440, 900],
  ]) {
    const context = await it.browser.newContext({ viewport: { width, height }, colorScheme, locale: "en-GB" });
    const page = await context.newPage();
    await withSettings(page, { tools: { isOn: true } });
    await page.goto(it.urls.scripted);
    await page.waitForFunction(() => document.querySelector(".model-name")?.textContent === "scripted");
    const take = (name) => page.screenshot({ path: join(folder, `${name}-${width}-${colorScheme}.png`) });
    await take("new");
    const buffer = Buffer.from("A text.\n");
    await page
      .locator("#composer input[type=file]")
      .setInputFiles({ name: "a-file-with-a-long-name.txt", mimeType: "text/plain", buffer });
    await take("file");
    await ask(page, "Tell me about suspension bridges, please.");
    if (width > 700) await page.getByRole("button", { name: "New conversation" }).click();
    else await page.evaluate(() => (location.hash = ""));
    await ask(page, "give a reason");
    await ask(page, "markdown");
    await page.locator("#messages").evaluate((view) => (view.scrollTop = 0));
    await take("conversation");
    await page.locator("#messages").evaluate((view) => (view.scrollTop = view.scrollHeight));
    await take("end");
    await ask(page, "weather in Oslo?");
    await page.locator("#messages").evaluate((view) => (view.scrollTop = view.scrollHeight));
    await take("call");
    await page.getByRole("button", { name: "Parameters of the conversation" }).click();
    await take("parameters");
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "Details" }).last().click();
    await take("details");
    await page.keyboard.press("Escape");
    await page.locator("#model").click();
    await take("models");
    await page.keyboard.press("Escape");
    if (width < 700) {
      await page.getByRole("button", { name: "Show conversations" }).click();
      await take("sidebar");
    }
    await page.getByRole("button", { name: "Settings" }).click();
    await take("settings");
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "Server", exact: true }).click();
    await page.waitForTimeout(6500);
    await take("server");
    await context.close();
  }
}
it.close();
await shared.close();
