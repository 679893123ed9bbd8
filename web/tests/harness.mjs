// Chromium, the servers and the page, for the tasks and the screenshots.
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { chromium } from "playwright-core";
import { committed } from "../build.mjs";
import { startProxy } from "../dev.mjs";
import { startMcp } from "./mcp.mjs";
import { startScripted } from "./scripted.mjs";

export const CHROMIUM = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find((path) =>
  existsSync(path),
);

/** Starts `rf-cli serve` with the demo model and returns its address. */
function startDemo(program) {
  const child = spawn(program, ["serve", "--port", "0", "--threads", "1"], { stdio: ["ignore", "pipe", "pipe"] });
  return new Promise((resolve, reject) => {
    // The line may come in pieces.
    let output = "";
    const read = (data) => {
      output += data;
      const url = /http:\/\/[\d.]+:\d+(?=\s)/.exec(output)?.[0];
      if (url) resolve({ url, close: () => child.kill() });
    };
    child.stdout.on("data", read);
    child.stderr.on("data", read);
    child.on("error", reject);
    child.on("exit", (code) => reject(new Error(`${program} ended with ${code}`)));
  });
}

/** The browser, and the demo model where `program` is given. */
export async function launch(program) {
  const demo = program ? await startDemo(program) : null;
  const browser = await chromium.launch({
    executablePath: CHROMIUM,
    args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
  });
  return {
    browser,
    demo,
    async close() {
      await browser.close();
      demo?.close();
    },
  };
}

/** The page of the committed bundle in front of a scripted server of its own, and of the demo model. */
export async function start({ browser, demo }) {
  const scripted = await startScripted();
  const mcp = await startMcp();
  const upstream = { url: scripted.url };
  const proxies = { scripted: await startProxy({ page: committed, upstream: () => upstream.url }) };
  if (demo) proxies.demo = await startProxy({ page: committed, upstream: () => demo.url });
  const urls = Object.fromEntries(
    Object.entries(proxies).map(([name, proxy]) => [name, `http://127.0.0.1:${proxy.address().port}/`]),
  );
  return {
    browser,
    scripted,
    mcp,
    upstream,
    urls,
    close() {
      scripted.close();
      mcp.close();
      for (const proxy of Object.values(proxies)) {
        proxy.closeAllConnections();
        proxy.close();
      }
    },
  };
}

/** Sends a message and waits for the end of the answer. */
export async function ask(page, text) {
  const before = await page.locator("article.assistant").count();
  await page.locator("#input").fill(text);
  await page.keyboard.press("Enter");
  await page.locator("article.assistant").nth(before).waitFor();
  await done(page);
}

/** The times between the frames of a page during an action, in ms from the shortest to the longest. */
export async function frameTimes(page, action) {
  await page.evaluate(() => {
    window.frameTimes = [];
    let last = performance.now();
    const frame = (now) => {
      window.frameTimes.push(now - last);
      last = now;
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  });
  await action();
  return (await page.evaluate(() => window.frameTimes)).sort((a, b) => a - b);
}

export async function done(page) {
  await page.waitForFunction(() => document.querySelector("article:last-child.assistant[aria-busy=false]"));
}

export const lastAnswer = (page) => page.locator("article:last-child .markdown").first().innerText();

/** Settings before the page starts. */
export const withSettings = (page, settings) =>
  page.addInitScript((value) => {
    if (!localStorage.getItem("rocmforge.settings")) localStorage.setItem("rocmforge.settings", JSON.stringify(value));
  }, settings);
