// Drives Chromium through the tasks: `node tests/browser.mjs [PROGRAM] [PATTERN]`. PROGRAM is rf-cli,
// whose demo model some tasks need.
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { CHROMIUM, ask, launch, start } from "./harness.mjs";
import { PERSON } from "./person.mjs";
import { TASKS } from "./tasks.mjs";

const [program = "", pattern = ""] = process.argv.slice(2);
if (!CHROMIUM) {
  console.log("skipped: tasks in the browser: chromium is not installed");
  process.exit(0);
}
const WORKERS = 3;
const failures = [];
const report = [];
const succeeded = new Set();

/** A page in a context of its own; what it throws or its policy refuses is a failure of the task. */
async function opened(it, server, problems, options = {}) {
  const context = await it.browser.newContext({ viewport: { width: 1280, height: 800 }, locale: "en-GB", ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(15_000);
  page.on("pageerror", (error) => problems.push(`${error}`));
  page.on("console", (message) => {
    // Failed requests are part of some tasks.
    if (message.type() === "error" && !/Failed to load resource/.test(message.text())) problems.push(message.text());
  });
  await page.goto(it.urls[server]);
  await page.waitForFunction(() => document.querySelector(".model-name")?.textContent !== "No model");
  return { context, page };
}

async function runTask(it, [name, server, steps]) {
  if (!it.urls[server]) return console.log(`skipped: ${name}: no rf-cli was given`);
  const problems = [];
  const begin = performance.now();
  const { context, page } = await opened(it, server, problems);
  try {
    await steps(page, it);
  } catch (error) {
    problems.push(`${error.stack ?? error}`);
  }
  Object.assign(it.scripted.state, { busy: 0, key: null, vision: false, mcp: [] });
  it.mcp.reset();
  await context.close();
  console.log(`${name}: ${problems.length ? "FAILED" : "ok"} (${Math.round(performance.now() - begin)} ms)`);
  if (!problems.length) succeeded.add(name);
  failures.push(...problems.map((problem) => `${name}: ${problem}`));
}

/** axe-core on the views of the page. */
async function checkAccessibility(it, colorScheme, width) {
  const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
  const problems = [];
  const { context, page } = await opened(it, "scripted", problems, {
    colorScheme,
    bypassCSP: true,
    viewport: { width, height: 800 },
  });
  it.scripted.state.mcp = [it.mcp.url];
  await page.evaluate(() => localStorage.setItem("rocmforge.settings", JSON.stringify({ tools: { isOn: true } })));
  await page.reload();
  await page.getByRole("button", { name: "2 tools" }).waitFor();
  await page.evaluate(axe);
  // Colours are measured when nothing moves.
  await page.addStyleTag({ content: "* { animation: none !important; transition: none !important; }" });
  let views = 0;
  const check = async (view) => {
    const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
    const { violations } = await page.evaluate((runOnly) => globalThis.axe.run(document, { runOnly }), tags);
    for (const { id, nodes } of violations) {
      problems.push(
        `${view}: ${id}: ${nodes.map(({ html, failureSummary }) => `${html.slice(0, 160)} ${failureSummary}`).join("; ")}`,
      );
    }
    views += 1;
  };
  await check("new conversation");
  for (const text of ["markdown", "give a reason", "weather"]) await ask(page, text);
  await check("conversation");
  await page.getByRole("button", { name: "Parameters of the conversation" }).click();
  await check("parameters");
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Details" }).last().click();
  await check("details");
  await page.keyboard.press("Escape");
  await page.keyboard.press("Control+,");
  await check("settings");
  await page.keyboard.press("Escape");
  await page.locator("#model").click();
  await check("menu");
  await page.keyboard.press("Escape");
  if (width < 800) {
    await page.getByRole("button", { name: "Show conversations" }).click();
    await check("conversations");
  }
  await page.getByRole("button", { name: "Server", exact: true }).click();
  await page.locator(".card").first().waitFor();
  await check("server");
  await context.close();
  it.scripted.state.mcp = [];
  const place = `axe-core, ${colorScheme}, ${width} px`;
  console.log(`${place}: ${views} views, ${problems.length} violations`);
  failures.push(...problems.map((problem) => `${place}: ${problem}`));
}

const shared = await launch(program);
const jobs = TASKS.filter(([name]) => name.includes(pattern)).map((task) => (it) => runTask(it, task));
if ("axe".includes(pattern)) {
  for (const [scheme, width] of [
    ["light", 1280],
    ["dark", 1280],
    ["light", 360],
  ])
    jobs.unshift((it) => checkAccessibility(it, scheme, width));
}
await Promise.all(
  Array.from({ length: WORKERS }, async () => {
    const it = await start(shared);
    it.report = (text) => report.push(text);
    for (let job = jobs.shift(); job; job = jobs.shift()) await job(it);
    it.close();
  }),
);
await shared.close();
for (const text of report) console.log(text);
const whole = PERSON.filter(([, names]) => names.every((name) => succeeded.has(name)));
console.log(`${whole.length} of ${PERSON.length} tasks of a person done, by ${succeeded.size} scripts`);
if (failures.length) {
  console.error(`${failures.length} failures\n${failures.join("\n")}`);
  process.exit(1);
}
console.log("all tasks done");
